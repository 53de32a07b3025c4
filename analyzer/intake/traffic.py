# SPDX-License-Identifier: Apache-2.0
"""Recent traffic of endpoints, as their agents report it: a ring of ticks per endpoint. Pure.

Ticks keep the number that their host's wall clock gave them, so late or repeated ticks fall into
their place. Series are read on the analyzer's clock: each host's series are shifted by the measured
offset of its clock.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import column
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.messages import UNKNOWN_BYTES, ClockOffset, SummaryHead, TrafficBlock

Floats = NDArray[np.float64]

TICKS = 1200
"""Newest ticks kept per endpoint and tick width. Chosen: twenty minutes of seconds or two minutes
of tenths, at 4.8 kB each."""
MAX_BLOCK_TICKS = 4096
"""Most ticks in one block of a summary. Chosen: bounds memory; beyond what a ring keeps."""
TICK_NS = range(100_000_000, 10_000_000_001, 100_000_000)
"""Tick widths, in nanoseconds, that agents may send: those of `[traffic] tick_ms` in agent.toml."""
MAX_BLOCKS = 16
"""Most blocks of traffic in one summary. Chosen: bounds the work that one summary can cause."""
MAX_TRAFFIC_ROWS = 8192
"""Most rows in all blocks of one summary. Chosen: all endpoints of the largest host, in two widths
of ticks; each row costs the process that receives some microseconds."""
MAX_RINGS = 4
"""Most tick widths in which one endpoint's series are kept. Chosen: bounds memory; an agent sends
two, its own and tenths."""
SHIFTED = 0.02
"""Share of a tick below which a clock's offset is ignored. Chosen: the shift would cost time and
smooth the series for nothing."""
FORGET_NS = 1800 * 10**9
"""Nanoseconds after which an endpoint without traffic is forgotten. Chosen: longer than a ring of
seconds reaches back."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One block of a summary, unpacked."""

    first: int
    """Number of the first tick since the epoch."""
    tick_ns: int
    endpoints: tuple[EndpointId, ...]
    sent: NDArray[np.float32]
    """(n_endpoints, ticks): bytes, NaN for a gap."""


def traffic_of(summary: SummaryHead) -> list[Traffic]:
    """Return the summary's blocks; RemoteProtocolError where one makes no sense."""
    if len(summary.traffic) > MAX_BLOCKS:
        raise RemoteProtocolError(f"{len(summary.traffic)} blocks of traffic")
    if sum(len(block.endpoint) for block in summary.traffic) > 2 * MAX_TRAFFIC_ROWS:
        raise RemoteProtocolError(f"traffic of more than {MAX_TRAFFIC_ROWS} endpoints and ticks")
    return [_unpacked(block, summary) for block in summary.traffic]


def _unpacked(block: TrafficBlock, summary: SummaryHead) -> Traffic:
    if block.tick_ns not in TICK_NS or block.start_ns < 0 or block.start_ns % block.tick_ns:
        raise RemoteProtocolError(f"no ticks of {block.tick_ns} ns begin at {block.start_ns}")
    rows, sent = column(block, "endpoint"), column(block, "sent")
    if (
        not len(rows)
        or not len(sent)
        or len(sent) % len(rows)
        or len(sent) > len(rows) * MAX_BLOCK_TICKS
    ):
        raise RemoteProtocolError(f"{len(sent)} ticks of traffic for {len(rows)} endpoints")
    if int(rows.max()) >= len(summary.endpoints) or len(np.unique(rows)) < len(rows):
        raise RemoteProtocolError("traffic of an endpoint that is not in the table, or twice")
    values = np.where(sent == UNKNOWN_BYTES, np.nan, sent.astype(np.float64))
    return Traffic(
        block.start_ns // block.tick_ns,
        block.tick_ns,
        tuple(summary.endpoints[row] for row in rows.tolist()),
        values.astype(np.float32).reshape(len(rows), -1),
    )


@dataclass(slots=True)
class _Ring:
    """The newest ticks of one endpoint."""

    values: NDArray[np.float32] = field(
        default_factory=lambda: np.full(TICKS, np.nan, dtype=np.float32)
    )
    end: int = 0
    """Number of the tick after the newest."""

    def put(self, first: int, values: NDArray[np.float32]) -> None:
        last = first + len(values)
        if last > self.end + TICKS or last < self.end - TICKS:
            self.values[:] = np.nan  # far later, or a clock that was far ahead was set back
            self.end = last
        elif last > self.end:
            self.values[np.arange(self.end, last) % TICKS] = np.nan
            self.end = last
        kept = max(first, self.end - TICKS)
        if kept < last:
            at, new = np.arange(kept, last) % TICKS, values[kept - first :]
            told = ~np.isnan(new)  # a gap overwrites no earlier value
            self.values[at[told]] = new[told]

    def get(self, first: int, ticks: int) -> Floats:
        at = np.arange(first, first + ticks)
        inside = (at >= self.end - TICKS) & (at < self.end)
        return np.where(inside, self.values[at % TICKS].astype(np.float64), np.nan)


