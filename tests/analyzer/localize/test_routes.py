# SPDX-License-Identifier: Apache-2.0
"""Routes by flow number, as the topology fills them in."""

import numpy as np

from analyzer.intake.flows import FlowNumbers
from analyzer.localize import routes
from analyzer.localize.routes import NO_ROUTE, RouteRows
from netagent.model.ids import EndpointId, FlowId

FLOWS = [FlowId(EndpointId("a", 0), EndpointId("b", 0), port) for port in range(3000)]


def made():
    numbers, rows = FlowNumbers(), RouteRows()
    return rows, numbers, np.asarray([numbers.number(flow) for flow in FLOWS])


def test_a_flow_is_looked_up_once_and_again_when_it_turned():
    rows, flows, numbers = made()
    assert rows.unknown(numbers, flows) == numbers.tolist()
    for number in numbers.tolist():
        rows.put(number, (rows.row(("leaf",)), rows.row(("leaf",))), 5)
    assert rows.unknown(numbers, flows) == []
    rows.turned.add(FLOWS[7])
    assert rows.unknown(numbers, flows) == [7]


def test_a_route_counts_from_the_window_after_the_one_that_showed_it():
    rows, flows, numbers = made()
    rows.unknown(numbers, flows)
    for number in numbers.tolist():
        rows.put(number, (rows.row(("x", "y")), rows.row(("y", "x"))), 5)
    rows.put(0, (NO_ROUTE, NO_ROUTE), 0)
    now = rows.settled(numbers, at_ns=5)
    assert set(now.there) == set(now.back) == {NO_ROUTE}
    later = rows.settled(numbers, at_ns=6)
    assert later.there[0] == NO_ROUTE
    assert [later.routes[n] for n in (later.there[1], later.back[1])] == [("x", "y"), ("y", "x")]


def test_routes_that_somebody_makes_up_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(routes, "LEAST_ROUTES", 10)
    rows, flows, numbers = made()
    rows.unknown(numbers, flows)
    for number in numbers.tolist():
        rows.put(number, (rows.row((f"r{number}",)), rows.row((f"s{number}",))), 5)
    assert rows.unknown(numbers, flows) == []
    rows.row(("one", "more"))
    before = rows.settled(numbers, at_ns=6)
    assert rows.unknown(numbers, flows) == numbers.tolist()
    assert rows.row(("new",)) == 0
    assert [before.routes[n] for n in before.there[:2]] == [("r0",), ("r1",)]


def test_a_turned_flow_that_nobody_numbers_any_more_is_passed_over():
    rows, flows, numbers = made()
    rows.turned.add(FlowId(EndpointId("gone", 0), EndpointId("b", 0), 1))
    assert len(rows.unknown(numbers, flows)) == len(numbers)
