# SPDX-License-Identifier: Apache-2.0
"""Watches the RNICs' devices: down, and flapping."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from netagent.host.facts import Link
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import rnic

FLAP_SPAN_NS = 30_000_000_000
"""Nanoseconds within which carrier transitions count together. Chosen: faults that recur less often
are outages of their own."""

FLAP_COUNT = 3
"""Transitions within the span that make a device flapping. Chosen: one outage and its repair make
two."""

FLAP_HOLD_NS = 8_000_000_000
"""Nanoseconds from a flapping device's last transition until it no longer counts as flapping.
Chosen: longer than a default window of five seconds, so the finding does not come and go."""


@dataclass(slots=True)
class _Device:
    """What is remembered of one RNIC."""

    link: Link | None
    base: int
    """Kernel's count of carrier transitions when the device was first seen."""
    seen: int = 0
    """Transitions seen with our own eyes."""
    counted: int = 0
    times_ns: deque[int] = field(default_factory=deque)
    """When the latest transitions happened, oldest first."""
    flapping: bool = False


class RnicWatch:
    """Turns successive sights of the RNICs into findings. Reads no clock."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._devices: dict[str, _Device] = {}

    def observe(self, names: Iterable[str], links: Mapping[str, Link], *, now_ns: int) -> None:
        """Take in the devices called `names` as they are now; others are forgotten."""
        wanted = set(names)
        self._devices = {name: kept for name, kept in self._devices.items() if name in wanted}
        for name in wanted:
            link = links.get(name)
            known = self._devices.get(name)
            if known is None:
                self._devices[name] = _Device(link, link.carrier_changes or 0 if link else 0)
            else:
                _count(known, link, now_ns)
            _judge(self._devices[name], now_ns)

    def findings(
        self, *, wall_ns: int, covered: Collection[str] = frozenset()
    ) -> Iterator[Finding]:
        """Yield what holds since the last observation.

        `covered` are members of bonds whose others do their work: their rails are not down.
        """
        for name, device in sorted(self._devices.items()):
            if name not in covered and (reason := _why_down(device.link)):
                text = f"{name} {reason}"
                read = {"carrier": "0"} if device.link and device.link.up else {}
                yield Finding(FindingKind.RNIC_DOWN, rnic(self._host, name), text, wall_ns, read)
            if device.flapping:
                text = f"{name} went up or down {len(device.times_ns)} times lately"
                evidence = {"transitions": str(device.counted)}
                component = rnic(self._host, name)
                yield Finding(FindingKind.RNIC_FLAPPING, component, text, wall_ns, evidence)

    def deadline_ns(self) -> int | None:
        """Return when to observe again, because a device may have stopped flapping."""
        ends = (d.times_ns[-1] + FLAP_HOLD_NS for d in self._devices.values() if d.flapping)
        return min(ends, default=None)


def _why_down(link: Link | None) -> str | None:
    if link is None:
        return "does not exist"
    if not link.up:
        return "is administratively down"
    return None if link.carrier else f"has no carrier (operstate {link.operstate})"


def _count(device: _Device, link: Link | None, now_ns: int) -> None:
    """Account for the transitions between the last sight and this one.

    The kernel's counter also has those between two sights, but not every driver counts an
    administrative change in it; on others the same change is seen and, a moment later, counted.
    The larger of both sums never counts one transition twice.
    """
    was = device.link.usable if device.link else False
    device.seen += was != (link.usable if link else False)
    total = max(device.seen, device.counted)
    if link is not None and link.carrier_changes is not None:
        if device.link is None or device.link.index != link.index:
            device.base = link.carrier_changes - total  # made anew: its counter started over
        total = max(total, link.carrier_changes - device.base)
    # More stamps than the limit say nothing more.
    device.times_ns.extend([now_ns] * min(total - device.counted, 2 * FLAP_COUNT))
    device.counted, device.link = total, link


def _judge(device: _Device, now_ns: int) -> None:
    times = device.times_ns
    while times and now_ns - times[0] > FLAP_SPAN_NS:
        times.popleft()
    if len(times) >= FLAP_COUNT and now_ns - times[-1] < FLAP_HOLD_NS:
        device.flapping = True
    elif not times or now_ns - times[-1] >= FLAP_HOLD_NS:
        device.flapping = False
