# SPDX-License-Identifier: Apache-2.0
import shlex
from pathlib import Path

import pytest

from analyzer.runbooks.pages import Runbooks
from analyzer.server.page import incident as module
from analyzer.server.page.incident import _runbook, incident
from analyzer.server.page.page import Page
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import IncidentState, Pair
from tests.analyzer.server.page import looking
from tests.analyzer.server.page.looking import on

WALK = Evidence(EvidenceKind.WALK, {
    "source": "c0/rail0", "target": "c1/rail0",
    "steps": [
        [0, "h0/br-int: in_port=3"], [1, "table=0: resubmit(,10)"], [2, "table=10: set_tunnel"],
        [0, "h1/br-int: in_port=1"], [0, "dropped: no flow [flow h1/br-int/table=4]"],
        [1, "nearest table=4: tun_id=7"],
    ],
})  # fmt: skip
TRACE = Evidence(EvidenceKind.TRACE, {
    "source": "c0/rail0", "target": "c1/rail0", "text": "lost in the tunnel",
    "lines": ["encapsulate 10", "uplink_transmit 0"],
})  # fmt: skip
FLOW = Component(Kind.FLOW, "h1/br-int/table=4")


def test_all_evidence_is_told_with_walks_and_traces_apart(tmp_path):
    async def work(looked):
        known = looking.incident(
            "i1", "t0", component=FLOW, layer=Layer.OVERLAY, evidence=(WALK, TRACE, "a sentence")
        )
        await looked.tell(known)
        told = incident(Page(looked.analyzer), Sight(), "i1")
        [walk] = told["walks"]
        assert (walk["source"], walk["target"]) == ("c0/rail0", "c1/rail0")
        assert [hop["quote"] for hop in walk["hops"]] == [
            ["h0/br-int: in_port=3", "table=0: resubmit(,10)", "  table=10: set_tunnel"],
            ["h1/br-int: in_port=1", "nearest table=4: tun_id=7"],
        ]
        assert walk["text"].startswith("dropped: no flow")
        [trace] = told["traces"]
        assert (trace["text"], trace["lines"]) == ("lost in the tunnel", TRACE.values["lines"])
        assert (trace["source"], trace["stages"], trace["commands"]) == ("c0/rail0", [], [])
        assert told["evidence"] == ["a sentence"]  # what is shown apart is not told again
        assert (told["kind"], told["recording"]) == ("flow", None)
        assert told["runbook"]["href"] == "/static/runbooks/flow-loses.md"

    on(tmp_path, work)


MET = Evidence(EvidenceKind.WALK, WALK.values | {
    "hops": [
        [0, "h0", "vswitch h0", "forwarded"], [1, "h0", "flow h0/br-int/table=0", "forwarded"],
        [3, "h1", "vswitch h1", "forwarded"], [4, "h1", "flow h1/br-int/table=4", "dropped"],
    ],
})  # fmt: skip
TIMED = Evidence(EvidenceKind.TRACE, TRACE.values | {
    "flows": [["sender", "udp,nw_dst=10.0.0.1 #'", 3.0], ["receiver", "udp,tun_id=7", 3.0]],
    "stages": [["sender", "lookup", 10, 0], ["sender", "output", 9, 4_000]],
})  # fmt: skip


def test_each_hop_is_told_with_its_part_its_host_and_what_is_quoted_of_it(tmp_path):
    async def work(looked):
        known = looking.incident("i1", "t0", component=FLOW, layer=Layer.OVERLAY, evidence=(MET,))
        await looked.tell(known)
        [walk] = incident(Page(looked.analyzer), Sight(), "i1")["walks"]
        assert walk["hops"] == [
            {"component": "vswitch h0", "action": "forwarded", "host": "h0", "layer": "overlay",
             "quote": ["h0/br-int: in_port=3"]},
            {"component": "flow h0/br-int/table=0", "action": "forwarded", "host": "h0",
             "layer": "overlay", "quote": ["table=0: resubmit(,10)", "table=10: set_tunnel"]},
            {"component": "vswitch h1", "action": "forwarded", "host": "h1", "layer": "overlay",
             "quote": ["h1/br-int: in_port=1"]},
            {"component": "flow h1/br-int/table=4", "action": "dropped", "host": "h1",
             "layer": "overlay", "quote": ["nearest table=4: tun_id=7"]},
        ]  # fmt: skip
        assert walk["command"] == "netagent-analyzer diagnose c0/rail0 c1/rail0"

    on(tmp_path, work)


