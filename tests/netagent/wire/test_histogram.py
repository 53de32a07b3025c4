# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.wire.histogram import RELATIVE_ERROR, bucket_of, value_of


@given(st.integers(1, 4_000_000_000))
def test_a_bucket_tells_its_values_within_one_percent(value):
    assert value_of(bucket_of(value)) == pytest.approx(value, rel=RELATIVE_ERROR * 1.001)
