# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.shares import Shares

S = 10**9


def taken(shares, wishes, seconds):
    """Return how many tokens each took that wishes so many a second, a millisecond at a time."""
    got, due = dict.fromkeys(wishes, 0), dict.fromkeys(wishes, 0.0)
    for ms in range(1, 1000 * seconds + 1):
        for who, wish in wishes.items():
            due[who] += wish / 1000
            while due[who] >= 1:
                due[who] -= 1
                got[who] += shares.take(who, now_ns=ms * S // 1000)
    return got


def shares_of(rate, count):
    made = Shares(rate, now_ns=0)
    for who in range(count):
        made.join(who, now_ns=0)
    return made


def test_one_that_is_flooded_leaves_the_others_theirs():
    got = taken(shares_of(1_600, 8), {0: 20_000, **dict.fromkeys(range(1, 8), 80)}, 3)
    assert all(got[who] >= 3 * 80 - 1 for who in range(1, 8))
    assert got[0] + sum(got[who] for who in range(1, 8)) <= 4 * 1_600 + 8


def test_what_others_do_not_need_is_left_to_one():
    assert taken(shares_of(1_600, 8), {0: 700}, 3)[0] >= 3 * 700 - 1


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 3_000), max_size=6), st.integers(10, 2_000)
)
def test_together_they_take_no_more_than_the_rate_and_each_its_part(wishes, rate):
    got = taken(shares_of(rate, 6), wishes, 1)
    assert sum(got.values()) <= 2 * rate + 12
    for who, wish in wishes.items():
        assert got[who] >= min(wish, int(rate / 12)) - 1


def test_who_leaves_leaves_a_part():
    shares = shares_of(120, 2)
    shares.leave(1, now_ns=0)
    got = taken(shares, {0: 1_000, 1: 1_000}, 1)
    assert got[0] >= 60 + 59
    assert sum(got.values()) <= 241
