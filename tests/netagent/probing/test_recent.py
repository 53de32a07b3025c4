# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.recent import Recent

SPAN_NS, MOST = 60, 20


def made() -> Recent[int, str]:
    return Recent(span_ns=SPAN_NS, most=MOST)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30), st.booleans()), max_size=60),
    st.integers(0, 10**12),
)
def test_what_was_put_within_a_span_is_there_and_nothing_older_than_two(
    steps: list[tuple[int, int, bool]], began_ns: int
) -> None:
    """Each step lets time pass, then puts a key, or takes it; few keys, so that all have room."""
    recent, now_ns, put_ns = made(), began_ns, dict[int, int]()
    for key, wait_ns, takes in steps:
        now_ns += wait_ns
        if takes:
            got = recent.pop(key)
            age_ns = now_ns - put_ns.pop(key, now_ns - 10**9)
            assert got == str(key) or age_ns > SPAN_NS
        else:
            recent.put(key, str(key), now_ns=now_ns)
            put_ns[key] = now_ns
            for each, at_ns in put_ns.items():
                if now_ns - at_ns < SPAN_NS:
                    assert recent.get(each) == str(each)
                if now_ns - at_ns >= 2 * SPAN_NS + 30:
                    assert recent.get(each) is None
    assert all(recent.get(key) is None for key in range(9) if key not in put_ns)


def test_no_more_are_remembered_than_there_is_room_for_and_those_are_the_newest() -> None:
    recent = made()
    for key in range(10 * MOST):
        recent.put(key, str(key), now_ns=1)
        assert len(recent) <= MOST
    assert [key for key in range(10 * MOST) if recent.get(key)] == list(range(9 * MOST, 10 * MOST))


@pytest.mark.parametrize("to_ns", [10**15, 0])
def test_a_clock_that_is_set_forgets_what_was_and_nothing_that_comes(to_ns: int) -> None:
    recent = made()
    recent.put(1, "before", now_ns=10**6)
    for key in (2, 3):
        recent.put(key, "after", now_ns=to_ns + key)
        assert recent.get(key) == "after"
    assert recent.get(1) == "before"
    recent.put(4, "after", now_ns=to_ns + 3 + SPAN_NS)
    assert recent.get(1) is None
    assert recent.get(3) == "after"
