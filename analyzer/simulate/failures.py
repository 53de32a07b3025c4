# SPDX-License-Identifier: Apache-2.0
"""The nineteen failure types of SkeletonHunter's Table 1, as what they do to packets.

Signatures are the reference's where it has numbers: a software path is 87 us where the offloaded
one is 16 (type 9, 14), flows with a new mask are 60 us and the others of the RNIC three times as
slow (16), a re-offloaded flow is slow in periods (15). Shares that nobody published are drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from analyzer.simulate.clos import Clos
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind, link, switch

MS = 1_000_000
SECOND = 1_000_000_000


class Family(StrEnum):
    """What kind of component is at fault, as an operator sends somebody."""

    LINK = "link"
    SWITCH = "switch"
    RNIC = "rnic"
    HOST = "host"
    CONTAINER = "container"
    AGENT = "agent"


@dataclass(frozen=True)
class Effect:
    """What happens to packets that cross something, from the failure's start on."""

    at: Component | tuple[str, str]
    """A component, or one direction of a link."""
    loss: float = 0.0
    """Probability that a packet is lost at each crossing."""
    delay_ns: float = 0.0
    """Median of what is added to a round trip that crosses it; log-normal."""
    spread: float = 0.3
    """Standard deviation of the logarithm of that."""
    share: float = 1.0
    """Share of the flows that are hit, the same ones for ever."""
    period_ns: int = 0
    """0: all the time; else it comes and goes."""
    duty: float = 1.0
    """Share of a period in which it is there."""
    large_only: bool = False
    kept_ns: float = 0.0
    """Median of how long the host keeps each probe that it sends or answers; log-normal."""
    reroute_ns: int = 0
    """Nanoseconds until routers avoid the switch; 0: they never do."""


@dataclass(frozen=True)
class Failure:
    """A failure with its truth."""

    number: int
    """Row of Table 1."""
    truth: Component
    family: Family
    effects: tuple[Effect, ...]
    also: frozenset[Component] = frozenset()
    """Components that no evidence in reach can tell from the truth."""
    finding: FindingKind | None = None
    """What the host states of the truth."""
    start_ns: int = 0
    """Since the begin of the episode."""
    hosts: frozenset[str] = field(default=frozenset())
    """Hosts that state it."""
    kills: str = ""
    """Host whose agent is gone."""
    back_ns: int = 0
    """Nanoseconds until a new agent is there; 0: never."""
    steps: tuple[tuple[int, int], ...] = ()
    """Jumps of the truth's wall clock: when, since the start, and by how much (ns)."""
    harmless: bool = False
    """No part is at fault: nobody may be named but `also`."""


Draw = Callable[[Clos, np.random.Generator], Failure]


def draw(number: int, clos: Clos, rng: np.random.Generator) -> Failure:
    """Return a failure of a type of Table 1, 1 to 19, somewhere in the fabric."""
    return TYPES[number][1](clos, rng)


def _link(clos: Clos, rng: np.random.Generator) -> tuple[str, str]:
    return clos.links[rng.integers(len(clos.links))]


def _spine(clos: Clos, rng: np.random.Generator) -> str:
    names = [each for each in clos.switches if not each.startswith("leaf")]
    return names[rng.integers(len(names))]


def _crc(clos: Clos, rng: np.random.Generator) -> Failure:
    ends = _link(clos, rng)
    at = ends if rng.random() < 0.5 else ends[::-1]
    loss = float(np.exp(rng.uniform(np.log(0.01), np.log(0.2))))
    return Failure(1, link(*ends), Family.LINK, (Effect(at, loss),))


def _port_down(clos: Clos, rng: np.random.Generator) -> Failure:
    return Failure(2, truth := link(*_link(clos, rng)), Family.LINK, (Effect(truth, 1.0),))


def _port_flapping(clos: Clos, rng: np.random.Generator) -> Failure:
    truth = link(*_link(clos, rng))
    effect = Effect(truth, 1.0, period_ns=int(rng.uniform(2, 8) * SECOND), duty=0.3)
    return Failure(3, truth, Family.LINK, (effect,))


def _switch_offline(clos: Clos, rng: np.random.Generator) -> Failure:
    truth = switch(_spine(clos, rng))
    reroute_ns = int(rng.uniform(2, 10) * SECOND) if rng.random() < 0.5 else 0
    return Failure(4, truth, Family.SWITCH, (Effect(truth, 1.0, reroute_ns=reroute_ns),))


def _an_rnic(clos: Clos, rng: np.random.Generator) -> int:
    return int(rng.integers(clos.shape.rnics))


def _around(clos: Clos, number: int) -> frozenset[Component]:
    """Return what nothing tells from an RNIC: the endpoint has no other."""
    return frozenset({Component(Kind.ENDPOINT, str(clos.endpoints[number].id))})


def _on_rnic(
    number: int, finding: FindingKind | None = None, **effect: float
) -> Callable[[Clos, np.random.Generator], Failure]:
    def made(clos: Clos, rng: np.random.Generator) -> Failure:
        at = _an_rnic(clos, rng)
        truth, host = clos.rnic(at), clos.endpoints[at].host
        effects = (Effect(truth, **effect),)  # type: ignore[arg-type]
        return Failure(
            number, truth, Family.RNIC, effects, _around(clos, at), finding,
            hosts=frozenset({host} if finding else ()),
        )  # fmt: skip

    return made


def _on_host(number: int, **effect: float) -> Callable[[Clos, np.random.Generator], Failure]:
    def made(clos: Clos, rng: np.random.Generator) -> Failure:
        host = int(rng.integers(clos.shape.hosts))
        first = clos.endpoints[host * clos.shape.rails]
        truth = Component(Kind.HOST, first.host)
        also = {
            Component(Kind.CONTAINER, first.id.container),
            Component(Kind.VSWITCH, first.host),
        }
        effects = (Effect(truth, **effect),)  # type: ignore[arg-type]
        return Failure(number, truth, Family.HOST, effects, frozenset(also))

    return made