class TrafficBook:
    """The series of all endpoints."""

    def __init__(self) -> None:
        self._rings: dict[int, dict[EndpointId, _Ring]] = {}
        """Tick width in ns -> endpoint -> its ring."""
        self._clocks: dict[str, tuple[ClockOffset, int]] = {}
        """Host -> its clock's offset, and when the host reported it, Unix ns."""
        self._seen_ns: dict[EndpointId, int] = {}

    def add(
        self,
        host: str,
        clock: ClockOffset | None,
        blocks: Iterable[Traffic],
        held: Container[EndpointId],
        wall_ns: int,
    ) -> None:
        """Add a host's traffic of the endpoints in `held`, and of no others."""
        if clock is not None:
            self._clocks[host] = clock, wall_ns
        for block in blocks:
            rings = self._rings.setdefault(block.tick_ns, {})
            for endpoint, values in zip(block.endpoints, block.sent, strict=True):
                if endpoint in held and (endpoint in rings or self._has_room(endpoint)):
                    rings.setdefault(endpoint, _Ring()).put(block.first, values)
                    self._seen_ns[endpoint] = wall_ns

    def _has_room(self, endpoint: EndpointId) -> bool:
        return sum(endpoint in rings for rings in self._rings.values()) < MAX_RINGS

    def ticks_ns(self) -> list[int]:
        """Return the ticks in which series came, coarsest first."""
        return sorted((tick for tick, rings in list(self._rings.items()) if rings), reverse=True)

    def series(
        self, members: Sequence[tuple[EndpointId, str]], tick_ns: int, first: int, ticks: int
    ) -> Floats:
        """Return (n_members, ticks) bytes sent since tick `first`, NaN where it is not known.

        Members are endpoints with their hosts.
        """
        made = np.empty((len(members), ticks))
        for row, (endpoint, host) in enumerate(members):
            made[row] = self._shifted(endpoint, host, tick_ns, first, ticks)
        return made

    def sent(
        self, members: Sequence[tuple[EndpointId, str]], since_ns: int, until_ns: int
    ) -> float:
        """Return how many bytes endpoints sent between two instants, by the seconds known.

        NaN where nothing is known.
        """
        first, ticks = since_ns // 10**9, (until_ns - since_ns) // 10**9
        rate = self.series(members, 10**9, first, ticks)
        known = rate[~np.isnan(rate)]
        return float(known.mean()) * rate.size if known.size else math.nan

    def forget(self, wall_ns: int) -> None:
        """Drop endpoints, series and clocks that nothing came for in the last FORGET_NS."""
        old = {each for each, at_ns in self._seen_ns.items() if at_ns < wall_ns - FORGET_NS}
        for tick_ns, rings in self._rings.items():
            oldest = (wall_ns - FORGET_NS) // tick_ns
            for endpoint in [e for e, ring in rings.items() if e in old or ring.end < oldest]:
                del rings[endpoint]
        for endpoint in old:
            del self._seen_ns[endpoint]
        self._rings = {tick_ns: rings for tick_ns, rings in self._rings.items() if rings}
        self._clocks = {h: c for h, c in self._clocks.items() if c[1] >= wall_ns - FORGET_NS}

    def _shifted(
        self, endpoint: EndpointId, host: str, tick_ns: int, first: int, ticks: int
    ) -> Floats:
        late = self._late(host, tick_ns)
        whole, part = int(np.floor(late)), late - np.floor(late)
        if part < SHIFTED:
            return self._get(endpoint, tick_ns, first - whole, ticks)
        raw = self._get(endpoint, tick_ns, first - whole - 1, ticks + 1)
        shifted: Floats = (1 - part) * raw[1:] + part * raw[:-1]
        return shifted

    def _late(self, host: str, tick_ns: int) -> float:
        """Return the ticks by which the analyzer's clock is ahead of the host's."""
        clock, _ = self._clocks.get(host, (None, 0))
        if clock is None or abs(clock.offset_ns) < max(clock.error_ns, SHIFTED * tick_ns):
            return 0.0
        return clock.offset_ns / tick_ns

    def _get(self, endpoint: EndpointId, tick_ns: int, first: int, ticks: int) -> Floats:
        ring = self._rings.get(tick_ns, {}).get(endpoint)
        found = ring.get(first, ticks) if ring else np.full(ticks, np.nan)
        for finer_ns, rings in list(self._rings.items()):
            finer_ring = rings.get(endpoint)
            if finer_ns < tick_ns and tick_ns % finer_ns == 0 and finer_ring is not None:
                times = tick_ns // finer_ns
                finer = finer_ring.get(first * times, ticks * times)
                found = np.where(np.isnan(found), finer.reshape(ticks, times).sum(axis=1), found)
        return found
