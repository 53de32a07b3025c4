# SPDX-License-Identifier: Apache-2.0
"""What of the cluster a caller may see: all of it, or what concerns some tasks. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache

from analyzer.server.problems import Problem
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident, Pair, Symptom

OF_TENANTS = frozenset({Kind.CONTAINER, Kind.ENDPOINT})
"""Kinds of components whose names tell of a tenant."""
PORT = "port "
"""How a controller's port is named, as a part of a controller."""
UNWATCHED = "{} is not watched"
ELSEWHERE = "a container is at fault that may be another tenant's"


MOST_KNOWN = 1 << 14
"""Tasks of which it is remembered who may see them. Chosen: some MB. A tenant may ask for thousands
of incidents at once, each of a hundred pairs, and have many patterns."""


@lru_cache(MOST_KNOWN)
def _matches(patterns: tuple[str, ...], task: str) -> bool:
    return any(fnmatchcase(task, each) for each in patterns)


@dataclass(frozen=True)
class Sight:
    """Patterns of tasks, as `fnmatch` has them; None: all that there is."""

    patterns: tuple[str, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything may be seen."""
        return self.patterns is None

    def sees(self, task: str) -> bool:
        """Return whether a task may be seen."""
        return self.patterns is None or _matches(self.patterns, task)

    def incident(
        self,
        known: Incident,
        task_of: Callable[[EndpointId], str | None],
        there: Callable[[Incident], Iterable[str]] = lambda _: (),
    ) -> Incident | None:
        """Return what may be seen of an incident; None where it concerns none of the tasks.

        Of one that concerns others' tasks, too, neither those nor the evidence, which names them.
        No pair accuses a host that is not heard: it concerns whoever has endpoints `there`.
        """
        if self.patterns is None:
            return known
        is_unwatched = _is_unwatched(known)
        touched = {*known.tasks, *(there(known) if is_unwatched else ())}
        tasks = tuple(sorted(filter(self.sees, touched)))
        if not tasks:
            return None

        def mine(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
            ends = ((pair, (task_of(pair.source), task_of(pair.target))) for pair in pairs)
            return tuple(
                pair
                for pair, of in ends
                if all(each is not None and self.sees(each) for each in of)
            )

        verdict = replace(
            known.verdict, failing=mine(known.verdict.failing), healthy=mine(known.verdict.healthy),
            alternatives=(), evidence=(), missing=(),
        )  # fmt: skip
        # A sentence of a host's own may name anybody.
        component = verdict.component
        summary = (
            f"{component}: {verdict.symptom}" if component else f"{verdict.symptom}, undecided"
        )
        if is_unwatched and component is not None:  # why is between its agent and the operator
            summary = UNWATCHED.format(component.name)
        verdict = replace(verdict, summary=summary)
        # Whose a controller's port is, nobody here knows: where others are hit, it may be theirs.
        is_port = (
            component is not None
            and component.kind is Kind.CONTROLLER
            and component.name.startswith(PORT)
            and len(tasks) < len(touched)
        )
        if is_port or _is_elsewhere(component, verdict.failing):
            verdict = replace(verdict, component=None, summary=ELSEWHERE)
        return replace(known, tasks=tasks, verdict=verdict, notes=())

    def walk(self, told: Mapping[str, object]) -> dict[str, object]:
        """Return what may be seen of a walk between two endpoints that may be.

        Flows that are quoted, and who intends what, may name others.
        """
        if self.patterns is None:
            return dict(told)
        containers = {str(told[end]).rpartition("/")[0] for end in ("source", "target")}

        def is_mine(component: object) -> bool:
            part = Component.parse(str(component))
            return part.kind not in OF_TENANTS or part.name.partition("/")[0] in containers

        known, hops = told.get("component"), told.get("observations")
        component = known if known and is_mine(known) else None
        return {
            **{name: told[name] for name in ("source", "target", "outcome")},
            "component": component,
            "layer": told.get("layer") if component else None,
            "text": f"{component}: {told['outcome']}" if component else str(told["outcome"]),
            "observations": [
                {name: hop[name] for name in ("way", "component", "action", "host")}
                for hop in (hops if isinstance(hops, list) else ())
                if is_mine(hop["component"])
            ],
        }


def _is_unwatched(known: Incident) -> bool:
    """Return whether it is about a host that is not heard."""
    part = known.verdict.component
    is_host = part is not None and part.kind in {Kind.AGENT, Kind.HOST}
    return is_host and known.verdict.symptom is Symptom.SILENCE


def _is_elsewhere(component: Component | None, failing: Iterable[Pair]) -> bool:
    """Return whether a component is of a container that none of the pairs is of."""
    if component is None or component.kind not in OF_TENANTS:
        return False
    containers = {end.container for pair in failing for end in (pair.source, pair.target)}
    return component.name.partition("/")[0] not in containers


def sight_of(
    caller: str | None, whole: Iterable[str], tenants: Mapping[str, Sequence[str]]
) -> Sight:
    """Return what a caller may see: `whole` all, `tenants` their tasks; Problem for the others.

    Without TLS there are no names, and anybody sees everything.
    """
    if caller is None or caller in whole:
        return Sight()
    if caller in tenants:
        return Sight(tuple(tenants[caller]))
    raise Problem(
        403,
        f"the certificate names {caller!r}, who may not read this",
        "add it to readers, or to tenants with its tasks, in the analyzer's configuration",
    )
