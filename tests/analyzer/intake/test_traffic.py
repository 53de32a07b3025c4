# SPDX-License-Identifier: Apache-2.0
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.traffic import MAX_RINGS, MAX_TRAFFIC_ROWS, TICKS, TrafficBook, traffic_of
from netagent.collect.traffic import TrafficRows
from netagent.collect.windows import WindowTally
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.window import Window
from netagent.wire.codec import decode, encode
from netagent.wire.messages import ClockOffset, Health, Summary, TrafficBlock

S = 10**9
A, B = EndpointId("a", 0), EndpointId("b", 0)
MEMBERS = [(A, "h0"), (B, "h0")]
BOTH = frozenset({A, B})


def add(book, told, held, wall_ns):
    book.add(told.host, told.clock, traffic_of(told), held, wall_ns)


"""What the host holds."""


def summary(rows, *, tick_ns=S, first=1000, host="h0", clock=None):
    """Return a summary as an agent makes it, after a journey over the wire."""
    traffic = [TrafficRows(first * tick_ns, tick_ns, rows)] if rows else []
    made = WindowTally(large_class=2).close(
        Window(0, 5 * S),
        host=host,
        instance="one",
        findings=(),
        health=Health(),
        traffic=traffic,
        clock=clock,
    )
    return decode(encode(made), Summary)


def series(book, members=((A, "h0"),), *, first=1000, ticks=5, tick_ns=S):
    return book.series(list(members), tick_ns, first, ticks).tolist()


def test_what_an_agent_tells_is_what_is_read():
    book = TrafficBook()
    add(book, summary({A: (1, None, 3), B: (10, 20, 30)}), BOTH, 0)
    told = book.series(MEMBERS, S, 999, 5)
    nan = float("nan")
    expected = [[nan, 1, nan, 3, nan], [nan, 10, 20, 30, nan]]
    assert np.array_equal(told, expected, equal_nan=True)
    assert np.isnan(book.series([(EndpointId("c", 0), "h0")], S, 1000, 3)).all()


def test_what_a_task_sent_is_known_by_the_seconds_that_are():
    book = TrafficBook()
    add(book, summary({A: (1, None, 3), B: (10, 20, 30)}), BOTH, 0)
    assert book.sent(MEMBERS, 1000 * S, 1003 * S) == pytest.approx(6 * (1 + 3 + 10 + 20 + 30) / 5)
    assert np.isnan(book.sent(MEMBERS, 2000 * S, 2003 * S))
    assert np.isnan(book.sent([], 1000 * S, 1003 * S))


