# SPDX-License-Identifier: Apache-2.0
"""What a trace is asked: plain data from outside, checked against sane limits."""

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bpf.trace.abi import NAME_BYTES, Filter
from bpf.trace.flowspec import FlowSpec, parse_flow
from bpf.trace.programs import KINDS
from netagent.model.encapsulation import KNOWN, VXLAN, Encapsulation
from netagent.model.errors import ConfigError

MAX_LINE_BYTES = 1 << 16
"""Most bytes of a request's line. Chosen: far above any request."""
MAX_DURATION_S = 60.0
"""Most seconds that a trace counts. Chosen: hooks cost every packet; longer questions are asked
again."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How much a trace may take of this host."""

    journeys: int = 8_192
    """Packets followed at one time; 90 bytes of kernel memory each."""

    journeys_per_s: int = 50_000
    """Packets followed per second; more are only counted."""

    events_per_s: int = 2_000
    """Events sent per second, for `path`: whole journeys, 16 events each at most."""

    rows: int = 2_048
    """Entries of each map: devices, drops, outer headers; what does not fit is counted as lost."""

    ring_pages: int = 64
    """Pages of the ring buffer; a power of two."""


LIMITS = {
    "journeys": (64, 65_536),
    "journeys_per_s": (0, 1_000_000),
    "events_per_s": (0, 100_000),
    "rows": (16, 4_096),
    "ring_pages": (1, 1_024),
}
"""Smallest and largest value of each cap."""


@dataclass(frozen=True, slots=True)
class Request:
    """One trace."""

    kind: str
    """A key of `programs.KINDS`."""

    flow: FlowSpec
    netns: int
    """Inode of the network namespace that holds the switch."""

    duration_ns: int
    uplink: str = ""
    """Name of the only device whose encapsulated packets count; empty: every device."""

    caps: Caps = field(default_factory=Caps)
    tunnel: Encapsulation = VXLAN

    @property
    def events_per_s(self) -> int:
        """Return the events wanted per second; only the kind `path` uses events."""
        return self.caps.events_per_s if self.kind == "path" else 0

    def filter(self) -> Filter:
        """Return what the kernel is told."""
        return self.flow.filter(
            self.netns,
            uplink=self.uplink,
            journeys_per_s=self.caps.journeys_per_s,
            events_per_s=self.events_per_s,
            tunnel=self.tunnel,
        )


def read_request(line: bytes) -> Request:
    """Return the request in a line of JSON; raises ConfigError, which names the member at fault."""
    try:
        data = json.loads(line[:MAX_LINE_BYTES])
    except ValueError as error:
        raise ConfigError("request", f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError("request", "no object")
    known = {"kind", "flow", "netns", "duration_s", "uplink", "caps", "tunnel", "tunnel_port"}
    if unknown := set(data) - known:
        raise ConfigError("request", f"unknown member {min(unknown)}")
    kind, uplink = data.get("kind"), data.get("uplink", "")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError("request", f"kind is none of {', '.join(KINDS)}")
    if not isinstance(uplink, str) or len(uplink.encode()) >= NAME_BYTES:
        raise ConfigError("request", "uplink is no name of a device")
    flow = data.get("flow", "")
    if not isinstance(flow, str):
        raise ConfigError("request", "flow is no text")
    netns = _number(data, "netns", 1, (1 << 32) - 1)
    duration_s = data.get("duration_s")
    if not isinstance(duration_s, int | float) or not 0 < duration_s <= MAX_DURATION_S:
        raise ConfigError("request", f"duration_s is not within 0 and {MAX_DURATION_S:.0f}")
    caps = _caps(data.get("caps", {}))
    duration_ns = int(duration_s * 1e9)
    return Request(kind, parse_flow(flow), netns, duration_ns, uplink, caps, _tunnel(data))


def _tunnel(data: dict[str, Any]) -> Encapsulation:
    name = data.get("tunnel") or VXLAN.kind
    known = KNOWN.get(name) if isinstance(name, str) else None
    if known is None:
        raise ConfigError("request", f"tunnel is none of {', '.join(KNOWN)}")
    port = _number(data, "tunnel_port", 0, (1 << 16) - 1) if "tunnel_port" in data else 0
    return replace(known, port=port) if port else known


def _caps(data: Any) -> Caps:
    if not isinstance(data, dict):
        raise ConfigError("request", "caps is no object")
    if unknown := set(data) - set(LIMITS):
        raise ConfigError("request", f"unknown cap {min(unknown)}")
    values = {
        each.name: _number(data, each.name, *LIMITS[each.name])
        for each in fields(Caps)
        if each.name in data
    }
    caps = Caps(**values)
    if caps.ring_pages & (caps.ring_pages - 1):
        raise ConfigError("request", "ring_pages is no power of two")
    return caps


def _number(data: dict[str, Any], name: str, low: int, high: int) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError("request", f"{name} is not within {low} and {high}")
    return value