def _rnic_flapping(clos: Clos, rng: np.random.Generator) -> Failure:
    at = _an_rnic(clos, rng)
    effect = Effect(clos.rnic(at), 1.0, period_ns=int(rng.uniform(2, 8) * SECOND), duty=0.3)
    return Failure(8, clos.rnic(at), Family.RNIC, (effect,), _around(clos, at))


def _crash(clos: Clos, rng: np.random.Generator) -> Failure:
    host = int(rng.integers(clos.shape.hosts))
    first = clos.endpoints[host * clos.shape.rails]
    truth = Component(Kind.CONTAINER, first.id.container)
    return Failure(
        17, truth, Family.CONTAINER, (Effect(Component(Kind.HOST, first.host), 1.0),),
        finding=FindingKind.CONTAINER_CRASHED, hosts=frozenset({first.host}),
    )  # fmt: skip


def _congestion(clos: Clos, rng: np.random.Generator) -> Failure:
    ends = _link(clos, rng)
    at = ends if rng.random() < 0.5 else ends[::-1]
    effect = Effect(at, delay_ns=60_000, spread=0.6, period_ns=8 * SECOND, duty=0.5)
    return Failure(19, link(*ends), Family.LINK, (effect,))


def _starved(clos: Clos, rng: np.random.Generator) -> Failure:
    host = Component(Kind.HOST, f"h{rng.integers(clos.shape.hosts)}")
    kept_ns = float(np.exp(rng.uniform(np.log(0.1), np.log(0.4)))) * SECOND
    return Failure(STARVED, host, Family.HOST, (Effect(host, kept_ns=kept_ns, spread=0.8),))


def _killed(clos: Clos, rng: np.random.Generator) -> Failure:
    host = f"h{rng.integers(clos.shape.hosts)}"
    return Failure(KILLED, Component(Kind.AGENT, host), Family.AGENT, (), kills=host)


def _clock_step(clos: Clos, rng: np.random.Generator) -> Failure:
    truth = Component(Kind.HOST, f"h{rng.integers(clos.shape.hosts)}")
    by_ns = int(np.exp(rng.uniform(np.log(0.5), np.log(30))) * SECOND) * int(rng.choice([-1, 1]))
    steps = [(0, by_ns)]
    if rng.random() < 0.5:
        steps.append((int(rng.uniform(5, 30) * SECOND), -by_ns))
    return Failure(
        STEPPED, truth, Family.HOST, (), frozenset({truth}), steps=tuple(steps), harmless=True
    )


def _restart(clos: Clos, rng: np.random.Generator) -> Failure:
    host = f"h{rng.integers(clos.shape.hosts)}"
    back_ns = int(rng.uniform(0.5, 4) * SECOND)
    return Failure(
        RESTARTED, Component(Kind.AGENT, host), Family.AGENT, (), kills=host, back_ns=back_ns,
        harmless=True,
    )  # fmt: skip


def rehashed(failure: Failure, rng: np.random.Generator) -> Failure:
    """Return a failure whose dead links routers avoid after a time, with other members of ECMP."""
    return replace(
        failure,
        effects=tuple(
            replace(each, reroute_ns=int(rng.uniform(1, 10) * SECOND))
            if isinstance(each.at, Component) and each.at.kind is Kind.LINK
            and each.loss == 1.0 and not each.period_ns
            else each
            for each in failure.effects
        ),
    )  # fmt: skip


STARVED, KILLED, STEPPED, RESTARTED = 20, 21, 22, 23
TYPES: dict[int, tuple[str, Draw]] = {
    1: ("CRC error", _crc),
    2: ("switch port down", _port_down),
    3: ("switch port flapping", _port_flapping),
    4: ("switch offline", _switch_offline),
    5: ("RNIC hardware failure", _on_rnic(5, loss=1.0)),
    6: ("RNIC firmware not responding", _on_rnic(6, delay_ns=120_000, share=0.3)),
    7: ("RNIC port down", _on_rnic(7, FindingKind.RNIC_DOWN, loss=1.0)),
    8: ("RNIC port flapping", _rnic_flapping),
    9: ("offloading failure", _on_rnic(9, delay_ns=71_000)),
    10: ("bond error", _on_rnic(10, FindingKind.RNIC_DOWN, loss=1.0)),
    11: ("RNIC GID change", _on_rnic(11, FindingKind.GID_CHANGED, loss=1.0)),
    12: ("PCIe-NIC error", _on_host(12, loss=1.0)),
    13: ("GPU direct RDMA error", _on_rnic(13, delay_ns=40_000)),
    14: ("not using RDMA", _on_host(14, delay_ns=71_000)),
    15: ("repetitive flow offloading", _on_rnic(15, delay_ns=71_000, share=0.5,
                                                period_ns=6 * SECOND, duty=0.5)),
    16: ("suboptimal flow offloading", _on_rnic(16, delay_ns=44_000, share=0.6)),
    17: ("container crash", _crash),
    18: ("hugepage misconfiguration", _on_host(18, delay_ns=30_000)),
    19: ("congestion control issue", _congestion),
    STARVED: ("starved host", _starved),
    KILLED: ("agent killed", _killed),
    STEPPED: ("clock step", _clock_step),
    RESTARTED: ("agent restarted", _restart),
}  # fmt: skip
"""Number in Table 1 -> its name, and how one is drawn. Beyond it: what is no fault of any path."""
TABLE = tuple(range(1, 20))
"""Numbers of Table 1."""
