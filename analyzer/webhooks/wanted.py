# SPDX-License-Identifier: Apache-2.0
"""Which events a receiver wants. Pure."""

from dataclasses import dataclass

from netagent.model.path import Kind
from netagent.model.verdict import Incident, IncidentState


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an incident must be for a receiver to be told of it."""

    confirmed: bool = False
    """Whether it must be, or have been, confirmed."""
    kinds: frozenset[Kind] = frozenset()
    """What its component must be; none: anything, or nobody knows."""

    def wants(self, now: Incident, before: Incident | None) -> bool:
        """Return whether an incident's change is told.

        It is where the incident is wanted now, or was just before: whoever heard of it hears that
        it became another one, and that it is over.
        """
        return self._is(now) or (before is not None and self._is(before))

    def _is(self, incident: Incident) -> bool:
        component = incident.verdict.component
        fits = not self.kinds or (component is not None and component.kind in self.kinds)
        if not self.confirmed:
            return fits
        # Of one that is over only the state before says whether it had been confirmed.
        return fits and incident.state is IncidentState.CONFIRMED
