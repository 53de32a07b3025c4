# SPDX-License-Identifier: Apache-2.0
"""Break a lab one or two faults at a time, at targets drawn by a seed, and count what is named.

Whatever an incident names at any moment counts, also when it names the right component a moment
later, while the lab heals, and between two tries, when nothing is broken.
"""

import json
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.demo import (
    INTENDED,
    LASTING_S,
    NOTED,
    SETTLE_S,
    SPARED_S,
    WINDOW_S,
    Observer,
    Say,
    record,
)
from tests.lab.errors import LabError
from tests.lab.lab import Bursts, Lab
from tests.lab.shape import Controller, Shape, Transport, driven_by, host_number, rnic
from tests.lab.state import NOBODY, Fault, State
from tests.lab.targets import Kind, spelled

NAME_WITHIN_S = 60.0
"""Seconds to name both; what loses little, or is late for a part of the time, takes windows."""
WATCH_S = 15.0
"""Seconds for which what else opens is watched then: three windows."""
BLIND_S = 40.0
"""Seconds for which nothing can be known: eight windows."""
RECOVER_WITHIN_S = 60.0
"""Seconds after which the lab is not waited for any more."""
_NEVER = frozenset({"what nobody names"})
OUTPUT = Path("build/drill")
"""Where recordings of what did not go right are kept, by their seeds."""
DRAWS = 200
"""Most draws for one that fits the other."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one fault, or of two at once."""

    seed: int
    faults: tuple[str, ...]
    truths: tuple[str, ...]
    named_s: tuple[float | None, ...]
    """From each injection to its truth, or None."""
    insufficient: bool
    """Whether an incident without a name was open."""
    wrong: tuple[str, ...]
    """What else was named."""
    recovered_s: float | None
    early: tuple[str, ...] = ()
    """What was called well again while nobody could know it."""
    said: tuple[str, ...] = ()
    """What every incident said, the newest of each; for people."""
    between: tuple[str, ...] = ()
    """What was named since the try before, when nothing was broken."""

    @property
    def right(self) -> bool:
        """Whether nobody else was named, and an incident stands for what was not."""
        seen = self.insufficient or None not in self.named_s
        return seen and not self.wrong and not self.early and not self.between


def run(
    lab: Lab,
    say: Say,
    *,
    pairs: int,
    seed: int,
    each: bool,
    only: Collection[str] = (),
    controller: Controller = Controller.NONE,
) -> list[Tried]:
    """Return what became of every fault alone (of those in `only`, if any), or of `pairs` pairs."""
    lab.up(driven_by(controller), traffic=Bursts())
    try:
        with lab.services().client() as client:
            observer = Observer(client)
            observer.wait(lambda: False, timeout_s=SETTLE_S[Transport.UDP])
            state = lab.state()
            if each:
                tried = list(tries(lab, observer, singles(state, seed, only), say))
            else:
                tried = list(islice(tries(lab, observer, _pairs(state, seed), say), pairs))
            if tried:  # nobody comes after the last one to find what it left behind
                late = quiet(observer) - {*tried[-1].truths, *tried[-1].wrong}
                tried[-1] = replace(tried[-1], wrong=(*tried[-1].wrong, *sorted(late)))
            return tried
    finally:
        lab.down()


def tries(
    lab: Lab, observer: Observer, drawn: Iterable[tuple[int, list["Plan"]]], say: Say
) -> Iterator[Tried]:
    """Yield what became of each drawn, once the one before is over.

    A JSON line of each is said, and a recording is kept of each that did not go right.
    """
    between, healed = set[str](), set[str]()
    for number, plans in drawn:
        between |= quiet(observer) - healed
        try:
            one = attempt(lab, observer, number, plans)
        except _Impossible as impossible:
            healed = set(impossible.args)
            continue
        one = replace(one, between=tuple(sorted(between)))
        between, healed = set(), set(one.truths)
        say(json.dumps(asdict(one) | {"right": one.right}))
        if not one.right:
            record(observer.client, OUTPUT / f"{number}.recording", say)
        yield one


def lines(tried: Sequence[Tried]) -> list[str]:
    """Return the sums, for people."""
    faults = sum(len(one.truths) for one in tried)
    named = sum(s is not None for one in tried for s in one.named_s)
    wrong = [(one, other) for one in tried for other in one.wrong]
    between = [(one, other) for one in tried for other in one.between]
    accused = len(wrong) + len(between)
    unseen = [one for one in tried if None in one.named_s and not one.insufficient]
    return [
        f"{named} of {faults} faults named; {accused} others accused in {len(tried)} tries",
        *(f"  {' + '.join(one.faults)}: wrongly {other}" for one, other in wrong),
        *(f"  before {' + '.join(one.faults)}: {other}" for one, other in between),
        *(f"  {' + '.join(one.faults)}: not all seen" for one in unseen),
        *(f"  {' + '.join(one.faults)}: over too early" for one in tried if one.early),
    ]


