# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.bypassed import CARRIED, IDLE, LEAST_BPS, SPANS, BypassWatch, Carried
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId

SPAN_NS = 10_000_000_000
G = 10**9
RDMA, TCP, NOTHING = (100 * G, 0), (0, 60 * G), (0, 0)
"""Bits per second by the RDMA device and by the kernel."""


class Bench:
    """Endpoints of one container, whose counters go on."""

    def __init__(self, rails=1):
        self.watch = BypassWatch("h0")
        self.keys = [EndpointId("c0", rail) for rail in range(rails)]
        self.sent = {key: [0, 0] for key in self.keys}
        self.now_ns = 0
        self.found = self.read()

    def read(self):
        carried = {
            key: Carried(f"mlx5_{key.rail}", rdma, tcp) for key, (rdma, tcp) in self.sent.items()
        }
        self.found = self.watch.observe(carried, now_ns=self.now_ns)
        return self.found

    def send(self, *rates, times=1):
        """Let spans pass in which the endpoints send at these rates."""
        for _ in range(times):
            self.now_ns += SPAN_NS
            for key, (rdma, tcp) in zip(self.keys, rates, strict=True):
                self.sent[key][0] += rdma * 10 // 8
                self.sent[key][1] += tcp * 10 // 8
            self.read()
        return [finding.component.name for finding in self.found]


def test_an_endpoint_that_sends_by_tcp_what_it_sent_by_rdma_is_found():
    bench = Bench()
    assert bench.send(RDMA, times=2) == []
    assert bench.send(TCP, times=SPANS - 1) == []
    assert bench.send(TCP) == ["h0/mlx5_0"]
    (finding,) = bench.found
    assert finding.kind is FindingKind.NOT_RDMA
    assert finding.text == (
        "c0/rail0 sends by TCP what mlx5_0 should send by RDMA (100 Gb/s): nothing is lost, but "
        "the task is as slow as its host's kernel"
    )
    assert bench.send(RDMA, times=SPANS - 1) == ["h0/mlx5_0"]
    assert bench.send(RDMA) == []


def test_one_that_sends_by_tcp_what_its_siblings_send_by_rdma_needs_no_past():
    bench = Bench(rails=3)
    assert bench.send(RDMA, TCP, RDMA, times=SPANS) == ["h0/mlx5_1"]


@pytest.mark.parametrize(
    "then",
    [
        NOTHING,  # the task pauses
        (0, round(0.9 * CARRIED * 100 * G)),  # less than the task sent
        (round(2 * IDLE * 100 * G), 60 * G),  # both are used
    ],
)
def test_less_than_that_is_nothing(then):
    bench = Bench()
    bench.send(RDMA, times=3)
    assert bench.send(then, times=3 * SPANS) == []


def test_one_burst_is_not_what_it_was_and_one_odd_span_is_no_finding():
    bench = Bench()
    bench.send(NOTHING, times=2)
    bench.send(RDMA)
    assert bench.send(TCP, times=3 * SPANS) == []
    bench = Bench()
    bench.send(RDMA, times=2)
    for _ in range(4):
        assert bench.send(TCP, times=SPANS - 1) == []
        assert bench.send(RDMA) == []


def test_a_task_that_never_used_rdma_is_none():
    bench = Bench(rails=3)
    assert bench.send(TCP, TCP, TCP, times=3 * SPANS) == []
    little = (round(0.9 * LEAST_BPS), 0)  # as probes, or a task that hardly talks
    bench = Bench()
    bench.send(little, times=3)
    assert bench.send((0, 2 * G), times=3 * SPANS) == []


def test_a_counter_that_began_anew_says_nothing_and_a_container_that_is_gone_is_forgotten():
    bench = Bench()
    bench.send(RDMA, times=2)
    bench.send(TCP, times=SPANS - 1)
    bench.sent[bench.keys[0]] = [0, 0]  # the device was reset
    assert bench.send(TCP, times=1) == []
    assert bench.send(TCP, times=SPANS) == ["h0/mlx5_0"]
    bench.keys, bench.sent = [], {}
    assert bench.send() == []


@given(st.lists(st.sampled_from([RDMA, TCP, NOTHING]), max_size=25))
def test_a_finding_comes_and_goes_only_after_spans_that_agree(spans):
    bench, held, streak, best = Bench(), False, 0, 0
    for before, now in zip([None, *spans], spans, strict=False):
        best = max(best, min(before[0], now[0])) if before else best
        odd = best >= LEAST_BPS and now == TCP
        streak = streak + 1 if odd != held else 0
        if streak == SPANS:
            held, streak = odd, 0
        assert bool(bench.send(now)) == held