def test_a_trace_is_told_by_stage_with_its_times_and_how_to_repeat_it(tmp_path):
    async def work(looked):
        await looked.tell(looking.incident("i1", "t0", evidence=(TIMED,)))
        [trace] = incident(Page(looked.analyzer), Sight(), "i1")["traces"]
        assert trace["stages"] == [
            {"end": "sender", "host": "h0", "stage": "lookup", "packets": 10, "p50_ns": None},
            {"end": "sender", "host": "h0", "stage": "output", "packets": 9, "p50_ns": 4_000},
        ]
        words = [(each["text"], shlex.split(each["command"])) for each in trace["commands"]]
        flow = TIMED.values["flows"][0][1]
        told = ["netagent", "trace", "drops", flow, "--duration", "3"]
        assert words[0] == ("on h0: count again", told)
        assert [text.partition(":")[0] for text, _ in words] == ["on h0", "on h0", "on h1", "on h1"]

    on(tmp_path, work)


def test_a_recording_is_fetched_by_administrators_alone(tmp_path):
    async def work(looked):
        await looked.tell(looking.incident("i1", "t0"), looking.incident("i2", "t0"))
        folder = Path(looked.analyzer.config.database).parent / "recording"
        folder.mkdir(exist_ok=True)
        (folder / "i1.recording").write_bytes(b"recorded")
        where = "/v1/views/incident/i1/recording"
        async with looked.browser("admin") as admin:
            told = await admin.get("/v1/views/incident/i1")
            assert told.json()["recording"]["href"] == where
            found = await admin.get(where)
            assert (found.status_code, found.content) == (200, b"recorded")
            assert found.headers["content-disposition"].startswith("attachment")
            for name in ("i2", "none", "..%2Fi1"):
                assert (await admin.get(f"/v1/views/incident/{name}/recording")).status_code == 404
        for name, status in (("reader", 403), (looking.TENANT, 403), ("", 401)):
            async with looked.browser(name) as other:
                assert (await other.get(where)).status_code == status

    on(tmp_path, work)


def test_the_timeline_is_in_order_and_ends_with_its_end(tmp_path):
    async def work(looked):
        await looked.tell(looking.incident("i1", "t0"))
        over = looking.incident(
            "i1", "t0", state=IncidentState.RECOVERED, recovered_ns=looked.analyzer.clock()
        )
        await looked.tell(over)
        timeline = incident(Page(looked.analyzer), Sight(), "i1")["timeline"]
        assert [e["at_ns"] for e in timeline] == sorted(e["at_ns"] for e in timeline)
        said = [each["what"] for each in timeline]
        assert {"something deviated", "opened, and announced", "recovered, and announced",
                "it was over"} <= set(said)  # fmt: skip

    on(tmp_path, work)


def test_what_would_decide_is_named_between_what_may_be_at_fault(tmp_path):
    async def work(looked):
        known = looking.incident("i1", "t0", missing=("a trace of c0",))
        undecided = looking.incident("i2", "t0", component=None, layer=None)
        await looked.tell(known, undecided)
        page = Page(looked.analyzer)
        first, second = incident(page, Sight(), "i1")["decide"]
        assert first == "a trace of c0"
        assert "switch spine-0" in second
        assert "link leaf-s0-r0 -- spine-0" in second
        assert incident(page, Sight(), "i2")["decide"] == []

    on(tmp_path, work)


