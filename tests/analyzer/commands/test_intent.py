# SPDX-License-Identifier: Apache-2.0
"""What the command says of what should be."""

import argparse
import json

import pytest

from analyzer.commands import intent
from tests.analyzer.test_cli import fits

SECOND = 10**9
NOON_NS = 1_795_780_800 * SECOND


def port(name, chassis="h1", moves=0, **fields):
    placement = {"port": name, "chassis": chassis, "is_up": bool(chassis), "encapsulation": "",
                 "since_ns": NOON_NS, "moves": moves}  # fmt: skip
    plain = {"name": name, "network": "ls0", "addresses": ["10.0.0.1"], "macs": ["02:"],
             "is_enabled": True}  # fmt: skip
    return {"name": name, "port": plain, "placement": placement, **fields}


def chassis(name, installed=7, **fields):
    return {
        "name": name, "hostname": f"node-{name}", "is_registered": True, "installed": installed,
        "encapsulations": [{"kind": "geneve", "address": "10.1.0.1"}], "installed_ns": NOON_NS,
        **fields,
    }  # fmt: skip


def answer(*ports, **fields):
    return {
        "source": "ovn", "wall_ns": NOON_NS, "away": {}, "next": None, "ports": list(ports),
        "ladder": {"asked": 7, "translated": 7, "asked_ns": NOON_NS},
        "databases": [
            {"name": "northbound", "remote": "ssl:10.9.0.1:6641", "lacks": []},
            {"name": "southbound", "remote": "ssl:10.9.0.2:6642", "lacks": []},
        ],
        "chassis": [chassis("h1"), chassis("h2", encapsulations=[])], **fields,
    }  # fmt: skip


def test_where_all_is_well_it_says_where_it_was_read_and_who_has_how_many():
    text = fits(intent.report(answer(port("p1"), port("p2"), port("p3", "")), ports=False))
    assert text.splitlines() == [
        "ovn, read 12:00:00: 3 ports, 2 placed, on 2 chassis",
        "northbound from ssl:10.9.0.1:6641",
        "southbound from ssl:10.9.0.2:6642",
        "generation 7 asked since 12:00:00, 7 translated, installed on 2 of 2 chassis",
        "",
        "CHASSIS  HOST     TUNNELS   INSTALLED  SAID      PORTS",
        "h1       node-h1  10.1.0.1  7          12:00:00  2",
        "h2       node-h2  -         7          12:00:00  0",
    ]


def test_what_is_away_lacks_or_lags_is_said():
    lagging = [chassis(f"h{number}", 6) for number in range(12)]
    lagging.append(chassis("ghost", None, is_registered=False, installed_ns=0))
    told = answer(
        away={"southbound": "ssl:10.9.0.2:6642: connection refused " + 9 * "or something else "},
        chassis=lagging,
        ladder={"asked": 7, "translated": None, "asked_ns": NOON_NS},
    )
    told["databases"][0]["lacks"] = ["Logical_Switch_Port.enabled"]
    text = fits(intent.report(told, ports=False))
    assert "southbound is away: ssl:10.9.0.2:6642: connection refused" in text
    assert "its server lacks Logical_Switch_Port.enabled" in text
    assert "- translated, installed on 0 of 13 chassis" in text
    assert "and 5 more" in text
    assert "ghost    node-ghost  10.1.0.1  unregistered  -" in text


def test_ports_are_listed_with_what_became_of_them():
    disabled = port("p3")
    disabled["port"]["is_enabled"] = False
    told = answer(
        port("p1"), port("p2", moves=9), disabled, port("p4", ""), port("p5", placement=None),
        port("p6", port=None),
    )  # fmt: skip
    lines = fits(intent.report(told, ports=True)).splitlines()
    assert lines[5:] == [
        "STATE         SINCE     ADDRESS   HOST     PORT  NETWORK",
        "up            12:00:00  10.0.0.1  node-h1  p1    ls0",
        "moved 9x      12:00:00  10.0.0.1  node-h1  p2    ls0",
        "disabled      12:00:00  10.0.0.1  node-h1  p3    ls0",
        "down          12:00:00  10.0.0.1  -        p4    ls0",
        "untranslated  -         10.0.0.1  -        p5    ls0",
        "unasked       12:00:00  -         node-h1  p6    -",
    ]
    long = fits(intent.report(answer(port("x" * 90)), ports=True)).splitlines()[-1]
    assert long.startswith("up     12:00:00  10.0.0.1  node-h1  xxx")


