# SPDX-License-Identifier: Apache-2.0
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.intake.table import NOBODY, joined
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window

WINDOW = Window(0, 5)
ENDS = [EndpointId(f"c{n}", 0) for n in range(4)]
HOSTS = [f"h{n}" for n in range(3)]
FLOWS = st.builds(FlowId, st.sampled_from(ENDS), st.sampled_from(ENDS), st.integers(1, 3))
PLACES = st.dictionaries(st.sampled_from(ENDS), st.sampled_from([*HOSTS, "elsewhere"]))


def rows_of(host, flows, numbers, *, told=True):
    """Return rows whose counts are the flows' numbers, each with so many entries of histogram."""
    number = np.array([numbers.number(flow) for flow in flows], np.int64)
    columns = {each.name: number.astype(np.uint32) for each in fields(WindowRows)[4:-3]}
    many = number % 3
    hist = {
        "hist_len": many.astype(np.uint16),
        "hist_bucket": np.repeat(number, many).astype(np.uint16),
        "hist_count": np.repeat(number, many).astype(np.uint32),
    }
    return WindowRows(host, "i", WINDOW, number, **columns, **(hist if told else {}))


@given(st.dictionaries(st.sampled_from(HOSTS), st.lists(FLOWS, max_size=9, unique=True)), PLACES)
def test_a_table_has_each_row_with_its_host_its_ends_and_its_histogram(reported, places):
    numbers = FlowNumbers()
    rows = {host: rows_of(host, flows, numbers) for host, flows in reported.items()}
    table = joined(WINDOW, rows, numbers)
    every = [(host, flow) for host, flows in reported.items() for flow in flows]
    assert [table.hosts[n] for n in table.host] == [host for host, _ in every]
    assert [numbers.flow(n) for n in table.rows.flow] == [flow for _, flow in every]
    assert [numbers.endpoint(n) for n in table.ends[0]] == [flow.source for _, flow in every]
    assert [numbers.endpoint(n) for n in table.ends[1]] == [flow.target for _, flow in every]
    owners, names = table.owners(places.get)
    owned = [names[n] if n != NOBODY else None for n in owners[table.ends[0]]]
    assert owned == [places.get(flow.source) for _, flow in every]
    some = table.only(table.rows.flow % 2 == 0)
    kept = [number for number in table.rows.flow.tolist() if number % 2 == 0]
    assert some.rows.sent.tolist() == some.rows.flow.tolist() == kept
    entries = [number for number in kept for _ in range(number % 3)]
    assert some.rows.hist_bucket.tolist() == some.rows.hist_count.tolist() == entries


def test_rows_that_an_earlier_version_recorded_without_histograms_have_none():
    numbers = FlowNumbers()
    flows = [FlowId(ENDS[0], end, 1) for end in ENDS[1:]]
    rows = {
        "h0": rows_of("h0", flows, numbers, told=False),
        "h1": rows_of("h1", [FlowId(ENDS[1], ENDS[0], 5)], numbers),
    }
    table = joined(WINDOW, rows, numbers)
    assert table.rows.hist_len.tolist() == [0, 0, 0, 3 % 3]
    assert len(table.rows.hist_bucket) == 0


@pytest.mark.parametrize("rows", [{}, {"h0": []}])
def test_a_window_without_rows_is_an_empty_table(rows):
    numbers = FlowNumbers()
    table = joined(WINDOW, {h: rows_of(h, f, numbers) for h, f in rows.items()}, numbers)
    assert (len(table.rows.flow), table.hosts, table.ends.shape) == (0, tuple(rows), (2, 0))
