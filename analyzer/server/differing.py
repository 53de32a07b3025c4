# SPDX-License-Identifier: Apache-2.0
"""What differs between controllers and hosts, asked again and again, and told to the judge."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence

from analyzer.intent.differences.contract import Difference, HostSaid
from analyzer.intent.differences.lasting import Differences
from analyzer.intent.differences.zoned import ZonedDifferences
from analyzer.intent.ends import Plugged, plugged_of
from analyzer.intent.model import Intent
from analyzer.replay import records
from analyzer.roster.driven import DrivenHosts
from analyzer.roster.registry import Registry
from analyzer.server.clock import Clock
from netagent.model.endpoint import Endpoint

STEP_S = 5.0
"""Seconds between two looks where nothing is new. Chosen: a window; what differs has to last for
many."""
LEAST_S, SHARE = 0.02, 0.1
"""Seconds between two looks at least, and the share of a core that they may take. Chosen: what was
said in a window is looked at before that is judged."""


class Differing:
    """Follows controllers."""

    def __init__(
        self,
        sources: Callable[[], Mapping[str, Sequence[Intent]]],
        driven: DrivenHosts,
        registry: Registry,
        give: Callable[[records.Record], None],
        clock: Clock,
        zoned: Collection[str] = (),
    ) -> None:
        """Give `give` what stands, whenever that changed.

        Of sources in `zoned` each host has a controller of its own.
        """
        self._sources, self._driven, self._registry = sources, driven, registry
        self._zoned = zoned
        self._give, self._clock = give, clock
        self._differences: dict[str, Differences | ZonedDifferences] = {}
        """By source."""
        self._news = asyncio.Event()
        self.standing: tuple[Difference, ...] = ()
        self._was_young: bool | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await self._news.wait()
            self._news.clear()
            began_s = loop.time()
            await self.step()
            await asyncio.sleep(max(LEAST_S, (loop.time() - began_s) / SHARE))

    def news(self) -> None:
        """Note that a host or the controller said something new: look soon."""
        self._news.set()

    async def step(self) -> None:
        """Look once."""
        endpoints = tuple(record.endpoint for record in self._registry.endpoints())
        asked = self._sources(), self._states(), endpoints, self._clock()
        # Of tens of thousands of ports it takes tenths of a second.
        told = await asyncio.to_thread(self._compare, *asked)
        young = any(each.is_young for each in self._differences.values())
        if (told, young) != (self.standing, self._was_young):
            self.standing, self._was_young = told, young
            now_ns = self._clock()
            self._give(records.Differed(differences=told, is_young=young, now_ns=now_ns))

    def _compare(
        self,
        sources: Mapping[str, Sequence[Intent]],
        states: Mapping[str, HostSaid],
        endpoints: tuple[Endpoint, ...],
        now_ns: int,
    ) -> tuple[Difference, ...]:
        told: dict[object, Difference] = {}
        for source, intents in sources.items():
            for each in self._step(source, intents, states, endpoints, now_ns):
                # Two controllers may have ports of one name: the first one's is told.
                told.setdefault(each.finding.key, each)
        return tuple(sorted(told.values(), key=lambda each: each.finding.key))

    def _step(
        self,
        source: str,
        intents: Sequence[Intent],
        states: Mapping[str, HostSaid],
        endpoints: tuple[Endpoint, ...],
        now_ns: int,
    ) -> tuple[Difference, ...]:
        new = ZonedDifferences() if source in self._zoned else Differences()
        of = self._differences.setdefault(source, new)
        if isinstance(of, ZonedDifferences):
            return of.step(intents, states, endpoints, now_ns)
        return of.step(intents[0], states, endpoints, now_ns)

    def plugged(self) -> Plugged:
        """Return which logical ports hosts have plugged in."""
        return plugged_of({host: said.state for host, said in self._driven.said.items()})

    def _states(self) -> dict[str, HostSaid]:
        # Who says nothing new has what it said before: as long as its summaries come.
        states = {}
        for host, said in self._driven.said.items():
            agent = self._registry.agent(host)
            heard_ns = max(said.heard_ns, agent.last_seen_ns if agent is not None else 0)
            states[host] = HostSaid(said.state, heard_ns)
        return states
