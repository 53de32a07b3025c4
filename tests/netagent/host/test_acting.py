# SPDX-License-Identifier: Apache-2.0
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.acting import HOUR_NS, MOST_KEPT, VERSIONS, Ledger, detour
from netagent.model.errors import TooSoon
from netagent.wire.actions import HostVerb

SETS = list(chain.from_iterable(combinations(VERSIONS, n) for n in range(7)))


@pytest.mark.parametrize("before", SETS)
def test_a_detour_differs_and_keeps_what_controllers_speak(before):
    during = set(detour(before))
    spoken = set(before) or set(VERSIONS)
    assert during not in ({*before}, spoken)
    assert during <= set(VERSIONS)
    assert spoken - during <= {"OpenFlow12"}
    assert during


@given(st.lists(st.integers(0, 4 * 3600), max_size=80), st.integers(1, 6))
def test_whatever_is_asked_no_hour_has_more(instants, per_hour):
    made, begun = Ledger("h0", per_hour), []
    for number, at_s in enumerate(sorted(instants)):
        at_ns = at_s * 10**9
        try:
            made.begin(f"a{number}", HostVerb.RECOMPUTE, at_ns)
        except TooSoon:
            assert len([t for t in begun if t > at_ns - HOUR_NS]) == per_hour
        else:
            begun.append(at_ns)
        assert len([t for t in begun if t > at_ns - HOUR_NS]) <= per_hour
    assert set(made.begun) <= {f"a{n}" for n in range(len(instants))}


def test_a_clock_that_goes_back_permits_nothing_more():
    made = Ledger("h0", 1)
    made.begin("a", HostVerb.RECOMPUTE, 10 * HOUR_NS)
    with pytest.raises(TooSoon, match="1 actions within an hour, 1 at most"):
        made.begin("b", HostVerb.RECOMPUTE, 0)
    assert made.known("b") is None


def test_what_was_refused_takes_no_memory_and_what_was_begun_is_bounded():
    made = Ledger("h0", 60)
    for number in range(10 * MOST_KEPT):
        made.begin(f"a{number}", HostVerb.REINSTALL, number * HOUR_NS)
    assert len(made.begun) == MOST_KEPT
    assert made.known(f"a{10 * MOST_KEPT - 1}") is not None


def test_how_it_ended_is_kept():
    made = Ledger("h0", 1)
    made.begin("a", HostVerb.REINSTALL, 5)
    assert made.known("a").outcome is None
    made.end("a", "no answer")
    assert (made.known("a").outcome, made.known("a").wall_ns) == ("no answer", 5)
