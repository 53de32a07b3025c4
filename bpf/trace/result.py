# SPDX-License-Identifier: Apache-2.0
"""Makes plain data of what was counted: the schema of `netagent.wire.trace`."""

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bpf.trace.abi import Event, Readings, Totals, address_text
from bpf.trace.flowspec import flow_text
from bpf.trace.histogram import quantile_ns
from bpf.trace.programs import Refusal, counted_stages

if TYPE_CHECKING:
    from bpf.trace.request import Request

MAX_JOURNEYS = 500
"""Most journeys in one result. Chosen: a person reads a few, and an answer stays small."""

MAX_OUTERS = 1_000
"""Most outer headers in one result; those with most packets are kept. Chosen: an answer stays
small."""
NO_ACTIONS = "flow without actions"
PART_OF_ANOTHER = "skb_release_data"
"""Frees the fragments of a packet that was reassembled, and calls it a drop."""

COMMANDS = {1: "miss", 2: "action"}

Data = dict[str, Any]


def to_result(
    request: "Request",
    readings: "Readings",
    events: Sequence[Event],
    *,
    lasted_ns: int,
    attached: Sequence[str],
    refusals: Sequence[Refusal],
    reasons: Mapping[int, str],
    symbol: Callable[[int], str],
    notes: Sequence[str] = (),
) -> Data:
    """Return the answer of one trace."""
    counted = counted_stages(attached)
    return {
        "kind": request.kind,
        "flow": str(request.flow),
        "netns": request.netns,
        "lasted_ns": lasted_ns,
        "stages": [_stage(name, readings.stages[name]) for name in counted],
        "ports": [
            {"stage": key.stage, "device": key.device, "vni": key.vni, "packets": packets}
            for key, packets in sorted(readings.ports.items(), key=lambda row: str(row[0]))
        ],
        "drops": [
            {
                "reason": reason_text(key.reason, reasons) if key.location else "OVS_NO_ACTIONS",
                "location": symbol(key.location) if key.location else NO_ACTIONS,
                "after": key.after,
                "device": key.device,
                "packets": packets,
            }
            for key, packets in sorted(readings.drops.items(), key=lambda row: -row[1])
            if not symbol(key.location).startswith(PART_OF_ANOTHER)
        ],
        "upcalls": [
            {
                "command": COMMANDS.get(key.command, str(key.command)),
                "result": result_text(key.result),
                "packets": packets,
            }
            for key, packets in sorted(readings.upcalls.items(), key=lambda row: -row[1])
        ],
        "outers": _outers(readings),
        "roce": [
            {
                "device": key.device,
                "transmitted": key.transmitted,
                "encapsulated": key.encapsulated,
                "packets": packets,
            }
            for key, packets in sorted(readings.roce.items(), key=lambda row: str(row[0]))
        ],
        "journeys": journeys(events, reasons, symbol),
        "lost": dict(readings.counters),
        "missing": [
            {"program": each.program, "reason": each.reason, "remedy": each.remedy}
            for each in refusals
        ],
        "notes": [*notes, *_cuts(readings, events)],
    }


def _stage(name: str, totals: Totals) -> Data:
    return {
        "stage": name,
        "packets": totals.packets,
        "bytes": totals.octets,
        "repeats": totals.repeats,
        "foreign": totals.foreign,
        "samples": sum(totals.buckets),
        "p50_ns": quantile_ns(totals.buckets, 0.5),
        "p99_ns": quantile_ns(totals.buckets, 0.99),
        "buckets": [[bucket, count] for bucket, count in enumerate(totals.buckets) if count],
    }


def _cuts(readings: "Readings", events: Sequence[Event]) -> list[str]:
    """Say what was seen and has no place in the result."""
    rows = (("outer headers", len(readings.outers), MAX_OUTERS),
            ("journeys", len({event.journey for event in events}), MAX_JOURNEYS))  # fmt: skip
    return [f"{most} of {count} {name} are told" for name, count, most in rows if count > most]


def _outers(readings: "Readings") -> list[Data]:
    rows = sorted(readings.outers.items(), key=lambda row: -row[1])[:MAX_OUTERS]
    return [
        {
            "flow": flow_text(key.inner),
            "source": address_text(key.source),
            "target": address_text(key.target),
            "source_port": key.source_port,
            "vni": key.vni,
            "transmitted": key.transmitted,
            "packets": packets,
        }
        for key, packets in rows
    ]


def journeys(
    events: Sequence[Event], reasons: Mapping[int, str], symbol: Callable[[int], str]
) -> list[Data]:
    """Return packets' ways, in the order they began; times are since the first stage."""
    found: dict[int, list[Event]] = {}
    for event in events:
        found.setdefault(event.journey, []).append(event)
    ways = []
    for way in list(found.values())[:MAX_JOURNEYS]:
        ordered = sorted(way, key=lambda event: event.at_ns)
        ways.append(
            {
                "flow": flow_text(ordered[0].flow),
                "hops": [_hop(event, ordered[0].at_ns, reasons, symbol) for event in ordered],
            }
        )
    return ways


def _hop(
    event: Event, begin_ns: int, reasons: Mapping[int, str], symbol: Callable[[int], str]
) -> Data:
    hop: Data = {
        "stage": event.stage,
        "device": event.device,
        "vni": event.vni,
        "outer_port": event.outer_port,
        "after_ns": event.at_ns - begin_ns,
    }
    if event.stage == "dropped":
        hop["reason"] = reason_text(event.reason, reasons) if event.location else "OVS_NO_ACTIONS"
        hop["location"] = symbol(event.location) if event.location else NO_ACTIONS
    return hop


def reason_text(reason: int, reasons: Mapping[int, str]) -> str:
    """Return a drop reason's name; kernels before 5.17 give none."""
    return reasons.get(reason) or (f"reason {reason}" if reason else "unknown")


def result_text(result: int) -> str:
    """Return `ok` or the name of the error a kernel function returned."""
    return errno.errorcode.get(-result, str(result)) if result else "ok"
