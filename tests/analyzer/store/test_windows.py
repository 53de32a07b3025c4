# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.store.windows import slices


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9))), st.integers(1, 20))
def test_slices_have_each_instant_once_in_order_and_no_more_bytes_than_they_may(steps, most):
    sizes, at = [], 0
    for step, size in steps:
        at += step
        sizes.append((at, size))
    found = list(slices(sizes, most))
    assert [n for a, b in found for n, _ in sizes if a <= n <= b] == [n for n, _ in sizes]
    for a, b in found:
        assert a == b or sum(size for n, size in sizes if a <= n <= b) <= most