def test_only_ports_of_a_chassis_or_host_or_those_nowhere():
    told = answer(port("p1"), port("p2", "h2"), port("p3", ""))

    def names(**options):
        listed = list(intent.report(told, ports=True, **options))
        return [line.split()[4] for line in listed[listed.index("") + 2 :]]

    assert names(wanted="h1") == names(wanted="node-h1") == ["p1"]
    assert names(unplaced=True) == ["p3"]
    assert list(intent.report(told, "nobody", ports=True))[-1] == "no ports"
    assert list(intent.report(told, "nobody", ports=False))[-1] == "no chassis"


def test_nothing_read_so_far_is_no_error():
    told = answer(
        wall_ns=0, chassis=[], away={"northbound": "not read", "southbound": "not read"},
        ladder={"asked": None, "translated": None, "asked_ns": 0},
    )  # fmt: skip
    assert fits(intent.report(told, ports=False)).startswith("ovn, read -: 0 ports, 0 placed")


@pytest.mark.parametrize(("away", "status"), [({}, 0), ({"southbound": "refused"}, 1)])
def test_what_is_away_is_the_exit_status(monkeypatch, capsys, away, status):
    told = answer(port("p1"), away=away)

    class Answering:
        def __init__(self, _args):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def all(self, path, name, **query):
            assert (path, name, query) == ("/v1/intent", "ports", {"source": None})
            return told

    monkeypatch.setattr(intent, "Connection", Answering)
    parser = argparse.ArgumentParser()
    intent.add_arguments(parser)
    assert intent.run(parser.parse_args(["--json"])) == status
    assert json.loads(capsys.readouterr().out) == told
    assert intent.run(parser.parse_args(["--unplaced"])) == status
    assert "no ports" in capsys.readouterr().out


def zone(host, away=(), **ladder):
    said = {"asked": 7, "translated": 7, "asked_ns": NOON_NS, **ladder}
    return {"zone": host, "wall_ns": NOON_NS, "away": dict(away), "ladder": said}


def test_of_zones_it_says_how_many_there_are_and_which_are_away_or_behind():
    told = answer(
        port("p1", zone="h1"), port("p1", "h2", zone="h2"),
        chassis=[chassis(f"h{n}", 6 if n == 3 else 7, zone=f"h{n}") for n in (1, 2, 3)],
        zones=[zone("h1"), zone("h2", translated=5), zone("h3"), zone("h4", {"northbound": "x"})],
        away={"h4": "northbound: its agent: refused"},
        databases=[{"name": "southbound of h1", "remote": "agent of h1", "lacks": ["Encap.ip"]}],
    )  # fmt: skip
    del told["ladder"]
    text = fits(intent.report(told, ports=False))
    assert text.splitlines()[:7] == [
        "ovn, read 12:00:00: 2 ports, 2 placed, on 3 chassis",
        "read through the agents of 4 hosts, 1 away",
        "  h4 is away: northbound: its agent: refused",
        "  southbound of h1 lacks Encap.ip",
        "  behind: h2 7 asked, 5 translated, 7 there, h3 7 asked, 7 translated, 6 there",
        "",
        "CHASSIS  HOST     TUNNELS   INSTALLED  SAID      PORTS",
    ]


def test_many_zones_that_are_away_are_counted():
    away = {f"h{number:02}": "northbound: x" for number in range(20)}
    told = answer(zones=[zone(host) for host in away], away=away, databases=[], chassis=[])
    assert "  and 12 more" in fits(intent.report(told, ports=False)).splitlines()


# --- how a host differs ---------------------------------------------------------------------------


FOUND = {
    "missing": [], "fewer": [], "ports": [], "stale": [], "unclear": [], "more": 0, "compared": 265,
    "compared_ports": 12, "several": 40, "is_remembered": False,
    "alone": 3,
}  # fmt: skip
BELOW = {
    "name": "OpenFlow, datapath, hardware", "state": "not compared here",
    "see": "on gpu-0417: netagent flows layers", "incidents": [],
}  # fmt: skip
MISSING = {
    "cookie": 0xAF7EE434, "stage": "ls_in_l2_lkup", "pipeline": "ingress", "logical_table": 25,
    "table": 33, "priority": 50, "match": "eth.dst == 02:00:00:00:00:03", "networks": ["rail0"],
    "owner": "port train.a.rail0_train-a_train-a-1",
}  # fmt: skip
LACKING = {"port": "train-a-1", "cookie": 7, "tables": [64, 65], "is_here": False}
STALE = {"cookie": 9, "tables": [8, 33], "flows": 2}
FEWER = {
    "cookie": 4, "stage": "ls_out_acl", "match": "tcp", "owner": "ACL web", "had": 6, "has": 5,
}  # fmt: skip
UNCLEAR = {"cookie": 3, "stage": "ls_out_acl", "match": "ip4 &&", "owner": "ACL odd"}