class _Impossible(Exception):
    """The machine cannot do a fault; its arguments are the parts that were broken beside it."""


def attempt(lab: Lab, observer: Observer, seed: int, plans: Sequence["Plan"]) -> Tried:
    """Break a lab that is `quiet`, watch, and heal it; return what became of it."""
    rng = random.Random(seed)
    faults: list[Fault] = []
    began_ns: dict[str, int] = {}
    said: set[str] = set()
    early: set[str] = set()

    def named() -> set[str]:
        new = {str(one["component"] or "") for one in observer.new()}
        said.update(new)
        return new

    def watch(timeout_s: float, until: Collection[str] = ()) -> None:
        wanted = frozenset(until) or _NEVER
        observer.wait(lambda: named() >= wanted, timeout_s=timeout_s)

    try:
        for name, target in plans:
            if CATALOGUE[name].blind:  # something has to be known before
                watch(NAME_WITHIN_S, began_ns)
            watch(rng.uniform(0, WINDOW_S))
            at_ns = time.time_ns()
            faults.append(_injected(lab, name, target, began_ns))
            if faults[-1].truth != NOBODY and name not in NOTED:
                began_ns[faults[-1].truth.component] = at_ns
        if blind := [fault for fault in faults if CATALOGUE[fault.name].blind]:
            watch(BLIND_S)
            early |= _recovered(observer)
            for fault in blind:
                lab.heal(fault.key)
        else:
            watch(name_within_s(plans), began_ns)
        watch(WATCH_S)
        early |= _recovered(observer) if blind else set()
        at = {str(one["component"] or ""): one["localized_ns"] for one in observer.new()}
    finally:
        healed_ns = time.time_ns()
        if faults:
            lab.heal()
    over = observer.wait(
        lambda: named() is not None and _over(observer), timeout_s=RECOVER_WITHIN_S
    )
    last = observer.remember()  # what opens from now on does so between two tries
    said |= {str(one["component"] or "") for one in last}
    return Tried(
        seed,
        tuple(fault.key for fault in faults),
        tuple(began_ns),
        tuple(
            round((at[truth] - began) / 1e9, 1) if at.get(truth) else None
            for truth, began in began_ns.items()
        ),
        "" in said,
        tuple(sorted(said - {"", *began_ns})),
        round((time.time_ns() - healed_ns) / 1e9, 1) if over else None,
        tuple(sorted(early)),
        tuple(f"{one['component'] or 'nobody'}: {one['summary']}" for one in last),
    )


def name_within_s(plans: Iterable["Plan"]) -> float:
    """Return the seconds to name all of them: of what is a controller's, some has to last."""
    more = (LASTING_S.get(name, SPARED_S if name in INTENDED else 0.0) for name, _ in plans)
    return NAME_WITHIN_S + max(more)


def _recovered(observer: Observer) -> set[str]:
    """Return the named components of which is said that all is well again."""
    return _names(one for one in observer.new() if one["state"] == "recovered")


def _injected(lab: Lab, name: str, target: str, beside: Iterable[str]) -> Fault:
    try:
        return lab.inject(name, target)
    except LabError as error:
        if "in a guest" in (error.remedy or ""):
            raise _Impossible(*beside) from error
        raise


def _over(observer: Observer) -> bool:
    return all(one["state"] == "recovered" for one in observer.new())


def quiet(observer: Observer, *, watch_s: float | None = None) -> set[str]:
    """Wait until all is well; return whom incidents named that were not known, and know them.

    Looks on for `watch_s`, else for two windows. Raises LabError where somebody is still named
    after RECOVER_WITHIN_S.
    """
    named: set[str] = set()

    def look() -> bool:
        named.update(_names(observer.new()))
        return False

    def going_on() -> list[dict[str, Any]]:
        look()
        return [one for one in observer.incidents() if one["state"] != "recovered"]

    observer.wait(lambda: not going_on(), timeout_s=RECOVER_WITHIN_S)
    # Where the machine is busy with other things, flows stay slow, and nobody is named for it.
    if stays := _names(going_on()):
        problem = f"the lab does not recover: {', '.join(sorted(stays))}"
        raise LabError(problem, "see: netagent-analyzer incidents")
    observer.wait(look, timeout_s=2 * WINDOW_S if watch_s is None else watch_s)
    return named | _names(observer.remember())


def _names(incidents: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(one["component"]) for one in incidents if one["component"]}


# --- what is drawn -----------------------------------------------------------------------------

Plan = tuple[str, str]
"""A fault's name, and its target."""


def singles(state: State, seed: int, only: Collection[str]) -> Iterator[tuple[int, list[Plan]]]:
    """Yield every fault, or those in `only`, each with the seed that draws its target."""
    for n, spec in enumerate(_specs(state)):
        rng = random.Random(seed + n)
        plans = [(spec.name, rng.choice(targets(spec, state)))]
        if spec.blind:
            possible = [name for name in _KNOWN if CATALOGUE[name] in _specs(state)]
            known = CATALOGUE[rng.choice(possible)]
            plans.insert(0, (known.name, rng.choice(targets(known, state))))
        if not only or spec.name in only:
            yield seed + n, plans


