# SPDX-License-Identifier: Apache-2.0
import copy

from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.selected import NORTHBOUND, SOUTHBOUND, read
from netagent.model.errors import RemoteProtocolError
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
