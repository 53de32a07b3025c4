# SPDX-License-Identifier: Apache-2.0
from contextlib import nullcontext
from dataclasses import replace as replace_table
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.intake import paths
from analyzer.intake.paths import MAX_SINCE_NS, NOWHERE, PathBase, paths_of
from netagent.collect.paths import PathsToSay, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.endpoint import MAX_TEXT
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS
from netagent.model.window import Window
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Health, Summary

FLOW = FlowId(EndpointId("a", 0), EndpointId("d", 0), 40000)
TRACED = st.builds(
    TracedPath,
    st.builds(FlowId, *[st.sampled_from([FLOW.source, FLOW.target])] * 2, st.just(1)),
    reply=st.booleans(),
    outer_port=st.integers(1, 2),
    hops=st.sampled_from([(), *product("xy", repeat=1), *product("xy", repeat=2)]),
)


def summary_of(*traced, whole_ns=0):
    made = WindowTally(large_class=2).close(
        Window(9, 5), host="h", instance="i", findings=(), health=Health(),
        paths=PathsToSay(traced, whole_ns),
    )  # fmt: skip
    return decode(encode(made), Summary)


def rows_of(*traced):
    table = paths_of(summary_of(*traced))
    return table.rows(np.arange(len(table)))


def test_paths_come_back_as_they_were_traced():
    traced = TracedPath(FLOW, reply=True, outer_port=51000, hops=("leaf", "", "leaf2"))
    (row,) = rows_of(traced)
    assert (row.flow, row.reply, row.outer_port, row.hops) == (FLOW, True, 51000, traced.hops)


@pytest.mark.parametrize(
    "change",
    [
        {"route": b"\5\0"},
        {"route": b"\5"},
        {"source": b"\2\0"},
        {"target": b"\2\0"},
        {"reply": b""},
        {"outer_port": b"\0"},
        {"whole_ns": 10},
        {"whole_ns": -1},
    ],
    ids=str,
)
def test_odd_path_columns_are_refused(change):
    summary = summary_of(TracedPath(FLOW, reply=False, outer_port=1, hops=("x",)))
    with pytest.raises(RemoteProtocolError):
        paths_of(replace(summary, paths=replace(summary.paths, **change)))


def test_a_path_longer_than_any_is_refused():
    hops = tuple(map(str, range(MAX_HOPS + 1)))
    for length, refused in ((MAX_HOPS, False), (MAX_HOPS + 1, True)):
        with pytest.raises(RemoteProtocolError) if refused else nullcontext():
            (row,) = rows_of(TracedPath(FLOW, reply=False, outer_port=1, hops=hops[:length]))
            assert len(row.hops) == length


@pytest.mark.parametrize("name", ["MAX_CROSSED", "MAX_ROUTERS"])
def test_routers_that_one_host_invents_are_bounded(name, monkeypatch):
    ways = [
        TracedPath(
            replace_table(FLOW, source_port=n), reply=False, outer_port=1, hops=("x", str(n))
        )
        for n in range(8)
    ]
    monkeypatch.setattr(paths, name, 16 if name == "MAX_CROSSED" else 9)
    assert len(rows_of(*ways)) == 8
    with pytest.raises(RemoteProtocolError, match="routers"):
        rows_of(*ways, replace_table(ways[0], hops=("x", "y")))


def test_a_router_has_no_page_for_a_name():
    for length, refused in ((MAX_TEXT, False), (MAX_TEXT + 1, True)):
        with pytest.raises(RemoteProtocolError) if refused else nullcontext():
            assert rows_of(TracedPath(FLOW, reply=False, outer_port=1, hops=("x" * length,)))


@given(st.lists(TRACED, max_size=5), st.lists(TRACED, max_size=5))
def test_a_path_is_found_wherever_another_table_says_the_same(ours, theirs):
    tables = [paths_of(summary_of(*each)) for each in (ours, theirs)]
    rows, others = (table.rows(np.arange(len(table))) for table in tables)
    found = tables[0].found_in(tables[1]).tolist()
    for at, row in zip(found, rows, strict=True):
        assert at == NOWHERE or others[at] == row
        # Who says two things of one direction is found by one of them, at least.
        twice = [each for each in others if (each.flow, each.reply) == (row.flow, row.reply)]
        assert at != NOWHERE or row not in others or len(twice) > 1
    assert tables[0].found_in(tables[0]).tolist() == list(range(len(rows)))


def test_paths_behind_one_that_is_gone_are_found_in_their_new_places():
    ways = [
        TracedPath(
            replace_table(FLOW, source_port=n), reply=False, outer_port=n, hops=("x", str(n))
        )
        for n in range(6)
    ]
    before, after = (paths_of(summary_of(*each)) for each in (ways, [*ways[2:], ways[0]]))
    assert after.found_in(before).tolist() == [2, 3, 4, 5, 0]
    assert before.found_in(after).tolist() == [4, NOWHERE, 0, 1, 2, 3]