_KNOWN = ("link-down", "rnic-down", "flow-deleted")
"""What is injected before nobody can know anything: one of each layer."""


def _pairs(state: State, seed: int) -> Iterator[tuple[int, list[Plan]]]:
    for number in count(seed):
        yield number, draw(state, number)


def draw(state: State, seed: int) -> list[Plan]:
    """Return two faults that share no part: of one rail, of two layers, or any, in turn."""
    rng = random.Random(seed)
    specs = [spec for spec in _specs(state) if not spec.blameless and spec.name not in NOTED]
    for _ in range(DRAWS):
        plans = [(spec.name, rng.choice(targets(spec, state))) for spec in rng.sample(specs, 2)]
        (one, first), (other, second) = plans
        if _places(one, first, state) & _places(other, second, state):
            continue
        if seed % 3 == 0 and not _rails(first, state) & _rails(second, state):
            continue
        if seed % 3 == 1 and _layer(one) == _layer(other):
            continue
        return plans
    raise LabError(f"seed {seed} draws no pair", "take another seed")


def _specs(state: State) -> list[Spec]:
    rdma = state.shape.transport is Transport.RDMA
    possible = [spec for spec in CATALOGUE.values() if spec.is_possible(state.shape.controller)]
    return [spec for spec in possible if rdma or not spec.rdma]


def targets(spec: Spec, state: State) -> list[str]:
    """Return everything in a lab that a fault may be aimed at."""
    shape, containers = state.shape, state.containers
    every: dict[Kind, list[str]] = {
        Kind.LINK: [spelled(link) for link in shape.links()],
        Kind.SPINE: list(shape.spine_names),
        Kind.LEAF: list(shape.leaf_names),
        Kind.RNIC: [f"{host}/{rnic(rail)}" for host in shape.host_names for rail in _all(shape)],
        Kind.HOST: list(shape.host_names),
        Kind.CONTAINER: [each.id for each in containers],
        Kind.ENDPOINT: [f"{each.id}/rail{rail}" for each in containers for rail in _all(shape)],
        Kind.CHASSIS: [Kind.CHASSIS.value],
        Kind.LAB: [Kind.LAB.value],
        Kind.FLOW: [
            f"h{other.host}/{each.id}/rail{rail}"
            for each in containers
            for other in containers
            if other.task == each.task and other.host != each.host
            for rail in _all(shape)
        ],
    }
    other = f"h{spec.parameters['source']:.0f}" if "source" in spec.parameters else None
    return [each for each in every[spec.kind] if each.partition("/")[0] != other]


def _all(shape: Shape) -> Iterable[int]:
    return range(shape.rails)


def _layer(name: str) -> object:
    return _LAYERS.get(CATALOGUE[name].kind, "host")


_LAYERS = {
    Kind.LINK: "underlay", Kind.SPINE: "underlay", Kind.LEAF: "underlay", Kind.FLOW: "overlay",
}  # fmt: skip


def _rails(target: str, state: State) -> set[int]:
    """Return the rails that a target belongs to: all, for one that has none of its own."""
    found = {
        rail for rail in _all(state.shape) if target.endswith((f"/rnic{rail}", f"/rail{rail}"))
    }
    found |= {rail for rail in _all(state.shape) if f"-r{rail}" in target}
    return found or set(_all(state.shape))


def _places(name: str, target: str, state: State) -> set[str]:
    """Return the hosts and links without which a fault cannot be seen for itself."""
    first, _, rest = target.partition("/")
    kind = CATALOGUE[name].kind
    if name in {"link-down", "leaf-down"} and state.shape.segments == 2:
        return {first} | _in_series(target, state) | _hosts_at(target, state)
    if kind in {Kind.SPINE, Kind.LEAF}:
        links = {spelled(link) for link in state.shape.links() if target in (link.leaf, link.spine)}
        return links | _hosts_at(target, state)
    if kind is Kind.FLOW:
        return {first, _host(rest.partition("/")[0], state)}
    if kind in {Kind.CONTAINER, Kind.ENDPOINT}:
        return {_host(first, state)}
    return {first}


def _in_series(target: str, state: State) -> set[str]:
    """Return the links that carry nothing without a link or leaf: two segments have one way each.

    What crosses a spine on a rail crosses both of its links there.
    """
    leaf, _, spine = target.partition("--")
    rail = leaf.rpartition("-")[2]
    return {
        spelled(link)
        for link in state.shape.links()
        if link.leaf.endswith(f"-{rail}") and spine in {"", link.spine}
    }


def _hosts_at(leaf: str, state: State) -> set[str]:
    shape = state.shape
    return {
        host
        for host in shape.host_names
        if leaf in {shape.leaf_of(host_number(host), rail) for rail in _all(shape)}
    }


def _host(container: str, state: State) -> str:
    return next(f"h{each.host}" for each in state.containers if each.id == container)
