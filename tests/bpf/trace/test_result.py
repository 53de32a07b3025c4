# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Sequence

import msgspec

from bpf.trace.abi import (
    COUNTERS,
    MAPPED,
    NOTHING,
    STAGES,
    DropKey,
    Event,
    FlowKey,
    OuterKey,
    PortKey,
    Readings,
    RoceKey,
    Totals,
    UpcallKey,
)
from bpf.trace.flowspec import parse_flow
from bpf.trace.histogram import bucket_of
from bpf.trace.programs import Refusal
from bpf.trace.request import Request
from bpf.trace.result import MAX_JOURNEYS, journeys, reason_text, result_text, to_result
from netagent.wire.codec import ContentType, decode
from netagent.wire.trace import TraceReply

FLOW = FlowKey(MAPPED | 0x0A00000A, MAPPED | 0x0A00000C, 40000, 4791, 17, 4)
FLOW6 = FlowKey(0xFD00 << 112 | 10, 0xFD00 << 112 | 12, 40000, 4791, 17, 6)
VTEP6 = 0xFD30 << 112 | 1
TEXT = "udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_src=40000,tp_dst=4791"


def event(stage: str, at_ns: int, journey: int = 1, **more: int) -> Event:
    values = {"location": 0, "vni": 0, "reason": 0, "outer_port": 0, **more}
    return Event(at_ns=at_ns, journey=journey, flow=FLOW, stage=stage, device="d", **values)


def symbol(address: int) -> str:
    return {7: "skb_release_data+0x1 [kernel]"}.get(address, f"f+{address:#x}")


def result(events: Sequence[Event] = ()) -> dict:
    buckets = [0] * 128
    buckets[bucket_of(1000)] = 2
    stages = dict.fromkeys(STAGES, NOTHING)
    stages["lookup"] = Totals(3, 300, 1, 2, tuple(buckets))
    readings = Readings(
        stages=stages,
        ports={PortKey("output", 100, "p1"): 3},
        drops={DropKey(5, 2, "lookup", "d"): 1, DropKey(0, 0, "actions", ""): 4,
               DropKey(7, 2, "", ""): 9},
        upcalls={UpcallKey(1, 0): 1, UpcallKey(1, -11): 2, UpcallKey(9, -999): 3},
        outers={
            OuterKey(FLOW, MAPPED | 0xAC1E000A, MAPPED | 0xAC1E000B, 100, 59104, True): 3,
            OuterKey(FLOW6, VTEP6, VTEP6 + 1, 100, 7, False): 2,
        },
        roce={RoceKey(True, False, "p1"): 3},
        counters={**dict.fromkeys(COUNTERS, 0), "events_lost": 5},
    )  # fmt: skip
    return to_result(
        Request("path", parse_flow("udp,tp_dst=4791"), 4, 10**9),
        readings,
        events or [event("lookup", 30), event("port_receive", 10)],
        lasted_ns=10**9,
        attached=["lookup", "port_receive"],
        refusals=[Refusal("drop", "no reason", "none")],
        reasons={2: "NO_SOCKET"},
        symbol=symbol,
        notes=["a note"],
    )


def test_the_result_is_the_wires_reply():
    reply = decode(json.dumps(result()).encode(), TraceReply, ContentType.JSON)
    assert (reply.flow, reply.netns, reply.lasted_ns) == ("udp,tp_dst=4791", 4, 10**9)
    assert [row.stage for row in reply.stages] == ["port_receive", "tunnel_receive", "lookup"]
    lookup = reply.stages[-1]
    assert (lookup.packets, lookup.bytes, lookup.repeats, lookup.foreign) == (3, 300, 1, 2)
    assert lookup.samples == 2
    assert lookup.p50_ns is not None
    assert abs(lookup.p50_ns - 1000) < 125
    assert lookup.buckets == ((bucket_of(1000), 2),)
    assert [(u.result, u.command) for u in reply.upcalls] == [
        ("-999", "9"), ("EAGAIN", "miss"), ("ok", "miss"),
    ]  # fmt: skip
    outer, outer6 = reply.outers
    text6 = "udp6,ipv6_src=fd00::a,ipv6_dst=fd00::c,tp_src=40000,tp_dst=4791"
    assert (outer6.flow, outer6.source, outer6.target) == (text6, "fd30::1", "fd30::2")
    assert (outer.flow, outer.source, outer.source_port) == (TEXT, "172.30.0.10", 59104)
    assert reply.lost["events_lost"] == 5
    assert reply.missing[0].program == "drop"
    assert reply.notes == ("a note",)
    unknown = set(result()) - {field.name for field in msgspec.structs.fields(TraceReply)}
    assert unknown == set()


def test_drops_have_reason_and_place_and_fragments_freed_are_none():
    rows = {row["location"]: row for row in result()["drops"]}
    assert set(rows) == {"f+0x5", "flow without actions"}
    assert rows["f+0x5"]["reason"] == "NO_SOCKET"
    assert rows["flow without actions"]["reason"] == "OVS_NO_ACTIONS"


def test_a_journey_is_in_order_and_counts_from_its_begin():
    (way,) = result()["journeys"]
    assert way["flow"] == TEXT
    assert [(hop["stage"], hop["after_ns"]) for hop in way["hops"]] == [
        ("port_receive", 0), ("lookup", 20),
    ]  # fmt: skip


def test_a_journey_that_ends_says_why():
    ends = [event("dropped", 5, location=5, reason=2), event("dropped", 6, journey=2)]
    told = [way["hops"][0] for way in journeys(ends, {2: "NO_SOCKET"}, symbol)]
    assert (told[0]["reason"], told[0]["location"]) == ("NO_SOCKET", "f+0x5")
    assert told[1]["reason"] == "OVS_NO_ACTIONS"


def test_journeys_are_bounded():
    many = [event("lookup", n, journey=n) for n in range(MAX_JOURNEYS + 5)]
    assert len(journeys(many, {}, symbol)) == MAX_JOURNEYS
    assert result(many)["notes"][1] == f"{MAX_JOURNEYS} of {MAX_JOURNEYS + 5} journeys are told"


def test_names_of_reasons_and_results():
    assert reason_text(0, {}) == "unknown"
    assert reason_text(70, {}) == "reason 70"
    assert result_text(-107) == "ENOTCONN"
