# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import Group, GroupKind, Kind
from analyzer.operators.units import MOST, check_size, edge_of, group_of, op_of
from tests.analyzer.operators.test_aggregate import _log, _sum


def test_a_transfer_took_what_the_last_to_come_measured():
    group = Group("g", GroupKind.DATA, (0, 1))
    made = _sum(_log([
        (0, Kind.COLLECTIVE, 3, 0, 50, 0, -1), (1, Kind.COLLECTIVE, 3, 1000, 1007, 0, -1),
        (0, Kind.SEND, 1, 60, 63, -1, 1), (1, Kind.RECV, 2, 1007, 1100, -1, 0),
    ], groups=(group,)))  # fmt: skip
    units = made.units
    assert [edge_of(number) for number in units.number.tolist()] == [None, (0, 1)]
    assert [group_of(int(units.number[0])), op_of(int(units.number[0]))] == [0, 3]
    assert units.least_us.tolist() == [[7.0, 3.0]]
    assert units.sent_us.tolist() == [[np.inf, 3.0]]
    assert units.count.tolist() == [[2, 2]]
    assert units.sum_us.tolist() == [[57.0, 96.0]]
    assert units.ends.tolist() == [3, 3]


def test_what_was_only_sent_is_known_to_lack_its_other_end():
    assert _sum(_log([(0, Kind.SEND, 1, 0, 3, -1, 1)])).units.ends.tolist() == [1]


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.RECV])
def test_a_peer_beyond_all_ranks_is_nobody(kind):
    peers = (MOST, MOST + 1, 1 << 22, (1 << 31) - 1)
    rows = [(0, kind, 1, at, at + 3, -1, peer) for at, peer in enumerate(peers)]
    edge = (0, MOST) if kind is Kind.SEND else (MOST, 0)
    assert [edge_of(number) for number in _sum(_log(rows)).units.number.tolist()] == [edge]


def test_too_many_sums_are_refused():
    with pytest.raises(ValueError, match="100000000 sums"):
        check_size(10**8)
