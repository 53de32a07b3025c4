# SPDX-License-Identifier: Apache-2.0
"""Failures that do not touch each other: what they do can be told apart.

A switch and a link of it, or two links of one spine, are not drawn together: it is nobody's fault
if they are taken for one. Where that leaves no room, because a fabric has fewer spines than links
are to fail, links of one spine may fail together if they are of different leaves.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from analyzer.simulate.clos import Clos
from analyzer.simulate.failures import TYPES, Failure, draw
from netagent.model.path import Component, Kind

TRIES = 1_000
"""Draws until there is no room for another failure. Chosen: of a thousand places one is met."""


class NoRoomError(Exception):
    """The fabric is too small for so many failures at once."""


def beside(
    others: Sequence[Failure],
    number: int,
    clos: Clos,
    rng: np.random.Generator,
    idle: Collection[str] = (),
) -> Failure:
    """Return a failure of a type that touches none of the others. Raises NoRoomError.

    It is on none of the hosts that are `idle`, where nobody would see it.
    """
    for touch in (_touch, _touch_closely):
        for _ in range(TRIES):
            each = draw(number, clos, rng)
            if _host(each.truth) not in idle and not any(touch(each, other) for other in others):
                return each
    raise NoRoomError(
        f"no room for {TYPES[number][0]} beside {len(others)} others: more hosts, or fewer at once"
    )


def _host(of: Component) -> str:
    if of.kind is Kind.CONTAINER:
        return "h" + of.name.rpartition("-c")[2]
    return of.name.partition("/")[0]


def _touch(one: Failure, other: Failure) -> bool:
    """Return whether two failures are at one component, or at a switch and a link of it."""
    return bool(_places(one, _upper) & _places(other, _upper))


def _touch_closely(one: Failure, other: Failure) -> bool:
    if one.truth.kind is other.truth.kind is Kind.LINK:
        return bool(_places(one, _lower) & _places(other, _lower))
    return _touch(one, other)


def _places(failure: Failure, counts: Callable[[str], bool]) -> set[str]:
    every: set[Component] = {failure.truth, *failure.also}
    places = {each.name.partition("/")[0] for each in every if each.kind is not Kind.LINK}
    for each in every:
        if each.kind is Kind.LINK:
            places |= {each.name, *filter(counts, each.name.split(" -- "))}
    return places


def _upper(end: str) -> bool:
    return "leaf" not in end


def _lower(end: str) -> bool:
    return "leaf" in end
