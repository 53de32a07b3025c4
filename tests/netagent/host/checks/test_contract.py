# SPDX-License-Identifier: Apache-2.0
from netagent.host.checks.contract import odd_ones


def test_of_three_nobody_knows_which_is_odd():
    assert odd_ones({"a": "1", "b": "2"}) == {}
    assert odd_ones({"a": "1", "b": "2", "c": "3"}) == {}
    assert odd_ones({"a": "1", "b": "2", "c": "2"}) == {}
    assert odd_ones({"a": "1", "b": "2", "c": "2", "d": "2"}) == {"a": "2"}
