# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.traffic import (
    CountedAt,
    Reading,
    Source,
    TrafficRecorder,
    TrafficRows,
    TrafficTally,
    compared,
    sources,
)
from netagent.host.facts import HostView, Namespace
from netagent.host.rdma_facts import RdmaDevice, RdmaPort
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

S = 1_000_000_000
A, B = EndpointId("a", 0), EndpointId("b", 0)
COUNTER = Source("class/net/a/statistics/rx_bytes")
OFFSET = 7 * S
"""Of the wall clock against the monotonic one."""


def reading(sent_bytes: int, at_ns: int, source: Source = COUNTER, step_ns: int = 0) -> Reading:
    return Reading(source, sent_bytes, at_ns + OFFSET + step_ns, at_ns)


def series(tally: TrafficTally) -> tuple[int | None, ...]:
    rows = tally.take()
    return rows.sent_bytes[A] if rows else ()


def test_ticks_between_readings_at_their_edges_are_known():
    tally = TrafficTally(S)
    for at, sent in enumerate((100, 130, 130, 1000)):
        tally.add({A: reading(sent, at * S)})
    assert tally.take() == TrafficRows(OFFSET, S, {A: (30, 0, 870)})
    assert tally.take() is None


@given(
    st.lists(st.integers(0, 10**6), min_size=3, max_size=30),
    st.lists(st.integers(0, S // 3), min_size=31, max_size=31),
    st.sampled_from([32, 64]),
    st.integers(0, 2**32 - 1),
)
def test_nothing_is_lost_or_made_up_however_late_readings_are_and_counters_wrap(
    grown, late_ns, bits, first
):
    tally, counter = TrafficTally(S), first
    tally.add({A: reading(counter, 0)})
    for number, delta in enumerate(grown, start=1):
        counter = (counter + delta) % 2**bits
        tally.add({A: reading(counter, number * S + late_ns[number])})
    told = series(tally)
    assert None not in told
    assert len(told) == len(grown)
    # What came between the last tick's end and the last reading is for the next ticks.
    last = tally._cells.get((OFFSET // S) + len(grown), {}).get(A)
    assert sum(told) + (last.sent_bytes if last else 0) == sum(grown)
    for value, (before, after) in zip(told[1:], pairwise(grown), strict=False):
        assert 0 <= value <= before + after


def test_a_reset_a_pause_and_a_new_source_are_gaps():
    tally = TrafficTally(S)
    tally.add({A: reading(5000, 0)})
    tally.add({A: reading(6000, S)})
    tally.add({A: reading(10, 2 * S)})  # the driver was loaded anew
    tally.add({A: reading(30, 3 * S)})
    tally.add({A: reading(90, 5 * S)})  # nobody read for two seconds
    tally.add({A: reading(95, 6 * S)})
    tally.add({A: reading(2000, 7 * S, Source("elsewhere"))})
    tally.add({A: reading(2001, 8 * S, Source("elsewhere"))})
    assert series(tally) == (1000, None, 20, None, None, 5, None, 1)


def test_an_endpoint_that_comes_later_or_goes_has_gaps():
    tally = TrafficTally(S)
    tally.add({A: reading(0, 0)})
    tally.add({A: reading(1, S), B: reading(50, S)})
    tally.add({B: reading(60, 2 * S)})
    tally.add({B: reading(80, 3 * S)})
    rows = tally.take()
    assert rows.sent_bytes == {A: (1, None, None), B: (None, 10, 20)}


def test_a_tick_that_was_seen_in_part_is_a_gap():
    tally = TrafficTally(S)
    tally.add({A: reading(0, S // 2)})
    tally.add({A: reading(10, S)})
    tally.add({A: reading(30, 2 * S)})
    assert series(tally) == (None, 20)


def test_units_of_four_bytes_are_told_as_bytes():
    tally, data = TrafficTally(S), Source("port_xmit_data", 4)
    tally.add({A: reading(0, 0, data)})
    tally.add({A: reading(25, S, data)})
    assert series(tally) == (100,)


def test_a_clock_that_is_set_begins_anew_even_backwards():
    tally = TrafficTally(S)
    for at in range(4):
        tally.add({A: reading(at, at * S)})
    assert series(tally) == (1, 1, 1)
    for at in range(4, 7):
        tally.add({A: reading(at, at * S, step_ns=-100 * S)})
    rows = tally.take()
    assert rows.start_ns == 4 * S + OFFSET - 100 * S
    assert rows.sent_bytes == {A: (1, 1)}


def test_ticks_that_nobody_takes_are_bounded():
    tally = TrafficTally(S)
    for at in range(2000):
        tally.add({A: reading(at, at * S)})
        assert len(tally._cells) <= 602
    assert len(series(tally)) == 600


def test_finer_ticks_go_on_where_the_coarse_ones_ended():
    recorder = TrafficRecorder(S)
    fine = S // 10
    for at in range(3):
        recorder.add(S, {A: reading(10 * at, at * S)})
    for at in range(1, 6):
        recorder.add(fine, {A: reading(20 + at, 2 * S + at * fine)})
    coarse, fine_rows = recorder.take()
    assert coarse == TrafficRows(OFFSET, S, {A: (10, 10)})
    assert fine_rows == TrafficRows(OFFSET + 2 * S, fine, {A: (1,) * 5})
    recorder.add(S, {A: reading(40, 3 * S)})
    recorder.add(S, {A: reading(50, 4 * S)})
    (again,) = recorder.take()
    assert again == TrafficRows(OFFSET + 3 * S, S, {A: (10,)})


def test_finer_ticks_before_the_first_reading_begin_with_it():
    recorder, fine = TrafficRecorder(S), S // 10
    for at in range(4):
        recorder.add(fine, {A: reading(at, 5 * S + at * fine)})
    assert recorder.take() == [TrafficRows(OFFSET + 5 * S, fine, {A: (1, 1, 1)})]


ENDPOINT = Endpoint(A, "t", "h0", "10.0.0.10", "", "", "", "br-int", "a-r0")


def device(**counters: int) -> dict[str, RdmaDevice]:
    port = RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", counters=counters)
    return {"mlx5_0": RdmaDevice("mlx5_0", ports=(port,))}


def test_the_rnic_is_read_where_it_counts_bytes():
    view = HostView(endpoints=(ENDPOINT,))
    inside = Namespace("/run/netns/a", 7)
    places = {A: CountedAt("mlx5_0", inside)}
    found = sources(view, places, device(port_xmit_data=1, port_rcv_data=2))
    path = "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    assert found == {A: Source(path, 4, inside)}
    found = sources(view, places, device(tx_bytes=1))
    assert found[A].path.endswith("/hw_counters/tx_bytes")


def test_else_the_host_s_end_of_the_interface_is_read():
    view = HostView(endpoints=(ENDPOINT,))
    soft_roce = sources(view, {A: CountedAt("mlx5_0")}, device(sent_pkts=1))
    assert soft_roce == sources(view, {}, {})
    assert soft_roce == {A: Source("class/net/a-r0/statistics/rx_bytes")}


def test_what_no_port_stands_for_is_counted_inside_while_that_can_be_entered():
    """A device of the host may have the same name as the container's."""
    inside = Namespace("/run/netns/a", 7)
    bare = Endpoint(A, "t", "h0", "10.0.0.10", "", "10.0.0.10", "rnic0", "", "net1")
    view = HostView(endpoints=(bare,), netdevs={A: "net1"}, namespaces={A: inside})
    assert sources(view, {}, {}) == {A: Source("class/net/net1/statistics/tx_bytes", 1, inside)}
    assert sources(HostView(endpoints=(bare,), netdevs={A: "net1"}), {}, {}) == {}


def test_a_device_and_the_interface_beside_it_are_compared_where_both_count_bytes():
    inside = Namespace("/run/netns/a", 7)
    view = HostView(endpoints=(ENDPOINT,), netdevs={A: "eth0"}, namespaces={A: inside})
    places = {A: CountedAt("mlx5_0")}
    by_rdma, by_kernel = compared(view, places, device(port_xmit_data=1))
    assert by_rdma == {A: Source("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", 4)}
    assert by_kernel == {A: Source("class/net/eth0/statistics/tx_bytes", 1, inside)}
    assert compared(view, places, device(sent_pkts=1)) == ({}, {})  # Soft-RoCE
    assert compared(view, {}, device(port_xmit_data=1)) == ({}, {})
    gone = HostView(endpoints=(ENDPOINT,), netdevs={A: "eth0"})
    assert compared(gone, places, device(port_xmit_data=1)) == ({}, {})
