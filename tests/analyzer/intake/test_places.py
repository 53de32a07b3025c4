# SPDX-License-Identifier: Apache-2.0
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.places import met


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(21, 200))
def test_it_is_what_sorting_finds(items, size):
    column = np.array(items, np.uint16)
    wanted, at = np.unique(column, return_inverse=True)
    found, number = met(column, size)
    assert found.tolist() == wanted.tolist()
    assert number.tolist() == at.reshape(-1).tolist()
    assert found.dtype == number.dtype == np.int64


def test_a_table_that_no_memory_holds_is_not_walked():
    found, number = met(np.array([1 << 54, 5, 1 << 54]), 1 << 55)
    assert (found.tolist(), number.tolist()) == ([5, 1 << 54], [1, 0, 1])