@given(st.lists(TRACED, max_size=4), st.lists(st.lists(TRACED, max_size=4), max_size=4))
def test_what_is_laid_over_the_same_paths_is_found_as_by_all_rows(base, windows):
    unique = {(each.flow, each.reply): each for each in base}
    laid = PathBase(paths_of(summary_of(*unique.values())))
    before = laid.paths
    for every in windows:
        # An agent says of each direction once, and only what differs.
        news = {(e.flow, e.reply): e for e in every if unique.get((e.flow, e.reply)) != e}
        table = laid.with_news(paths_of(summary_of(*news.values())))
        found, slowly = laid.found(table, before), table.found_in(before)
        rows, others = (each.rows(np.arange(len(each))) for each in (table, before))
        assert (found == NOWHERE).tolist() == (slowly == NOWHERE).tolist()
        assert all(others[at] == row for at, row in zip(found, rows, strict=True) if at != NOWHERE)
        before = table


def as_dict(table):
    rows = table.rows(np.arange(len(table)))
    return {(row.flow, row.reply): (row.outer_port, row.hops) for row in rows}


@given(st.lists(TRACED, max_size=6), st.lists(TRACED, max_size=6))
def test_news_take_the_places_of_what_they_change(base, news):
    unique = list({(each.flow, each.reply): each for each in base}.values())
    before, later = (paths_of(summary_of(*each)) for each in (unique, news))
    found = PathBase(before).with_news(later)
    assert as_dict(found) == as_dict(before) | as_dict(later)
    assert len(found) == len(as_dict(found))
    assert list(as_dict(found))[: len(before)] == list(as_dict(before))


def test_more_endpoints_than_a_column_can_number_are_not_joined():
    def of(name, count):
        ends = [EndpointId(f"{name}{n}", 0) for n in range(count)]
        return paths_of(
            summary_of(
                *(
                    TracedPath(FlowId(a, b, 1), reply=False, outer_port=1, hops=("x",))
                    for a, b in zip(ends[::2], ends[1::2], strict=True)
                )
            )
        )

    assert PathBase(of("a", 4)).with_news(of("b", 1 << 16)) is None
    assert len(PathBase(of("a", 4)).with_news(of("b", 4))) == 4


def test_news_are_not_joined_to_more_paths_than_a_host_has(monkeypatch):
    there, back = (
        paths_of(summary_of(TracedPath(FLOW, reply=reply, outer_port=1, hops=("x",))))
        for reply in (False, True)
    )
    monkeypatch.setattr("analyzer.intake.paths.MAX_ROWS", 1)
    assert len(PathBase(there).with_news(there)) == 1
    assert PathBase(there).with_news(back) is None


def test_news_that_are_said_again_are_laid_once():
    def said(port, hops):
        return summary_of(TracedPath(FLOW, reply=False, outer_port=port, hops=hops))

    laid = PathBase(paths_of(said(1, ("x",))))
    news, others = said(1, ("y",)), said(2, ("y",))
    first, again = (laid.with_news(paths_of(news)) for _ in range(2))
    assert again is first
    assert as_dict(first) == {(FLOW, False): (1, ("y",))}
    for each in (others, said(2, ("z",)), news):  # another port, another way, and back
        assert as_dict(laid.with_news(paths_of(each))) == as_dict(paths_of(each))


def test_news_that_were_too_many_are_so_again(monkeypatch):
    there, back = (
        summary_of(TracedPath(FLOW, reply=reply, outer_port=1, hops=("x",)))
        for reply in (False, True)
    )
    laid = PathBase(paths_of(there))
    monkeypatch.setattr("analyzer.intake.paths.MAX_ROWS", 1)
    assert [laid.with_news(paths_of(back)) for _ in range(2)] == [None, None]


def test_a_host_that_names_a_route_twice_keeps_its_numbers():
    paths = [TracedPath(FLOW, reply=False, outer_port=1, hops=("x",))]
    base = paths_of(summary_of(*paths))
    twice = replace_table(base, routes=(("y",), ("y",), ("x",)), route=np.array([2], np.uint16))
    news = TracedPath(FlowId(FLOW.target, FLOW.source, 1), reply=True, outer_port=1, hops=("z",))
    found = PathBase(twice).with_news(paths_of(summary_of(news)))
    assert list(as_dict(found).values()) == [(1, ("x",)), (1, ("z",))]


def test_a_host_that_names_a_path_twice_is_no_bug_and_changes_no_other():
    base = paths_of(summary_of(*[TracedPath(FLOW, reply=False, outer_port=1, hops=("x",))] * 3))
    back = FlowId(FLOW.target, FLOW.source, 1)
    for hops in (("y",), ("z",)):
        news = [TracedPath(each, reply=False, outer_port=1, hops=hops) for each in (FLOW, back)]
        found = PathBase(base).with_news(paths_of(summary_of(*news)))
        rows = [row.hops for row in found.rows(np.arange(len(found)))]
        assert rows == [hops, ("x",), ("x",), hops]


def test_what_differs_from_paths_of_long_ago_is_refused():
    summary = summary_of(TracedPath(FLOW, reply=False, outer_port=1, hops=("x",)), whole_ns=9)
    assert paths_of(replace(summary, start_ns=9 + MAX_SINCE_NS)).whole_ns == 9
    with pytest.raises(RemoteProtocolError, match="long ago"):
        paths_of(replace(summary, start_ns=10 + MAX_SINCE_NS))


def test_more_paths_than_a_host_has_are_refused(monkeypatch):
    monkeypatch.setattr("analyzer.intake.paths.MAX_ROWS", 1)
    traced = [TracedPath(FLOW, reply=reply, outer_port=1, hops=("x",)) for reply in (True, False)]
    assert len(rows_of(traced[0])) == 1
    with pytest.raises(RemoteProtocolError, match="2 paths"):
        rows_of(*traced)
