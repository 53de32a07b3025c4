# SPDX-License-Identifier: Apache-2.0
"""Lists in pages."""

from hypothesis import given
from hypothesis import strategies as st

from analyzer.server.pages import page

NAMES = st.sets(st.text("abc", min_size=1, max_size=3))


def walked(lists, limit):
    """Return what a reader of successive pages sees, while the list changes between them."""
    seen, after = [], None
    for items in lists:
        found, last = page(sorted(items), lambda name: name, after, limit)
        assert len(found) <= limit
        seen += found
        if last is None:
            return seen, True
        after = last
    return seen, False


@given(names=NAMES, limit=st.integers(1, 5))
def test_the_pages_together_are_the_list(names, limit):
    assert walked([names] * (len(names) + 1), limit) == (sorted(names), True)


@given(stay=NAMES, others=st.lists(NAMES, min_size=45, max_size=45), limit=st.integers(1, 5))
def test_what_stays_is_seen_once_whatever_else_comes_and_goes(stay, others, limit):
    seen, ended = walked([stay | each for each in others], limit)
    assert ended
    assert len(seen) == len(set(seen))
    assert stay <= set(seen)
