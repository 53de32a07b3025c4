# SPDX-License-Identifier: Apache-2.0
"""What a host's metrics are made of, and which counters of its RNICs are among them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from netagent.host.counters import rank
from netagent.host.rdma_facts import RdmaDevice
from netagent.wire.messages import Status

MAX_COUNTERS = 1_024
"""Most series of RNICs' counters; the least important ones are left out. Chosen: eight devices with
all that mlx5 has, and a bound for whatever else a host has."""

Counter = tuple[str, str, str, int]
"""Device, port, name and value."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads an agent; each is as of now."""

    status: Callable[[], Awaitable[Status]]
    totals: Callable[[], Mapping[str, int]]
    """Sums of fields of `Health` since the start."""
    devices: Callable[[], Iterable[RdmaDevice]]
    certificate_ends_s: Callable[[], float | None]
    """Unix time; None without TLS."""
    rings: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Records of operators that were read, and that were missed, since the start."""


def counters_of(devices: Iterable[RdmaDevice]) -> list[Counter]:
    """Return the devices' counters, the most important ones first; unknown names are left out."""
    known = [
        (place, device.name, port.port, name, value)
        for device in devices
        for port in device.ports
        for name, value in port.counters.items()
        if (place := rank(name)) is not None
    ]
    return [
        (device, str(port), name, value)
        for _, device, port, name, value in sorted(known)[:MAX_COUNTERS]
    ]
