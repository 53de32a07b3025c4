# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from analyzer.tracing import (
    CANNOT_NS,
    EMPTY_NS,
    MAX_EMPTY_NS,
    RETRY_NS,
    VALID_NS,
    Tracing,
    Wanted,
)
from netagent.model.errors import CapabilityMissing, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.tracing import TraceRequest
from tests.analyzer.cluster import reply_of

A, B, C = (EndpointId(name, 0) for name in "abc")
FORWARD = TraceRequest(kind="drops", flow="udp,nw_src=10.0.0.1,nw_dst=10.0.0.2")
BACKWARD = TraceRequest(kind="drops", flow="udp,nw_src=10.0.0.2,nw_dst=10.0.0.1")


class Agents:
    """Answers when let; one host of a direction may lose packets at its uplink."""

    def __init__(self, *, loses=frozenset(), error=None):
        self.loses, self.error = loses, error
        self.asked, self.go = [], asyncio.Event()
        self.now_ns = 0

    def clock(self):
        return self.now_ns

    async def trace(self, host, request, *, deadline_s=0):
        self.asked.append((host, request.flow))
        await self.go.wait()
        if self.error:
            raise self.error
        left = 0 if (host, request.flow) in self.loses else 10
        sends = (host == "h0") == (request.flow == FORWARD.flow)
        ways = ("port_receive", "uplink_transmit"), ("uplink_receive", "decapsulate")
        counts = dict(zip(ways[not sends], (10, left), strict=True))
        return reply_of(request, counts)


def wanted(pair, hosts):
    return Wanted(pair, hosts, (FORWARD, FORWARD), (BACKWARD, BACKWARD))


async def settled(tracing, pair):
    async with asyncio.timeout(5):
        while tracing.under_way(pair):  # noqa: ASYNC110 - it ends by itself, and rings nothing
            await asyncio.sleep(0)


def test_a_host_makes_one_trace_at_a_time_and_results_age():
    async def play():
        agents = Agents(loses={("h0", FORWARD.flow)})
        tracing = Tracing(agents, agents.clock)
        tracing.want([wanted((A, B), ("h0", "h1")), wanted((A, C), ("h0", "h2"))])
        assert tracing.under_way((B, A))
        assert not tracing.under_way((A, C))
        agents.go.set()
        await settled(tracing, (A, B))
        assert tracing.known((B, A)).verdict.where
        tracing.want([wanted((A, B), ("h0", "h1"))])
        assert not tracing.under_way((A, B))  # what is known is not asked again
        agents.now_ns = VALID_NS
        assert tracing.known((A, B)) is None
        tracing.want([wanted((A, C), ("h0", "h2"))])
        assert tracing.under_way((A, C))
        await tracing.close()
        assert not tracing.under_way((A, C))

    asyncio.run(play())


def test_the_way_back_is_traced_where_the_way_there_is_fine():
    async def play():
        agents = Agents(loses={("h1", BACKWARD.flow)})
        agents.go.set()
        tracing = Tracing(agents, agents.clock)
        tracing.want([wanted((A, B), ("h0", "h1"))])
        await settled(tracing, (A, B))
        assert tracing.known((A, B)).pair == (B, A)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("error", "wait_ns"),
    [
        (CapabilityMissing("no kprobes", "a newer kernel"), CANNOT_NS),
        (Unreachable("h0", "timeout"), RETRY_NS),
    ],
)
def test_a_host_that_did_not_trace_is_left_alone_for_a_while(error, wait_ns):
    async def play():
        agents = Agents(error=error)
        agents.go.set()
        tracing = Tracing(agents, agents.clock)
        for now_ns, asked in ((0, 4), (wait_ns - 1, 4), (wait_ns, 8)):
            agents.now_ns = now_ns
            tracing.want([wanted((A, B), ("h0", "h1"))])
            await settled(tracing, (A, B))
            assert len(agents.asked) == asked
            assert tracing.known((A, B)) is None

    asyncio.run(play())


def test_a_trace_in_which_nothing_vanished_ages_soon_and_the_next_ones_later():
    async def play():
        agents = Agents()
        agents.go.set()
        tracing = Tracing(agents, agents.clock)
        valid_ns = EMPTY_NS
        for _ in range(6):
            tracing.want([wanted((A, B), ("h0", "h1"))])
            await settled(tracing, (A, B))
            agents.now_ns += valid_ns - 1
            assert tracing.known((A, B)).verdict.where is None
            agents.now_ns += 1
            assert tracing.known((A, B)) is None
            valid_ns = min(2 * valid_ns, MAX_EMPTY_NS)

    asyncio.run(play())


def test_what_a_trace_saw_is_over_when_its_pair_loses_nothing_more():
    async def play():
        agents = Agents(loses={("h0", FORWARD.flow)})
        agents.go.set()
        tracing = Tracing(agents, agents.clock)
        tracing.want([wanted((A, B), ("h0", "h1"))])
        await settled(tracing, (A, B))
        tracing.healed({(A, C)})
        assert tracing.known((A, B)).verdict.where
        tracing.healed({(A, B), (A, C)})
        assert tracing.known((A, B)) is None

    asyncio.run(play())


def test_what_is_long_past_is_forgotten():
    async def play():
        agents = Agents()
        agents.go.set()
        tracing = Tracing(agents, agents.clock)
        tracing.want([wanted((A, B), ("h0", "h1"))])
        await settled(tracing, (A, B))
        agents.now_ns = EMPTY_NS + MAX_EMPTY_NS
        tracing.want([wanted((A, B), ("h0", "h1"))])
        await settled(tracing, (A, B))
        agents.now_ns += EMPTY_NS  # it began anew
        assert tracing.known((A, B)) is None

    asyncio.run(play())