def test_a_command_is_one_command_whatever_names_are_in_it(tmp_path):
    async def work(looked):
        evil = "c0'; rm -rf / #"
        pair = Pair(EndpointId(evil, 0), EndpointId("c1", 0), 10, 9)
        known = looking.incident("i1", component=FLOW, layer=Layer.OVERLAY)
        known = type(known)(
            known.id, known.state, known.verdict.__class__(
                FLOW, Layer.OVERLAY, known.verdict.symptom, 0.9, "", failing=(pair,)
            ), 1, 2, 3,
        )  # fmt: skip
        await looked.tell(known)
        commands = [
            e["command"] for e in incident(Page(looked.analyzer), Sight(), "i1")["commands"]
        ]
        words = [shlex.split(each) for each in commands]
        assert ["netagent-analyzer", "diagnose", f"{evil}/rail0", "c1/rail0"] in words
        assert ["netagent-analyzer", "history", "--component", str(FLOW)] in words
        assert ["netagent-analyzer", "feedback", "i1", "right"] in words
        assert ["netagent", "flows", "lint"] in words

    on(tmp_path, work)


def test_an_rnic_s_host_is_where_to_look(tmp_path):
    async def work(looked):
        rnic = Component(Kind.RNIC, "h1/rnic0")
        nowhere = Component(Kind.RNIC, "h99/rnic0")
        await looked.tell(
            looking.incident("i1", "t0", component=rnic, layer=Layer.RNIC),
            looking.incident("i2", "t0", component=nowhere, layer=Layer.RNIC),
        )
        told = incident(Page(looked.analyzer), Sight(), "i1")["commands"]
        assert {"text": "on h1: its RNICs", "command": "netagent rnics"} in told
        elsewhere = incident(Page(looked.analyzer), Sight(), "i2")["commands"]
        assert not any("h99:" in each["text"] for each in elsewhere)

    on(tmp_path, work)


def test_a_recording_that_was_kept_can_be_run_again(tmp_path):
    async def work(looked):
        await looked.tell(looking.incident("i1", "t0"))
        folder = Path(looked.analyzer.config.database).parent / "recording"
        folder.mkdir(exist_ok=True)
        (folder / "i1.recording").touch()
        page = Page(looked.analyzer)
        told = incident(page, Sight(), "i1")["recording"]
        assert shlex.split(told["command"])[:2] == ["netagent-analyzer", "replay"]
        assert (told["bytes"], told["href"]) == (0, None)
        fetched = incident(page, Sight(), "i1", may_fetch=True)["recording"]
        assert fetched["href"] == "/v1/views/incident/i1/recording"
        mine = incident(page, Sight(("t0",)), "i1")
        assert mine["recording"] is None
        assert [each["command"] for each in mine["commands"]] == ["netagent-analyzer show i1"]

    on(tmp_path, work)


def test_of_more_pairs_than_are_told_the_rest_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", 1)

    async def work(looked):
        await looked.tell(looking.incident("i1", "t0", "t1"))
        told = incident(Page(looked.analyzer), Sight(), "i1")
        assert (len(told["failing"]), told["omitted"]["failing"]) == (1, 1)

    on(tmp_path, work)


def test_nobody_is_told_of_an_incident_that_is_not_theirs(tmp_path):
    async def work(looked):
        await looked.tell(looking.incident("i2", "t1"))
        for sees, name in ((Sight(), "none"), (Sight(("t0",)), "i2")):
            with pytest.raises(Problem):
                incident(Page(looked.analyzer), sees, name)

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("base", "href"),
    [
        ("https://wiki/net", "https://wiki/net/link-loses.md"),
        ("https://wiki/?page={name}", "https://wiki/?page=link-loses"),
        ("/usr/share/doc/runbooks", "/static/runbooks/link-loses.md"),
        ("javascript:alert(1)//{name}", "/static/runbooks/link-loses.md"),
    ],
)
def test_a_runbook_is_where_the_operator_has_it_or_here(base, href):
    title = "A link loses packets"
    assert _runbook("link-loses", Runbooks(base)) == {"title": title, "href": href}
