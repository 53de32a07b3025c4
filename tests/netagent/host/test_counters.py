# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host import counters as module
from netagent.host.counters import CounterRow, CounterTally, Deltas, growth
from netagent.model.window import Window
from tests.netagent.host.small_host import S

WINDOW = Window(0, 5 * S)
NEXT = Window(5 * S, 5 * S)


def rows(tally: CounterTally, window: Window = WINDOW) -> dict[tuple[str, str], int]:
    return {(row.device, row.counter): row.delta for row in tally.close(window).rows}


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (3, 3, 0),
        (3, 10, 7),
        (2**32 - 2, 5, 7),
        (2**64 - 2, 5, 7),
        (2**33, 5, 5),
        (1000, 5, 5),
        (2**32 - 2, 2**31, 2**31),
    ],
)
def test_growth_tells_a_wrap_from_a_reset(before, after, grown):
    assert growth(before, after) == grown


@given(
    st.sampled_from([32, 64]),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2**30 - 1), max_size=30),
)
def test_deltas_add_up_however_the_counter_wraps(bits, first, steps):
    deltas, true = Deltas(), first % 2**bits
    deltas.add({"x": true})
    total = 0
    for step in steps:
        true += step
        total += deltas.add({"x": true % 2**bits}).get("x", 0)
    assert total == sum(steps)


def test_the_first_reading_is_no_growth():
    tally = CounterTally()
    tally.add("mlx5_0", {"symbol_error": 10}, wall_ns=1)
    assert rows(tally) == {}


def test_a_counter_that_could_not_be_read_once_loses_nothing():
    tally = CounterTally()
    for at, counters in enumerate(({"symbol_error": 10}, {}, {"symbol_error": 13})):
        tally.add("mlx5_0", counters, wall_ns=at)
    assert rows(tally) == {("mlx5_0", "symbol_error"): 3}


def test_a_device_that_was_gone_counts_anew():
    tally = CounterTally()
    tally.add("mlx5_0", {"symbol_error": 10}, wall_ns=1)
    tally.retain({"mlx5_1"})
    tally.add("mlx5_0", {"symbol_error": 12}, wall_ns=2)
    assert rows(tally) == {}


def test_names_nobody_knows_are_no_rows():
    tally = CounterTally()
    for value in (0, 5):
        tally.add("mlx5_0", {"rx_atomic_requests": value}, wall_ns=1)
    assert rows(tally) == {}


def test_what_was_read_after_the_window_is_of_the_next_one():
    tally = CounterTally()
    for at, value in ((0, 0), (4 * S, 3), (5 * S, 7)):
        tally.add("mlx5_0", {"rcvd_pkts": value}, wall_ns=at)
    assert rows(tally) == {("mlx5_0", "rcvd_pkts"): 3}
    assert rows(tally, NEXT) == {("mlx5_0", "rcvd_pkts"): 4}
    assert rows(tally, NEXT) == {}


def test_the_least_important_rows_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    tally = CounterTally()
    names = ("port_rcv_data", "np_cnp_sent", "symbol_error", "link_downed")
    for value in (0, 5):
        tally.add("mlx5_0", dict.fromkeys(names, value), wall_ns=1)
    closed = tally.close(WINDOW)
    assert closed.rows == (
        CounterRow("mlx5_0", "link_downed", 5),
        CounterRow("mlx5_0", "symbol_error", 5),
    )
    assert closed.omitted == 2


def test_readings_that_nobody_asks_for_are_kept_in_bounds(monkeypatch):
    monkeypatch.setattr(module, "MAX_SAMPLES", 10)
    tally = CounterTally()
    for at in range(100):
        tally.add("mlx5_0", {"rcvd_pkts": at}, wall_ns=at)
    assert len(tally._samples) == 10
    assert rows(tally) == {("mlx5_0", "rcvd_pkts"): 99}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * S), st.sampled_from(["a", "b"]), st.integers(0, 100), st.booleans()
        )
    )
)
def test_windows_add_up_to_all_that_grew(steps):
    """Each step lets time pass, lets a device count, and may close the windows that ended."""
    tally, wall_ns, true = CounterTally(), 0, {"a": 0, "b": 0}
    for device in true:
        tally.add(device, {"rcvd_pkts": 0}, wall_ns=0)
    window, told = WINDOW, dict.fromkeys(true, 0)
    for after_ns, device, count, close in steps:
        wall_ns += after_ns
        true[device] += count
        tally.add(device, {"rcvd_pkts": true[device]}, wall_ns=wall_ns)
        while close and window.end_ns <= wall_ns:
            for row in tally.close(window).rows:
                told[row.device] += row.delta
            window = Window(window.end_ns, window.width_ns)
    for row in tally.close(Window(0, wall_ns + 1)).rows:
        told[row.device] += row.delta
    assert told == true
