# SPDX-License-Identifier: Apache-2.0
"""How a host's flows differ from what a controller wants, when somebody asks. Bounded in cost."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct, structs

from analyzer.controllers.messages import AskDifference, Differences, MissingFlow, MissingPort
from analyzer.intent.model import Intent, Port
from analyzer.roster.driven import DrivenHosts, Said
from analyzer.server.controllers import Controller
from analyzer.server.meaning import MOST_FLOWS, Dump, keys, places
from analyzer.server.zones import Zones
from netagent.model.errors import CapabilityMissing, NetAgentError
from netagent.wire.controller import ControllerState, Working

MOST_AT_ONCE = 4
"""Most hosts that are compared at a time. Chosen: the controller's reader answers one question
after the other, and walks wait behind these."""
AGAIN_S = 3.5
"""Seconds until what differs is looked at again. Chosen: longer than rows are kept
(`analyzer.controllers.rows.KEPT_S`), and than a host takes to install what was just asked."""
DUMP_S = 15.0
"""Seconds that a host may take to dump its flows. Chosen: five times what a walk waits, as a person
does here."""
LIMIT_S = 50.0
"""Most seconds of a comparison. Chosen: two looks at a host and two answers of the reader."""


class Compared(Struct, frozen=True, kw_only=True):
    """How a host differs from what its controller wants."""

    host: str
    wall_ns: int
    chassis: str = ""
    bridge: str = ""
    cannot: str = ""
    """Why nothing could be compared; "" where it was."""
    notes: tuple[str, ...] = ()
    """What may excuse a difference."""
    flows: int = 0
    """Of OpenFlow, on the host."""
    fixed: int = 0
    """Of these, without a cookie: no row stands for a fixed part of the pipeline."""
    found: Differences = Differences(query=0)

    @property
    def differs(self) -> bool:
        """Whether anything is not as it should be."""
        return _differs(self.found)


class Comparisons:
    """Compares hosts, each at most once at a time."""

    def __init__(
        self,
        controller: Controller | Zones,
        driven: DrivenHosts,
        dump: Dump,
        bridge_of: Callable[[str], str],
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._controller, self._driven, self._dump = controller, driven, dump
        self._bridge_of, self._clock, self._sleep = bridge_of, clock, sleep
        self._busy: set[str] = set()
        self.asked = 0
        """Comparisons that were begun."""
        self.refused = 0
        """Those that were not, since others were going on."""
        self.failed = 0
        """Of those begun, how many said nothing of the host."""

    async def read(self, host: str) -> Compared:
        """Return how a host differs; raises CapabilityMissing where others are being compared."""
        if host in self._busy or len(self._busy) >= MOST_AT_ONCE:
            self.refused += 1
            raise CapabilityMissing(f"comparing {host}", "others ask as well: ask again later")
        self.asked += 1
        self._busy.add(host)
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._compare(host)
        except NetAgentError as error:
            why = str(error)
        except TimeoutError:
            why = f"it takes longer than {LIMIT_S:.0f} s"
        finally:
            self._busy.discard(host)
        self.failed += 1
        return Compared(host=host, wall_ns=self._clock(), cannot=why)

    async def _compare(self, host: str) -> Compared:
        """Return how a host differs in two looks: what is on its way is not missing."""
        said = self._driven.said.get(host)
        if said is None or not said.state.chassis:
            raise CapabilityMissing(f"the intent of {host}", "no controller drives it, as it says")
        bridge = self._bridge_of(host)
        if not bridge:
            raise CapabilityMissing(f"the flows of {host}", "no endpoint of it is on a bridge")
        first = await self._look(host, said, bridge)
        if not first.differs:
            return first
        await self._sleep(AGAIN_S)
        second = await self._look(host, said, bridge)
        return structs.replace(second, found=_lasting(first.found, second.found))

    async def _look(self, host: str, said: Said[ControllerState], bridge: str) -> Compared:
        intent, chassis = self._controller.intent_of(host), said.state.chassis
        if not intent.away and chassis not in intent.chassis:
            raise CapabilityMissing(f"the intent of {host}", f"it has no record of {chassis}")
        reply = await self._dump(host, bridge)
        if len(reply.flows) > MOST_FLOWS:
            text = f"{bridge} has {len(reply.flows)}, more than {MOST_FLOWS}"
            raise CapabilityMissing(f"comparing the flows of {host}", text)
        installed = await asyncio.to_thread(places, reply.flows)
        asked = AskDifference(
            query=0,
            chassis=chassis,
            installed=installed,
            keys=await asyncio.to_thread(keys, reply.flows),
            kinds=_kinds(intent, chassis),
            moving=tuple(name for name, port in intent.ports.items() if len(port.hosts) > 1),
        )
        return Compared(
            host=host,
            wall_ns=self._clock(),
            chassis=chassis,
            bridge=bridge,
            notes=tuple(_notes(intent, said)),
            flows=len(installed),
            fixed=sum(not cookie for _, cookie, _ in installed),
            found=await self._controller.difference(asked, host=host),
        )


def _differs(found: Differences) -> bool:
    return bool(found.missing or found.fewer or found.ports or found.stale)


def _kinds(intent: Intent, chassis: str) -> dict[str, str]:
    """Return what else flows of ports that are bound at a chassis depend on."""
    here = (name for name, each in intent.placements.items() if each.chassis == chassis)
    return {name: _kind(intent.ports[name]) for name in here if name in intent.ports}


def _kind(port: Port) -> str:
    """Return what port security a port has, as far as it takes tables of its own."""
    families = (
        f"{any('.' in a for a in each.addresses):d}{any(':' in a for a in each.addresses):d}"
        for each in port.allowed
    )
    return ",".join(sorted(set(families)))


def _notes(intent: Intent, said: Said[ControllerState]) -> Iterable[str]:
    if said.state.working is not Working.CONNECTED:
        yield f"its instance of the controller: {said.state.working.value}"
    chassis, asked = intent.chassis.get(said.state.chassis), intent.ladder.asked
    if chassis is not None and asked is not None and (chassis.installed or 0) < asked:
        yield f"it has installed generation {chassis.installed} of {asked}"
    yield from (f"{name} is away: {why}" for name, why in intent.away.items())


def _lasting(first: Differences, second: Differences) -> Differences:
    """Return what differs in both looks, in the words of the second."""
    flows = {each.cookie: frozenset(each.networks) for each in first.missing}
    ports = {each.port: frozenset(each.tables) for each in first.ports}
    cookies = {each.cookie for each in first.stale}
    fewer = {each.cookie for each in first.fewer}
    missing = (_less(each, flows.get(each.cookie, frozenset())) for each in second.missing)
    lacking = (_fewer(each, ports.get(each.port, frozenset())) for each in second.ports)
    return structs.replace(
        second,
        missing=tuple(each for each in missing if each.networks),
        fewer=tuple(each for each in second.fewer if each.cookie in fewer),
        ports=tuple(each for each in lacking if each.tables),
        stale=tuple(each for each in second.stale if each.cookie in cookies),
        more=min(first.more, second.more),
    )


def _less(flow: MissingFlow, networks: frozenset[str]) -> MissingFlow:
    return structs.replace(flow, networks=tuple(n for n in flow.networks if n in networks))


def _fewer(port: MissingPort, tables: frozenset[int]) -> MissingPort:
    return structs.replace(port, tables=tuple(t for t in port.tables if t in tables))
