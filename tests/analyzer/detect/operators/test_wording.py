# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.detect.operators.wording import doing, ranks_of, size_of, them, where
from analyzer.operators.log import Group, Kind, State, log_of


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1024, "1 KiB"), (4 << 20, "4 MiB"), (3 << 29, "1.5 GiB")]
)  # fmt: skip
def test_sizes(size, text):
    assert size_of(size) == text


def test_ranks():
    assert ranks_of([4]) == "rank 4"
    assert ranks_of([4, 5]) == "ranks 4, 5"
    assert ranks_of(list(range(10))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert (them([1]), them([1, 2])) == ("it", "them")


def test_what_is_done():
    assert doing((("broadcast", 0), ("all_reduce", 2048))) == "broadcast and all_reduce of 2 KiB"


def test_where_ranks_meet():
    columns = {
        "rank": [0, 1, 2], "kind": [Kind.COLLECTIVE, Kind.SEND, Kind.COLLECTIVE],
        "group": [0, -1, -1], "peer": [-1, 2, -1], "sequence": [42, 3, -1], "op": [0] * 3,
        "bytes": [4096, -1, -1], "state": [State.STARTED] * 3,
    }  # fmt: skip
    waits = Waits(log_of(columns, ops=("all_reduce",), groups=(Group("dp0", members=(0,)),)))
    assert where(waits, Meeting(0, 42)) == "42 of dp0 (all_reduce of 4 KiB)"
    assert where(waits, Meeting(-1, -1, (1, 2))) == "a transfer from 1 to 2"
    assert where(waits, Meeting(-1, -1)) == "-1 of a group (all_reduce)"
    assert where(waits, Meeting(0, 9)) == "9 of dp0"