@given(st.permutations(range(6)))
def test_blocks_may_come_late_and_in_any_order(order):
    book = TrafficBook()
    for at in (*order, order[0]):
        add(book, summary({A: (10 * at, 10 * at + 1)}, first=1000 + 2 * at), BOTH, 0)
    told = series(book, ticks=12)[0]
    assert told == [10 * (at // 2) + at % 2 for at in range(12)]


def test_history_is_bounded_and_a_clock_that_was_set_begins_anew():
    book = TrafficBook()
    for at in range(0, 2 * TICKS, 100):
        add(book, summary({A: tuple(range(at, at + 100))}, first=1000 + at), BOTH, 0)
    told = book.series(MEMBERS[:1], S, 1000, 2 * TICKS)[0]
    assert np.isnan(told[:TICKS]).all()
    assert told[TICKS:].tolist() == list(range(TICKS, 2 * TICKS))
    add(book, summary({A: (7, 8)}, first=10), BOTH, 0)
    assert series(book, first=10, ticks=2) == [[7, 8]]
    assert np.isnan(book.series(MEMBERS[:1], S, 1000, 2 * TICKS)).all()


def test_seconds_are_put_together_from_finer_ticks():
    book = TrafficBook()
    add(book, summary({A: (100,)}, first=1000), BOTH, 0)
    fine = tuple([1] * 10 + [2] * 9 + [None])
    add(book, summary({A: fine}, tick_ns=S // 10, first=10010), BOTH, 0)
    told = series(book, ticks=3)[0]
    assert told[:2] == [100, 10]
    assert np.isnan(told[2])
    assert book.ticks_ns() == [S, S // 10]


def test_series_are_on_the_analyzer_s_clock():
    book = TrafficBook()
    sent = (0, 0, 100, 0, 0, 0)
    ahead = ClockOffset(offset_ns=-S, error_ns=10**6)
    add(book, summary({A: sent}, clock=ahead), BOTH, 0)
    assert series(book, first=1000, ticks=4)[0] == [0, 100, 0, 0]
    behind = ClockOffset(offset_ns=S // 4, error_ns=10**6)
    add(book, summary({A: sent}, clock=behind), BOTH, 0)
    assert series(book, first=1001, ticks=4)[0] == [0, 75, 25, 0]
    unsure = ClockOffset(offset_ns=S // 4, error_ns=S // 2)
    add(book, summary({A: sent}, clock=unsure), BOTH, 0)
    assert series(book, first=1001, ticks=4)[0] == [0, 100, 0, 0]


def test_what_nobody_sends_any_more_is_forgotten():
    book = TrafficBook()
    add(book, summary({A: (1,)}), BOTH, 1000 * S)
    add(book, summary({B: (1,)}, first=5000), BOTH, 5000 * S)
    book.forget(5000 * S)
    assert np.isnan(book.series(MEMBERS[:1], S, 1000, 1)).all()
    assert series(book, [(B, "h0")], first=5000, ticks=1) == [[1]]


def test_nobody_tells_what_another_host_s_endpoint_sent():
    book = TrafficBook()
    add(book, summary({A: (1,), B: (2,)}), {A}, 0)
    assert series(book, [(A, "h0")], ticks=1) == [[1]]
    assert np.isnan(book.series([(B, "h0")], S, 1000, 1)).all()


def test_a_gap_takes_nothing_back():
    book = TrafficBook()
    add(book, summary({A: (1, 2, 3)}), BOTH, 0)
    add(book, summary({A: (None, 5, None)}), BOTH, 0)
    assert series(book, ticks=3) == [[1, 5, 3]]


def test_an_endpoint_has_few_rings_whatever_ticks_come():
    book = TrafficBook()
    for number in range(1, 40):
        add(book, summary({A: (1,)}, tick_ns=number * S // 10), BOTH, 0)
    assert len(book.ticks_ns()) == MAX_RINGS


def test_a_summary_has_few_blocks():
    block = TrafficBlock(start_ns=0, tick_ns=S, endpoint=b"\0\0", sent=bytes(8))
    many = Summary(
        host="h0", instance="one", start_ns=0, width_ns=S, endpoints=(A,), traffic=(block,) * 99
    )
    with pytest.raises(RemoteProtocolError, match="99 blocks"):
        traffic_of(many)


def test_a_summary_has_no_more_traffic_than_a_host_has_endpoints():
    ends = tuple(EndpointId("c", rail) for rail in range(MAX_TRAFFIC_ROWS // 2 + 1))
    rows = np.arange(len(ends), dtype="<u2").tobytes()
    block = TrafficBlock(start_ns=0, tick_ns=S, endpoint=rows, sent=bytes(8 * len(ends)))
    one = Summary(
        host="h0", instance="one", start_ns=0, width_ns=S, endpoints=ends, traffic=(block,)
    )
    assert len(traffic_of(one)[0].endpoints) == len(ends)
    with pytest.raises(RemoteProtocolError, match="8192"):
        traffic_of(msgspec.structs.replace(one, traffic=(block, block)))


@pytest.mark.parametrize(
    "block",
    [
        {"tick_ns": 7},
        {"tick_ns": 0},
        {"start_ns": S // 2},
        {"start_ns": -S},
        {"endpoint": b"\1"},
        {"endpoint": b""},
        {"endpoint": b"\5\0"},
        {"endpoint": b"\0\0\0\0"},
        {"sent": bytes(7)},
        {"sent": b""},
        {"sent": bytes(8 * 10_000)},
    ],
)
def test_blocks_that_make_no_sense_are_refused(block):
    whole = {"start_ns": 5 * S, "tick_ns": S, "endpoint": b"\0\0", "sent": bytes(40)}
    odd = Summary(
        host="h0",
        instance="one",
        start_ns=0,
        width_ns=5 * S,
        endpoints=(A,),
        traffic=(TrafficBlock(**(whole | block)),),
    )
    with pytest.raises(RemoteProtocolError):
        traffic_of(odd)


@given(st.integers(), st.integers(), st.binary(max_size=8), st.binary(max_size=80))
def test_whatever_a_block_holds_it_is_read_or_refused(start_ns, tick_ns, endpoint, sent):
    block = TrafficBlock(start_ns=start_ns, tick_ns=tick_ns, endpoint=endpoint, sent=sent)
    odd = Summary(
        host="h0", instance="one", start_ns=0, width_ns=S, endpoints=(A, B), traffic=(block,)
    )
    try:
        book = TrafficBook()
        add(book, odd, BOTH, 0)
    except RemoteProtocolError:
        return
    assert book.ticks_ns() == [tick_ns]
