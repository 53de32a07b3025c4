# SPDX-License-Identifier: Apache-2.0
"""Watches the board: what checks of it find twice in a row, and PCIe errors that go on.

Reads no clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from netagent.host.checks import inspect
from netagent.host.checks.contract import Checked, Inspected, State
from netagent.host.counters import growth
from netagent.host.hardware import Nic, PciFunction, PciLink
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, rnic

HOLD_NS = 600_000_000_000
"""Nanoseconds from an error that PCIe could not correct until it is no finding any more. Chosen:
they come in bursts, and one incident of ten minutes is better than ten."""
CORRECTED_PER_MIN = 100
"""Corrected errors per minute, in two looks in a row, that are a finding. Chosen: a healthy link
has some a day; each costs a replay."""
UNCORRECTED = ("nonfatal", "fatal")
OWN_PORTS = 2
"""Functions on its way that are an RNIC's own: itself, and the port that it is plugged into."""

_Key = tuple[FindingKind, Component]


@dataclass(slots=True)
class _Port:
    """What is remembered of one function."""

    errors: dict[str, int]
    read_ns: int
    failed_ns: int | None = None
    """When an error that could not be corrected was last seen."""
    rate: float = 0.0
    """Corrected errors per minute, between the last two looks; the lower of two."""
    last_rate: float = 0.0


@dataclass(slots=True)
class BoardWatch:
    """Turns successive readings of the board into findings."""

    _before: set[_Key] = field(default_factory=set)
    _best: dict[str, PciLink] = field(default_factory=dict)
    """The widest and fastest link that each RNIC was seen to have."""
    _ports: dict[str, _Port] = field(default_factory=dict)

    def observe(self, seen: Inspected, *, now_ns: int) -> tuple[Finding, ...]:
        """Take in one reading, and return what holds. `seen.rdma` is not needed."""
        said = [c for c in inspect(seen) if c.state is State.WRONG and c.kind and c.component]
        said += self._shrunk(seen)
        by_key: dict[_Key, list[Checked]] = {}
        for each in said:
            if each.kind and each.component:
                by_key.setdefault((each.kind, each.component), []).append(each)
        lasting = by_key.keys() & self._before
        self._before = set(by_key)
        found = [_finding(key, by_key[key]) for key in sorted(lasting)]
        return (*found, *self._errors(seen, now_ns))

    def _shrunk(self, seen: Inspected) -> Iterator[Checked]:
        """Yield RNICs whose PCIe link was better before."""
        links = {n.netdev: n.placed.function.link for n in seen.hardware.nics if n.placed}
        self._best = {name: best for name, best in self._best.items() if name in links}
        for name, link in links.items():
            best = self._best.get(name)
            if link is None:
                continue
            if best is None or _bps(link) >= _bps(best):
                self._best[name] = link
            else:
                share = _bps(link) / _bps(best)
                text = (
                    f"{name} has {link} on PCIe, and had {best} before: nothing is lost, but the "
                    f"host can feed it {share:.0%} of what it did"
                )
                evidence = {"link": str(link), "before": str(best)}
                yield Checked(
                    "PCIe link", State.WRONG, text, "", rnic(seen.host, name),
                    FindingKind.PCIE_REDUCED, evidence,
                )  # fmt: skip

    def _errors(self, seen: Inspected, now_ns: int) -> Iterator[Finding]:
        """Yield an RNIC for its own function and slot, and the host for ports further up.

        Those are shared with GPUs and other cards: whose errors they count is not known.
        """
        ways = {nic.netdev: list(_way(nic)) for nic in seen.hardware.nics}
        known = {port.address: port for way in ways.values() for port in way}
        self._ports = {
            address: _advanced(self._ports.get(address), port, now_ns)
            for address, port in known.items()
        }
        whose: dict[Component, dict[str, str]] = {}
        for name, way in ways.items():
            for place, port in enumerate(way):
                if why := _why(port, self._ports[port.address], now_ns):
                    part = rnic(seen.host, name) if place < OWN_PORTS else seen.itself
                    whose.setdefault(part, {})[port.address] = why
        for component, reasons in whose.items():
            text = f"PCIe: {'; '.join(reasons.values())}"
            yield Finding(FindingKind.PCIE_ERRORS, component, text, 0)


def _finding(key: _Key, said: Iterable[Checked]) -> Finding:
    kind, component = key
    read = {name: text for each in said for name, text in each.evidence.items()}
    return Finding(kind, component, "; ".join(each.text for each in said), 0, read)


def _bps(link: PciLink) -> float:
    return link.gts * link.lanes


def _way(nic: Nic) -> Iterator[PciFunction]:
    if nic.placed:
        yield from (nic.placed.function, *nic.placed.above)


def _advanced(known: _Port | None, port: PciFunction, now_ns: int) -> _Port:
    errors = dict(port.errors)
    if known is None or now_ns <= known.read_ns:
        return _Port(errors, now_ns)
    grown = {name: growth(known.errors.get(name, now), now) for name, now in errors.items()}
    failed = any(grown.get(name) for name in UNCORRECTED)
    per_min = grown.get("correctable", 0) / ((now_ns - known.read_ns) / 60e9)
    return _Port(
        errors, now_ns, now_ns if failed else known.failed_ns,
        min(per_min, known.last_rate), per_min,
    )  # fmt: skip


def _why(port: PciFunction, known: _Port, now_ns: int) -> str:
    if known.failed_ns is not None and now_ns - known.failed_ns < HOLD_NS:
        counted = ", ".join(f"{port.errors.get(name, 0)} {name}" for name in UNCORRECTED)
        return f"{port.address} could not correct errors ({counted} so far)"
    if known.rate >= CORRECTED_PER_MIN:
        return f"{port.address} corrects {known.rate:.0f} errors a minute"
    return ""
