# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from analyzer.localize.sentences import sentences
from analyzer.localize.validating.judge import (
    MAX_LINE,
    MAX_NAME,
    MAX_QUOTED,
    SLOWS,
    STATED,
    accused,
    evidence,
    honest,
)
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, flow_table, link, rnic, switch, tunnel, vswitch
from netagent.wire.validate import MAX_FINDINGS, MAX_TEXT, Inconsistency, Quoted, ValidateReply

A, B = EndpointId("a", 0), EndpointId("b", 0)
END = Endpoint(A, "t", "h0", "10.0.0.10", "", "172.30.0.1", "rnic3", "br-int", "p")
TABLE = flow_table("h0", "br-int", 10)
QUOTES = tuple(
    Quoted(what=what, entry=f"{what} entry") for what in ("intent", "datapath", "hardware")
)


def found(check, **changes):
    one = Inconsistency(
        check=check, severity="warning", component=TABLE, text="they differ", quotes=QUOTES
    )
    return structs.replace(one, **changes)


def reply(*findings, **changes):
    plain = ValidateReply(
        host="h0", wall_ns=1, looks=3, flows=2, judged=2, in_hardware=1, findings=findings
    )
    return structs.replace(plain, **changes)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_flow_that_no_table_bears_out_accuses_the_table_that_is_quoted(is_slow):
    one = accused(reply(found("stale-megaflow")), END, is_slow=is_slow)
    assert one.component == TABLE


@pytest.mark.parametrize("check", [*STATED[1:], *SLOWS])
def test_what_the_rnic_holds_otherwise_accuses_the_rnic_of_the_endpoint(check):
    """The RNIC is the one that the host registered, whatever the answer says."""
    one = accused(reply(found(check, component=vswitch("h0"))), END, is_slow=True)
    assert one.component == rnic("h0", "rnic3")
    lossy = accused(reply(found(check)), END, is_slow=False)
    assert (lossy is None) == (check in SLOWS)  # software forwards: it loses nothing


@pytest.mark.parametrize(
    "one",
    [
        found("stale-megaflow", severity="note"),
        found("stale-megaflow", quotes=()),
        found("in-software", quotes=QUOTES[:2]),
        found("rdma-in-software"),
        found("offload-order"),
        found("shadowed-flow"),
        found("missing"),
        found("a check of a later version"),
        found("not-offloaded", quotes=(Quoted(what="datapath", entry="userspace(pid=1)"),)),
        found(
            "not-offloaded",
            quotes=(Quoted(what="datapath", entry="userspace(pid=1)"), *QUOTES[::2]),
        ),
    ],
    ids=lambda one: f"{one.check}-{one.severity}",
)
def test_what_may_be_so_by_design_accuses_nobody(one):
    assert accused(reply(one), END, is_slow=True) is None


def test_what_states_more_comes_first():
    told = reply(found("in-software"), found("missing-filter", text="gone"))
    assert accused(told, END, is_slow=True).finding.text == "gone"


@pytest.mark.parametrize(
    "component",
    [
        flow_table("h1", "br-int", 0),
        vswitch("h1"),
        tunnel("h1", "vxlan0"),
        rnic("h0", "rnic0"),
        rnic("h1", "rnic0"),
        switch("h0"),
        link("h0", "spine-0"),
        Component(Kind.CONTAINER, "a"),
        Component(Kind.HOST, "h0"),
        flow_table("h0", "b" * MAX_NAME, 0),
    ],
    ids=lambda each: str(each)[:30],
)
def test_a_host_that_speaks_of_more_than_its_own_tables_is_not_believed(component):
    assert not honest(reply(found("stale-megaflow", component=component)), "h0")


def test_a_host_that_speaks_of_its_own_tables_is_believed():
    own = (TABLE, vswitch("h0"), tunnel("h0", "vxlan0"))
    told = reply(*(found("stale-megaflow", component=each) for each in own))
    assert honest(told, "h0")
    assert not honest(told, "h1")
    assert not honest(structs.replace(told, host="h1"), "h0")


def test_evidence_says_how_much_was_compared_and_quotes_what_differs():
    said = sentences([evidence((A, B), reply(found("stale-megaflow")))])
    assert said[0] == (
        "flow tables of h0, a/rail0 -> b/rail0 and back: 2 of 2 flows of the datapath "
        "(1 offloaded) held against OpenFlow's; what is wrong:"
    )
    assert said[1] == "  stale-megaflow (flow h0/br-int/table=10): they differ"
    assert "  datapath: datapath entry" in said
    (clean,) = sentences([evidence((A, B), reply(found("missing", severity="note")))])
    assert clean.endswith("held against OpenFlow's; they agree")
    (nothing,) = sentences([evidence((A, B), reply(flows=0, judged=0, in_hardware=0))])
    assert nothing.endswith("0 of 0 flows of the datapath held against OpenFlow's")


def test_of_a_long_entry_its_beginning_and_its_end_are_quoted():
    entry = "ufid:1" + "m" * MAX_LINE + "actions:3"
    told = reply(found("stale-megaflow", quotes=(Quoted(what="datapath", entry=entry),)))
    line = evidence((A, B), told).values["lines"][1]
    assert line.startswith("datapath: ufid:1")
    assert line.endswith("actions:3")


@given(
    st.lists(
        st.builds(
            found,
            st.sampled_from([*STATED, *SLOWS, "missing"]),
            severity=st.sampled_from(["warning", "note"]),
            text=st.text(max_size=MAX_TEXT),
        ),
        max_size=MAX_FINDINGS,
    ),
    st.integers(0, 1 << 31),
)
def test_evidence_is_bounded_whatever_a_host_says(findings, omitted):
    said = evidence((A, B), reply(*findings, omitted=omitted))
    lines = said.values["lines"]
    assert len(lines) <= MAX_QUOTED * (1 + len(QUOTES)) + 1
    assert all(len(line) <= MAX_LINE + 3 for line in lines)


@given(st.sampled_from([*STATED, *SLOWS]), st.booleans(), st.text(max_size=20))
def test_only_parts_of_the_host_of_the_endpoint_are_accused(check, is_slow, host):
    end = replace(END, host="h0")
    component = flow_table(host, "br-int", 0)
    told = reply(found(check, component=component))
    one = accused(told, end, is_slow=is_slow) if honest(told, "h0") else None
    assert one is None or one.component.name.partition("/")[0] == "h0"
