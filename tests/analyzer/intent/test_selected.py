# SPDX-License-Identifier: Apache-2.0
import copy
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.logical import cookie_of, difference
from analyzer.intent.reading import Meaning, read_end
from analyzer.intent.selected import NORTHBOUND, SOUTHBOUND, read
from netagent.model.errors import RemoteProtocolError
from netagent.wire.walk import End, Quote
from tests.analyzer.intent.recorded import selected, told


def test_rows_become_values():
    every = selected()
    assert len(every.flows) == len(told()["southbound"]["Logical_Flow"])
    assert every.empty == {"asempty", "pgq_ip6"}
    assert {each.chassis for each in every.bindings if each.port == "p1-0"} == {"h1"}
    assert set(every.owners.values()) >= {"ACL quarantine", "port p3-0", "load balancer lb0"}
    shared = [flow for flow in every.flows if len(flow.datapaths) > 1]
    assert shared


def test_the_columns_that_are_asked_for_are_those_that_were_recorded():
    for tables, name in ((SOUTHBOUND, "southbound"), (NORTHBOUND, "northbound")):
        for table, columns in tables.items():
            for row in told()[name][table]:
                assert set(columns) <= row.keys()


@given(st.data())
def test_rows_that_are_not_ovns_are_refused_or_read(data):
    tables = copy.deepcopy({t: rows[:2] for t, rows in told()["southbound"].items()})
    table = data.draw(st.sampled_from([t for t, rows in tables.items() if rows]))
    column = data.draw(st.sampled_from(sorted(tables[table][0])))
    tables[table][0][column] = data.draw(
        st.none() | st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
    )
    try:
        found = read(tables, {})
    except RemoteProtocolError:
        return
    assert len(found.flows) == len(tables["Logical_Flow"])


@st.composite
def colliding(draw):
    """Return rows of both databases of which several may begin with the same 32 bits."""
    begins = st.sampled_from(["00000000", "0000000a", "deadbeef"])
    found = []
    for name in ("southbound", "northbound"):
        tables = copy.deepcopy({t: rows[:3] for t, rows in told()[name].items()})
        number = 0
        for rows in tables.values():
            for row in rows:
                number += 1
                if draw(st.booleans()):
                    row["_uuid"] = ["uuid", f"{draw(begins)}-0000-0000-0000-{number:012x}"]
        found.append(tables)
    return found


@given(colliding())
def test_a_cookie_that_several_rows_have_is_nobodys(databases):
    """Whatever rows begin with the same 32 bits, no wrong one is named and no flow is accused."""
    southbound, northbound = databases
    every = read(southbound, northbound)
    counts = Counter(cookie_of(row["_uuid"][1]) for rows in southbound.values() for row in rows)
    hints = Counter(row["_uuid"][1][:8] for rows in northbound.values() for row in rows)
    explainer = every.explainer()
    for flow in every.flows:
        text, cookie = explainer.explain(flow.cookie), flow.cookie
        assert ("several rows" in text) == bool(cookie and counts[cookie] > 1)
        assert cookie or text == "fixed part of the pipeline"
        quote = Quote(bridge="br-int", table=0, priority=0, cookie=cookie, text="drop")
        end = End(
            header="metadata=0x1,reg15=0x1", kind="dropped", bridge="br-int", table=0, reason="",
            flow=quote,
        )  # fmt: skip
        reading = read_end(end, explainer, every.host("h1"), (), ports={})
        assert reading.flow is None or (reading.flow == flow and counts[cookie] == 1)
        if cookie and counts[cookie] > 1:
            assert reading.meaning is Meaning.UNKNOWN
    assert all(hints[hint] == 1 for hint in every.owners)
    here = every.host("h1")
    installed = Counter(
        (flow.cookie, here.datapaths[d])
        for flow in every.flows
        for d in flow.datapaths & here.datapaths.keys()
    )
    told_of = difference(every.flows, here, installed, every.others)
    assert (told_of.missing, told_of.stale) == ((), ())
