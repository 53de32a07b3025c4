# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from analyzer.detect.flows import FlowView
from analyzer.localize.sentences import sentences
from analyzer.localize.tracing import stages
from bpf.trace import journey
from bpf.trace.flowspec import parse_flow
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.ids import EndpointId, FlowId
from netagent.wire.trace import DropRow, StageRow, TraceReply

A, B = EndpointId("a", 0), EndpointId("b", 0)
TUNNELS = {A: "vxlan0", B: "vxlan0"}


def endpoint(key, host, address, rdma=None):
    return Endpoint(key, "t", host, address, "", "172.30.0.1", "rnic0", "br-int", "p", rdma=rdma)


ENDPOINTS = {A: endpoint(A, "h0", "10.0.0.10"), B: endpoint(B, "h1", "10.0.0.11")}


def reply(drops=(), **packets):
    return TraceReply(
        kind="drops", flow="", netns=1, lasted_ns=1,
        stages=tuple(StageRow(stage=s, packets=n, bytes=0) for s, n in packets.items()),
        drops=drops,
    )  # fmt: skip


SENT = dict.fromkeys(("port_receive", "lookup", "actions", "output", "port_transmit"), 20)
SENT |= {"encapsulate": 20, "uplink_transmit": 20}
TAKEN = dict.fromkeys(("uplink_receive", "decapsulate", "tunnel_receive", "lookup"), 20)
TAKEN |= {"actions": 20, "output": 20, "port_transmit": 20}


def test_the_question_names_the_pair_and_the_port_of_its_transport():
    sent, received = stages.questions((A, B), ENDPOINTS, port=18515, vni=1001)
    assert received.flow == "udp,nw_src=10.0.0.10,nw_dst=10.0.0.11,tun_id=1001"
    assert sent.flow == f"{received.flow},in_port=p"  # before it has a VNI, the port tells tenants
    rdma = RdmaAddress("rxe0", "::ffff:10.0.0.11", (17,), 1, 1024)
    by_rdma = ENDPOINTS | {B: endpoint(B, "h1", "10.0.0.11", rdma)}
    assert stages.questions((A, B), by_rdma, port=18515)[1].flow.endswith("tp_dst=4791")


def test_the_question_about_an_ipv6_pair_is_in_the_words_of_ipv6():
    six = {A: endpoint(A, "h0", "fd00::a"), B: endpoint(B, "h1", "fd00::b")}
    sent, received = stages.questions((A, B), six, port=18515, vni=1001)
    assert received.flow == "udp6,ipv6_src=fd00::a,ipv6_dst=fd00::b,tun_id=1001"
    assert sent.flow == f"{received.flow},in_port=p"
    for request in (sent, received):
        assert str(parse_flow(request.flow)) == request.flow


@pytest.mark.parametrize(
    ("sender", "receiver", "named"),
    [
        (SENT | {"uplink_transmit": 0}, dict.fromkeys(TAKEN, 0), "rnic h0/rnic0"),
        (SENT, TAKEN | dict.fromkeys(set(TAKEN) - {"uplink_receive"}, 0), "tunnel h1/vxlan0"),
        (SENT, TAKEN | {"output": 0, "port_transmit": 0}, "tunnel h1/vxlan0"),
        (SENT | dict.fromkeys(set(SENT) - {"port_receive", "lookup"}, 0), TAKEN, "vswitch h0"),
        (SENT, dict.fromkeys(TAKEN, 0), None),  # the underlay's: the vote tells which link
        (SENT, TAKEN, None),
    ],
)
def test_the_part_at_which_packets_end_is_named(sender, receiver, named):
    traced = stages.judge((A, B), reply(**sender), reply(**receiver))
    found = stages.component(traced, ENDPOINTS, TUNNELS)
    assert (str(found) if found else None) == named


def foreign(counts):
    rows = [StageRow(stage=s, packets=0, bytes=0, foreign=n) for s, n in counts.items()]
    return structs.replace(reply(), stages=tuple(rows))


@pytest.mark.parametrize(
    ("sender", "receiver", "by_roce", "named"),
    [
        (reply(**SENT, rxe_transmit=20), reply(**TAKEN, rxe_receive=0), False, None),
        (reply(**SENT, rxe_transmit=20), reply(**TAKEN, rxe_receive=0), True, "endpoint b/rail0"),
        (None, foreign(TAKEN), False, None),
        (reply(**dict.fromkeys(SENT, 0)), foreign(TAKEN), False, None),
    ],
    ids=["it is no RoCE", "it is RoCE", "another key, no word of it", "another key, denied"],
)
def test_a_sender_has_nothing_of_the_receivers_named_by_what_it_says(
    sender, receiver, by_roce, named
):
    traced = stages.judge((A, B), sender, receiver, by_roce=by_roce)
    found = stages.component(traced, ENDPOINTS, TUNNELS)
    assert (str(found) if found else None) == named


def test_packets_that_are_dropped_behind_a_stage_that_there_is_not_were_not_followed():
    drop = DropRow(reason="R", location="f+1", after="nowhere", device="d", packets=20)
    traced = stages.judge((A, B), reply((drop,), **SENT), reply(**TAKEN))
    assert traced.verdict.where is None


def test_traces_that_began_at_different_times_blame_no_underlay():
    late = dict.fromkeys(TAKEN, 9)
    assert stages.judge((A, B), reply(**SENT), reply(**late)).verdict.where is None
    filtered = late | dict.fromkeys(set(TAKEN) - {"uplink_receive"}, 0)
    traced = stages.judge((A, B), reply(**SENT), reply(**filtered))
    assert traced.verdict.host == "receiver"


def test_the_verdict_quotes_stage_reason_and_counts():
    drop = DropRow(
        reason="TC_EGRESS", location="__dev_queue_xmit+0x1", after="encapsulate", device="rnic0",
        packets=20,
    )  # fmt: skip
    traced = stages.judge((A, B), reply((drop,), **SENT | {"uplink_transmit": 0}), None)
    view = FlowView(FlowId(A, B, 1), 20, 20, 0, 0, 0, 20, 4000)
    explained = stages.explain(traced, (view,), ENDPOINTS, TUNNELS)
    assert explained.flows == (view,)
    assert journey.PLACES["encapsulate", "uplink_transmit"] in explained.verdict.summary
    evidence = "\n".join(sentences(explained.verdict.evidence))
    assert "TC_EGRESS" in evidence
    assert "encapsulate 20" in evidence
    assert stages.with_trace(explained, traced).verdict.evidence[0] == explained.verdict.evidence[0]


def test_without_a_trace_nothing_is_settled():
    traced = stages.judge((A, B), None, None)
    assert traced.verdict.missing
    assert stages.explain(traced, (), ENDPOINTS, TUNNELS) is None


def test_what_each_host_counted_is_kept_by_stage_and_not_what_it_makes_up():
    rows = (StageRow(stage="lookup", packets=5, bytes=0, p50_ns=7), *reply(output=4).stages)
    sender = TraceReply(kind="drops", flow="udp", netns=1, lasted_ns=1, stages=rows)
    receiver = TraceReply(kind="drops", flow="a\nb", netns=1, lasted_ns=1, stages=rows * 50)
    values = stages.evidence(stages.judge((A, B), sender, receiver)).values
    assert values["stages"][:2] == [["sender", "lookup", 5, 7], ["sender", "output", 4, 0]]
    assert values["flows"] == [["sender", "udp", stages.DURATION_S]]
    assert len(values["stages"]) == 2 + stages.MAX_STAGES
