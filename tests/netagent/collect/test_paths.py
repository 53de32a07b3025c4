# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.paths import WHOLE_NS, PathNews, PathsToSay, TracedPath
from netagent.model.ids import EndpointId, FlowId

WIDTH_NS = 5_000_000_000
START_NS = 1_800_000_000 * 10**9
A, B = EndpointId("a", 0), EndpointId("b", 0)
PATHS = [
    TracedPath(FlowId(A, B, port), reply=reply, outer_port=1, hops=("leaf", "spine", "leaf2"))
    for port in range(3)
    for reply in (False, True)
]
OTHER = replace(PATHS[2], hops=("leaf", "spine2", "leaf2"))


def begun():
    """Return news in the first window of a minute, in which all was said, and its start."""
    news, start_ns = PathNews("h0"), START_NS
    while news.of(PATHS, start_ns=start_ns).whole_ns or start_ns == START_NS:
        start_ns += WIDTH_NS
    return news, start_ns


def test_all_paths_are_said_once_a_minute():
    news = PathNews("h0")
    said = [news.of(PATHS, start_ns=START_NS + n * WIDTH_NS) for n in range(60)]
    whole = [n for n, each in enumerate(said) if not each.whole_ns]
    assert whole[0] == 0
    assert {b - a for a, b in pairwise(whole[1:])} == {WHOLE_NS // WIDTH_NS}
    assert all(each.rows == (tuple(PATHS) if not each.whole_ns else ()) for each in said)


def test_hosts_do_not_say_all_in_one_and_the_same_window():
    def second(host):
        news = PathNews(host)
        said = (news.of(PATHS, start_ns=START_NS + n * WIDTH_NS).whole_ns for n in range(13))
        return [n for n, whole_ns in enumerate(said) if not whole_ns][1]

    assert len({second(f"h{n}") for n in range(40)}) > 6


def test_what_differs_is_said_until_all_is_said_again():
    news, start_ns = begun()
    paths = [OTHER if each is PATHS[2] else each for each in PATHS]
    for n in (1, 2):
        assert news.of(paths, start_ns=start_ns + n * WIDTH_NS) == PathsToSay((OTHER,), start_ns)
    assert news.of(PATHS, start_ns=start_ns + 3 * WIDTH_NS) == PathsToSay((), start_ns)


def test_a_clock_set_back_has_all_said_anew():
    news, start_ns = begun()
    assert news.of(PATHS, start_ns=start_ns - WIDTH_NS) == PathsToSay(tuple(PATHS))


def test_a_path_that_is_gone_has_nothing_said_until_all_is_said_again():
    news, start_ns = begun()
    said = [news.of(PATHS[1:], start_ns=start_ns + n * WIDTH_NS) for n in range(1, 13)]
    assert said == [*[PathsToSay((), start_ns)] * 11, PathsToSay(tuple(PATHS[1:]))]


@given(st.lists(st.dictionaries(st.integers(0, 5), st.sampled_from([None, "x", "y"])), max_size=30))
def test_whoever_lays_news_over_what_they_differ_from_has_all(windows):
    news, heard, paths = PathNews("h0"), {}, dict(enumerate(PATHS))
    for n, changes in enumerate(windows):
        for key, hop in changes.items():
            paths.pop(key, None)
            if hop is not None:
                paths[key] = replace(PATHS[key], hops=(hop,))
        start_ns = START_NS + n * WIDTH_NS
        said = news.of(paths.values(), start_ns=start_ns)
        rows = {(each.flow, each.reply): each for each in said.rows}
        if said.whole_ns:
            rows = heard[said.whole_ns] | rows
        else:
            heard[start_ns] = rows
        there = {(each.flow, each.reply): each for each in paths.values()}
        assert {key: rows[key] for key in there} == there
        # What is gone is the only other.
        assert rows.keys() == there.keys() | (
            heard[said.whole_ns].keys() if said.whole_ns else set()
        )
