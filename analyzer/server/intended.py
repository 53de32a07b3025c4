# SPDX-License-Identifier: Apache-2.0
"""What controllers say should be, for whoever asks about it; nothing where there is none."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from analyzer.intent.ends import Directory, Plugged
from analyzer.intent.model import Intent
from analyzer.localize.observations import Action, Observation, Policy, intended
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.path import Component

Plain = dict[str, object]


Cookies = Mapping[str, Collection[int]]
"""By host."""
Policies = Mapping[tuple[str, int], Policy]
"""A host and a cookie -> the policy that keeps packets back by the flow."""


async def _no_policies(_cookies: Cookies) -> Policies:
    return {}


@dataclass(slots=True)
class Intended:
    """Where to read what controllers say; what is returned does not change any more."""

    intents: Callable[[], Sequence[Intent]] = tuple
    """Returns what each controller said last."""
    plugged: Callable[[], Plugged] = dict
    """Returns which logical ports hosts say that they have."""
    policies: Callable[[Cookies], Awaitable[Policies]] = _no_policies
    """Returns, of cookies of flows that end a packet's way, those that a policy keeps packets back
    by -> that policy. It may ask the controller, and raises nothing."""

    async def directory(self, endpoints: Iterable[Endpoint]) -> Directory:
        """Return endpoints by every name that they have: of a large cluster, in a second."""
        said = list(endpoints), self.intents(), self.plugged()
        return await asyncio.to_thread(Directory, *said)

    async def explained(self, walks: list[Plain], endpoints: Iterable[Endpoint]) -> list[Plain]:
        """Return walks with who intends what keeps their packets back; `endpoints` are their ends.

        A walk whose end is intended is `refused`.
        """
        disabled = await self._disabled(list(endpoints))
        seen = [_observations(walk) for walk in walks]
        cookies: dict[str, set[int]] = {}
        for each in (each for of in seen for each in of if each.cookie):
            cookies.setdefault(each.host, set()).add(int(each.cookie, 16))
        policies = await self.policies(cookies) if cookies else {}
        if not disabled and not policies:
            return walks
        return [
            _explained(walk, intended(mine, _pair(walk), disabled, policies))
            for walk, mine in zip(walks, seen, strict=True)
        ]

    async def _disabled(self, ends: Sequence[Endpoint]) -> dict[EndpointId, str]:
        """Return those of the endpoints whose logical port is disabled, and its name."""
        if all(port.is_enabled for intent in self.intents() for port in intent.ports.values()):
            return {}
        directory = await self.directory(ends)
        known = ((end.id, directory.port_of(end)) for end in ends)
        return {end: port.name for end, port in known if port is not None and not port.is_enabled}


def _observations(walk: Plain) -> list[Observation]:
    told = walk.get("observations")
    if not isinstance(told, list):
        return []
    return [Observation(**{**each, "action": Action(each["action"])}) for each in told]


def _pair(walk: Plain) -> tuple[EndpointId, EndpointId]:
    return EndpointId.parse(str(walk["source"])), EndpointId.parse(str(walk["target"]))


def _explained(walk: Plain, seen: Sequence[Observation]) -> Plain:
    told = {**walk, "observations": list(map(asdict, seen))}
    # Where nobody can tell how one way ends, that the other one is refused decides.
    is_open = walk.get("outcome") == "cannot_tell"
    refused = [each for each in seen if each.action is Action.REFUSED]
    for each in refused:
        if each.component == walk.get("component") or is_open:
            # That a flow tells the controller first, which logs it, is why it was open: no reason.
            why = "" if is_open else f": {walk['text']}"
            told |= {"outcome": "refused", "text": f"refused by {each.by}{why}"}
            told |= {"component": each.component, "layer": Component.parse(each.component).layer}
            break
    return told