def differing(cannot="", notes=(), first=None, **found):
    compared = {
        "host": "gpu-0417", "wall_ns": NOON_NS, "chassis": "gpu-0417", "bridge": "br-int",
        "cannot": cannot, "notes": list(notes), "flows": 889, "fixed": 33, "found": FOUND | found,
    }  # fmt: skip
    state = "cannot tell" if cannot else "differs" if first else "agrees"
    layers = [{"name": "intent, OpenFlow", "state": state}, BELOW]
    return {"compared": compared, "layers": layers, "first": first}


def test_a_host_that_differs_in_nothing_says_what_was_not_compared():
    assert fits(intent.difference(differing())).splitlines() == [
        "gpu-0417, compared 12:00:00: 265 logical flows, 12 ports",
        "not compared: 33 flows without a cookie, which are fixed; whether all flows are",
        "  there of 40 logical ones with several; 3 ports that are like too few others",
        "",
        "intent, OpenFlow: agrees",
        "OpenFlow, datapath, hardware: not compared here",
        "  look on gpu-0417: netagent flows layers",
        "first that differs, as far as is known here: none",
    ]


def test_what_differs_is_told_with_whose_it_is():
    told = differing(
        first="intent, OpenFlow", missing=[MISSING, MISSING | {"stage": "", "table": -1}],
        fewer=[FEWER], ports=[LACKING], stale=[STALE], unclear=[UNCLEAR], more=4,
        notes=["it is cut off"], is_remembered=True,
    )  # fmt: skip
    told["layers"][1] = BELOW | {"incidents": [{"id": "i1-2", "component": "flow g/br/table=33"}]}
    text = fits(intent.difference(told))
    assert "whether all flows are there" not in text
    for line in (
        "  but it is cut off",
        "missing: ls_in_l2_lkup, OpenFlow table 33, for port",
        "missing: ingress 25, for port train.a.rail0_train-a_train-a-1",
        "  eth.dst == 02:00:00:00:00:03 (priority 50) of rail0",
        "  cookie 0xaf7ee434",
        "missing: flows of another host's port train-a-1 in OpenFlow table 64, 65",
        "fewer: ls_out_acl has 5 flows and had 6, for ACL web",
        "stale: 2 flows of cookie 0x9 in table 8, 33: nothing asks for them",
        "cannot tell: ls_out_acl, for ACL odd: ip4 &&",
        "and 4 more",
        "  incident i1-2: flow g/br/table=33",
        "first that differs, as far as is known here: intent, OpenFlow",
    ):
        assert line in text.splitlines(), (line, text)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (differing(), 0),
        (differing(first="intent, OpenFlow", stale=[STALE]), 1),
        (differing(cannot="agent of gpu-0417: refused"), 1),
        (differing(unclear=[UNCLEAR]), 1),
    ],
)
def test_what_differs_or_cannot_be_told_is_the_exit_status(monkeypatch, capsys, told, status):
    class Answering:
        def __init__(self, _args):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def get(self, path, *, wait_s):
            assert (path, wait_s) == ("/v1/intent/gpu-0417%2F/difference", 60.0)
            return told

    monkeypatch.setattr(intent, "Connection", Answering)
    parser = argparse.ArgumentParser()
    intent.add_arguments(parser)
    assert intent.run(parser.parse_args(["diff", "gpu-0417/", "--json"])) == status
    assert json.loads(capsys.readouterr().out) == told
    assert intent.run(parser.parse_args(["diff", "gpu-0417/"])) == status
    assert "gpu-0417" in capsys.readouterr().out
    for odd in (["diff"], ["diff", "h0", "--source", "acme"], ["diff", "h0", "--ports"]):
        with pytest.raises(SystemExit):
            intent.run(parser.parse_args(odd))
