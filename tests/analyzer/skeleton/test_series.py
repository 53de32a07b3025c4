# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.skeleton import series as s
from netagent.model.errors import RemoteProtocolError


def series(rate=((1.0, 2.0), (3.0, 4.0)), tick_s=1.0, host=(0, 1), rail=(0, 0), names=()):
    return s.TrafficSeries(np.asarray(rate), tick_s, np.asarray(host), np.asarray(rail), names)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": (1.0, 2.0)}, "1 dimensions"),
        ({"host": (0, 1, 2)}, "host is not one number"),
        ({"rail": (0,)}, "rail is not one number"),
        ({"names": ("a",)}, "1 names for 2 endpoints"),
        ({"tick_s": 0.0}, "tick_s"),
        ({"tick_s": float("nan")}, "tick_s"),
        ({"rate": ((1.0, -1.0), (1.0, 1.0))}, "negative"),
        ({"rate": ((1.0, np.inf), (1.0, 1.0))}, "infinite"),
        ({"host": (0, 0)}, "two endpoints are on one rail"),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong, said):
    with pytest.raises(RemoteProtocolError, match=said):
        series(**wrong)


def test_two_containers_may_be_on_one_rail_of_one_host():
    def made(*container, host=(3, 3, 4), rail=(0, 0, 0)):
        numbers = (np.asarray(each, np.int64) for each in (host, rail))
        return s.TrafficSeries(np.ones((3, 2)), 1.0, *numbers, container=np.asarray(container))

    both = made(7, 9, 7)
    assert both.machine.tolist() == [0, 1, 2]  # the same number on another host is another one
    assert both.shared(both.host)
    assert not both.shared(both.machine)
    assert series().machine.tolist() == [0, 1]
    with pytest.raises(RemoteProtocolError, match="of one container on one rail of one host"):
        made(7, 7, 7)
    with pytest.raises(RemoteProtocolError, match="container is not one number"):
        made(7, 9)


def test_unknown_ticks_are_no_error():
    assert len(series(rate=((np.nan, 1.0), (1.0, np.nan)))) == 2


@pytest.mark.parametrize("hosts", [2, 5, 64])
def test_the_basic_list_has_as_many_pairs_as_the_paper_says(hosts):
    rows = np.arange(8 * hosts)
    edges = s.basic_edges(rows // 8, rows % 8)
    assert 2 * len(edges) == 8 * hosts * (hosts - 1)


PLACES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), unique=True, max_size=12)


@given(PLACES)
def test_the_basic_list_is_that_of_its_definition(places):
    host, rail = (np.asarray([p[n] for p in places], np.int64) for n in (0, 1))
    expected = [
        [one, two]
        for one in range(len(places))
        for two in range(one + 1, len(places))
        if rail[one] == rail[two] and host[one] != host[two]
    ]
    assert s.basic_edges(host, rail).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_edges_are_listed_once_and_sorted(pairs):
    made = s.unique_edges([np.asarray(pairs, np.int64).reshape(-1, 2)])
    assert [tuple(edge) for edge in made.tolist()] == sorted({(min(p), max(p)) for p in pairs})
