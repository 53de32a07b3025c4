# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from analyzer.localize.tracing.wants import (
    CANNOT_NS,
    EMPTY_NS,
    MAX_EMPTY_NS,
    RETRY_NS,
    VALID_NS,
    Wanted,
    Wants,
)
from analyzer.questions import Failed, Why
from bpf.trace.journey import PLACES
from netagent.model.ids import EndpointId
from netagent.wire.trace import DropRow, TraceReply, TraceRequest
from tests.analyzer.cluster import reply_of

A, B, C = (EndpointId(name, 0) for name in "abc")
FORWARD = TraceRequest(kind="drops", flow="udp,nw_src=10.0.0.1,nw_dst=10.0.0.2")
BACKWARD = TraceRequest(kind="drops", flow="udp,nw_src=10.0.0.2,nw_dst=10.0.0.1")


class Agents:
    """Hosts that trace; one of a direction may lose packets at its uplink."""

    def __init__(self, *, loses=frozenset(), failed=None):
        self.loses, self.failed = loses, failed
        self.wants, self.now_ns, self.asked = Wants(), 0, 0

    def trace(self, host, request):
        if self.failed:
            return self.failed
        left = 0 if (host, request.flow) in self.loses else 10
        sends = (host == "h0") == (request.flow == FORWARD.flow)
        ways = ("port_receive", "uplink_transmit"), ("uplink_receive", "decapsulate")
        counts = dict(zip(ways[not sends], (10, left), strict=True))
        return reply_of(request, counts)

    def want(self, *pairs):
        wanted = [Wanted(pair, hosts, (FORWARD,) * 2, (BACKWARD,) * 2) for pair, hosts in pairs]
        self.wants.want(wanted, now_ns=self.now_ns)

    def answer(self):
        """Answer whatever is asked, until nothing is."""
        while due := self.wants.due():
            self.asked += len(due)
            for token, ask in due:
                reply = self.trace(ask.host, ask.request)
                self.wants.answer(token, reply, now_ns=self.now_ns)

    def known(self, pair=None):
        return self.wants.known(pair or (A, B), now_ns=self.now_ns)


AB, AC = ((A, B), ("h0", "h1")), ((A, C), ("h0", "h2"))


def test_a_host_makes_one_trace_at_a_time_and_results_age():
    agents = Agents(loses={("h0", FORWARD.flow)})
    agents.want(AB, AC)
    assert agents.wants.under_way((B, A))
    assert not agents.wants.under_way((A, C))
    assert agents.wants.busy == {"h0", "h1"}
    agents.answer()
    assert agents.wants.busy == set()
    assert agents.known((B, A)).verdict.where
    agents.want(AB)
    assert not agents.wants.under_way((A, B))  # what is known is not asked again
    agents.now_ns = VALID_NS
    assert agents.known() is None
    agents.want(AC)
    assert agents.wants.under_way((A, C))


def test_the_way_back_is_traced_where_the_way_there_is_fine():
    agents = Agents(loses={("h1", BACKWARD.flow)})
    agents.want(AB)
    agents.answer()
    assert agents.known().pair == (B, A)
    assert agents.asked == 4


def test_a_reply_counts_once_and_only_while_it_is_waited_for():
    agents = Agents(loses={("h0", FORWARD.flow)})
    agents.want(AB)
    (first, _), (second, _) = due = agents.wants.due()
    replies = [agents.trace(ask.host, ask.request) for _, ask in due]
    agents.wants.answer(first, replies[0], now_ns=0)
    assert agents.known() is None
    agents.wants.answer(second, replies[1], now_ns=0)
    assert agents.known().verdict.where
    assert agents.wants.answer(second, replies[1], now_ns=0) is None
    assert agents.wants.due() == []


@pytest.mark.parametrize(
    ("failed", "wait_ns"),
    [
        (Failed(Why.CANNOT, "no kprobes"), CANNOT_NS),
        (TraceReply(kind="drops", flow="", netns=1, lasted_ns=1), CANNOT_NS),
        (Failed(Why.TIMEOUT, "timeout"), RETRY_NS),
    ],
    ids=["cannot", "counts nothing", "timeout"],
)
def test_a_host_that_did_not_trace_is_left_alone_for_a_while(failed, wait_ns):
    agents = Agents(failed=failed)
    for now_ns, asked in ((0, 4), (wait_ns - 1, 4), (wait_ns, 8)):
        agents.now_ns = now_ns
        agents.want(AB)
        agents.answer()
        assert agents.asked == asked
        assert agents.known() is None


def test_a_trace_in_which_nothing_vanished_ages_soon_and_the_next_ones_later():
    agents, valid_ns = Agents(), EMPTY_NS
    for _ in range(6):
        agents.want(AB)
        agents.answer()
        agents.now_ns += valid_ns - 1
        assert agents.known().verdict.where is None
        agents.now_ns += 1
        assert agents.known() is None
        valid_ns = min(2 * valid_ns, MAX_EMPTY_NS)


def test_what_a_trace_saw_is_over_when_its_pair_loses_nothing_more():
    agents = Agents(loses={("h0", FORWARD.flow)})
    agents.want(AB)
    agents.answer()
    agents.wants.healed({(A, C)}, now_ns=0)
    assert agents.known().verdict.where
    agents.wants.healed({(A, B), (A, C)}, now_ns=0)
    assert agents.known() is None


def test_what_is_long_past_is_forgotten():
    agents = Agents()
    agents.want(AB)
    agents.answer()
    agents.now_ns = EMPTY_NS + MAX_EMPTY_NS
    agents.want(AB)
    agents.answer()
    agents.now_ns += EMPTY_NS  # it began anew
    assert agents.known() is None


def test_who_answers_what_makes_no_sense_keeps_nobody_from_being_traced_again():
    """A host cannot have its peer taken for busy."""
    agents = Agents()
    agents.want(AB)
    drop = DropRow(reason="R", location="f+1", after="nowhere", device="d", packets=20)
    while due := agents.wants.due():
        for token, ask in due:
            reply = structs.replace(agents.trace(ask.host, ask.request), drops=(drop,))
            agents.wants.answer(token, reply, now_ns=0)
    assert agents.wants.busy == set()


def test_the_question_says_whether_packets_are_roce():
    """Of others no sender says that the receiver's Soft-RoCE should have had them."""
    counts = {"port_receive": 10, "output": 10, "uplink_transmit": 10, "rxe_transmit": 10}
    arrived = {"uplink_receive": 10, "output": 10, "port_transmit": 10, "rxe_receive": 0}
    for port, lost in (("", None), (",tp_dst=4791", PLACES["port_transmit", "rxe_receive"])):
        wants, forward = Wants(), structs.replace(FORWARD, flow=FORWARD.flow + port)
        wants.want([Wanted((A, B), ("h0", "h1"), (forward,) * 2, (BACKWARD,) * 2)], now_ns=0)
        first = [
            wants.answer(token, reply_of(ask.request, said), now_ns=0)
            for (token, ask), said in zip(wants.due(), (counts, arrived), strict=True)
        ]
        assert (first[-1].verdict.where if first[-1] else None) == lost
