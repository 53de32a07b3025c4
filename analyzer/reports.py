# SPDX-License-Identifier: Apache-2.0
"""What an agent says of itself and of its RNICs in a window, for people to read."""

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.messages import CounterColumns, Health, Summary

STAMPS = ("kernel", "process", "rnic")
"""Who takes t2 and t5, by the number in `Summary.stamps`; others are another host's."""


@dataclass(frozen=True, slots=True)
class Report:
    """Of one host's window."""

    start_ns: int
    health: Health
    counters: Mapping[str, Mapping[str, int]]
    """RDMA device -> counter -> what it grew by."""
    omitted: int
    """Counters that the agent left out, the least important ones."""
    stamps: Mapping[EndpointId, str]
    """The host's own endpoints -> one of `STAMPS`."""


def report_of(summary: Summary) -> Report:
    """Return what `summary` reports; RemoteProtocolError where its columns do not agree."""
    if summary.stamps and len(summary.stamps) != len(summary.endpoints):
        raise RemoteProtocolError(
            f"{len(summary.stamps)} stamps for {len(summary.endpoints)} endpoints"
        )
    stamps = {
        endpoint: STAMPS[number]
        for endpoint, number in zip(summary.endpoints, summary.stamps, strict=False)
        if number < len(STAMPS)
    }
    counters = summary.counters
    return Report(summary.start_ns, summary.health, _grown(counters), counters.omitted, stamps)


def _grown(columns: CounterColumns) -> dict[str, dict[str, int]]:
    grown: dict[str, dict[str, int]] = defaultdict(dict)
    try:
        devices = struct.iter_unpack("<H", columns.device)
        counters = struct.iter_unpack("<H", columns.counter)
        deltas = struct.iter_unpack("<Q", columns.delta)
        for (device,), (counter,), (delta,) in zip(devices, counters, deltas, strict=True):
            grown[columns.devices[device]][columns.counters[counter]] = delta
    except (IndexError, ValueError, struct.error) as error:
        raise RemoteProtocolError(f"counter columns do not agree: {error}") from error
    return dict(grown)
