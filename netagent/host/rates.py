# SPDX-License-Identifier: Apache-2.0
"""Watches how fast ports run: slower than they did, or than the host's others. Reads no clock.

Cables and transceivers that fail let ports train with fewer lanes or at a lower speed. Probes are
small and lose nothing; the training task waits for its slowest port.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from netagent.model.finding import Finding, FindingKind
from netagent.model.path import rnic

REDUCED = 0.9
"""Share of the usual rate below which a port is slow. Chosen: rates are nominal, and the next lower
one of Ethernet or InfiniBand is four fifths at most (50 to 40 Gb/s)."""
HOLD_NS = 3_000_000_000
"""Nanoseconds between two readings that must agree, as all between them do. Chosen: while a port
trains, and a driver has not heard of it, a reading may be odd, and so may the next one soon after.
"""
LEAST_SIBLINGS = 3
"""Fewest other ports that must all run alike for one to be slower than them. Chosen: of two ports
nobody knows which one is odd, and of three one may have another purpose."""


@dataclass(frozen=True, slots=True)
class PortRate:
    """What a port runs at."""

    bps: int
    """Nominal bits per second, all lanes together."""
    lanes: int | None = None
    """None where it is not said."""


@dataclass(slots=True)
class _Port:
    """What is remembered of one port."""

    read: PortRate | None = None
    """As last read."""
    since_ns: int = 0
    """When it was first read like that, of all readings in a row."""
    steady: PortRate | None = None
    """As read twice and for long enough; None: not known."""
    best: PortRate | None = None
    """The fastest that it was steady at."""


class RateWatch:
    """Turns successive readings of the ports' rates into findings. One odd reading is nothing."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._ports: dict[str, _Port] = {}

    def observe(self, rates: Mapping[str, PortRate | None], *, now_ns: int) -> tuple[Finding, ...]:
        """Take in one reading of each port, and return what holds now; others are forgotten.

        None: the port does not say, as while it is down.
        """
        self._ports = {name: self._ports.get(name) or _Port() for name in sorted(rates)}
        for name, port in self._ports.items():
            _take(port, rates[name], now_ns)
        return tuple(self._findings())

    def _findings(self) -> Iterator[Finding]:
        steady = {n: port.steady for n, port in self._ports.items() if port.steady is not None}
        for name, rate in steady.items():
            best = self._ports[name].best or rate
            others = [each.bps for other, each in steady.items() if other != name]
            if rate.bps < REDUCED * best.bps:
                usual, why = best.bps, f"and ran at {_said(best)} before"
            elif (common := _common(others)) is not None and rate.bps < REDUCED * common:
                usual, why = common, f"and the host's {len(others)} others at {_gbps(common)}"
            else:
                continue
            text = (
                f"{name} runs at {_said(rate)}, {why}: nothing is lost, but it carries "
                f"{rate.bps / usual:.0%} of what it should"
            )
            evidence = {"rate": _said(rate), "usual": _gbps(usual)}
            yield Finding(FindingKind.RATE_REDUCED, rnic(self._host, name), text, 0, evidence)


def _take(port: _Port, rate: PortRate | None, now_ns: int) -> None:
    if rate != port.read:
        port.read, port.since_ns = rate, now_ns
    elif now_ns - port.since_ns >= HOLD_NS:
        port.steady = rate
        if rate is not None and (port.best is None or rate.bps > port.best.bps):
            port.best = rate


def _common(rates: Collection[int]) -> int | None:
    """Return the rate that all of these have, if they are enough to be a rule."""
    if len(rates) < LEAST_SIBLINGS or len(Counter(rates)) != 1:
        return None
    return next(iter(rates))


def _said(rate: PortRate) -> str:
    lanes = f" ({rate.lanes} lane{'s' * (rate.lanes != 1)})" if rate.lanes else ""
    return _gbps(rate.bps) + lanes


def _gbps(bps: int) -> str:
    return f"{bps / 1e9:g} Gb/s"
