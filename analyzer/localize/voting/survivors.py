# SPDX-License-Identifier: Apache-2.0
"""What is known of the ways of probes that arrived, while something loses all that crosses it.

Where nobody saw the ways, each flow may have crossed whatever is dead. Those that still get answers
did not: what they lose, or are late by, has another cause, and on fewer ways.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace

from analyzer.localize.voting.election import Ballot
from analyzer.localize.voting.fine import beyond
from netagent.model.path import Component


def survived(ballot: Ballot, dead: AbstractSet[Component]) -> Ballot:
    """Return the ballot of a flow whose probes arrive without the ways across what is dead."""
    if dead.isdisjoint(ballot.maybe):
        return ballot
    legs = tuple(beyond(leg, dead) for leg in ballot.legs)
    missed: dict[Component, float] = {}
    for component in ballot.maybe:
        missed[component] = 1.0
        for leg in legs:
            missed[component] *= 1.0 - sum(share for parts, share in leg if component in parts)
    maybe = {each: 1.0 - share for each, share in missed.items() if 1e-9 < share < 1.0 - 1e-9}
    certain = {each for each, share in missed.items() if share <= 1e-9}
    return replace(ballot, components=ballot.components | certain, maybe=maybe, legs=legs)
