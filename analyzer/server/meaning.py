# SPDX-License-Identifier: Apache-2.0
"""What a controller wants where walks end: of a host's flows, and of its databases."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import msgspec
import structlog

from analyzer.controllers.messages import AskMeaning, Flows
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.reading import Meaning
from analyzer.localize.observations import Policy
from analyzer.questions import MeaningReply, MeaningRequest, Meant
from analyzer.roster.driven import DrivenHosts
from analyzer.server.controllers import Controller
from netagent.model.errors import CapabilityMissing, NetAgentError
from netagent.wire.messages import FlowsReply

log = structlog.get_logger()

Dump = Callable[[str, str], Awaitable[FlowsReply]]
"""Returns the flows of a host's bridge; raises Unreachable."""
_COOKIE = re.compile(r"cookie=0x([0-9a-f]{1,16})\b")
_TABLE = re.compile(r"\btable=(\d{1,3})\b")
_METADATA = re.compile(r"[ ,]metadata=0x([0-9a-f]{1,16})(?![0-9a-f/])")
MOST_FLOWS = 200_000
"""Most flows of a bridge that are looked at. Chosen: twenty times those of the largest networks."""


class Meanings:
    """Asks a host for its flows, and a controller's reader what they and the ends mean."""

    def __init__(self, controller: Controller, driven: DrivenHosts, dump: Dump) -> None:
        self._controller, self._driven, self._dump = controller, driven, dump

    async def read(self, host: str, asked: MeaningRequest) -> MeaningReply:
        """Return what each end means; raises Unreachable, CapabilityMissing and the like."""
        said = self._driven.said.get(host)
        if said is None or not said.state.chassis:
            raise CapabilityMissing(f"the intent of {host}", "no controller drives it, as it says")
        reply = await self._dump(host, asked.bridge)
        installed = await asyncio.to_thread(places, reply.flows)
        ports = self._controller.intent.ports.values()
        answer = await self._controller.meaning(
            AskMeaning(
                query=0,
                chassis=said.state.chassis,
                installed=installed,
                ends=asked.ends,
                disabled=tuple(port.name for port in ports if not port.is_enabled),
            )
        )
        came = asked.ports or ("",) * len(asked.ends)
        meant = zip(answer.meant, came, strict=True)
        return MeaningReply(
            meant=tuple(self._left(each, host, port) or self._placed(each) for each, port in meant)
        )

    async def policies(self, cookies: Collection[int]) -> dict[int, Policy]:
        """Return which of these cookies are policies' -> which; none where nobody knows."""
        try:
            told = await self._controller.flows([f"{cookie:08x}" for cookie in cookies])
        except NetAgentError as error:
            log.warning("policies_unknown", error=str(error))
            return {}
        return policies_of(told)

    def _left(self, meant: Meant, host: str, interface: str) -> Meant | None:
        """Return what it means that no flow takes what comes by an interface.

        That is its port's, where the controller has it at another host, or at none; or the host's,
        where it has no record of that.
        """
        state, intent = self._driven.said[host].state, self._controller.intent
        plugged = [each for each in state.ports if each.interface == interface]
        known = [each.name for each in plugged if each.name in intent.ports]
        if not known:  # it calls itself something else
            macs = {each.mac.lower() for each in plugged} - {""}
            mine = (p for p in intent.ports.values() if macs & {mac.lower() for mac in p.macs})
            known = [port.name for port in mine]
            known = known if len(known) == 1 else []
        if meant.meaning != Meaning.UNKNOWN.value or intent.away or not known:
            return None
        placement = intent.placements.get(known[0])
        where = placement.chassis if placement is not None else ""
        if where == state.chassis or self._has(where, known[0]):
            return None  # it is where it should be, whatever this host calls its interface
        if state.chassis not in intent.chassis:
            return Meant(meaning=Meaning.MISSING.value, text=_no_record(host, known[0]), part=host)
        text = f"{host} has no flows for {known[0]}: its controller has it at {where or 'no host'}"
        return Meant(meaning=Meaning.MISSING.value, text=text, part=f"port {known[0]}")

    def _has(self, chassis: str, port: str) -> bool:
        """Return whether the host that is called so has a port plugged in, by its own word."""
        return chassis != "" and any(
            said.state.chassis == chassis and any(each.name == port for each in said.state.ports)
            for said in self._driven.said.values()
        )

    def _placed(self, meant: Meant) -> Meant:
        """Return what is at fault where no flow leads to a port: its host, or its binding.

        Of a port that the controller has somewhere it is neither.
        """
        kind, _, port = meant.part.partition(" ")
        if kind != "port":
            return meant
        intent = self._controller.intent
        placement = intent.placements.get(port)
        if intent.away or port not in intent.ports or (placement and placement.chassis):
            return msgspec.structs.replace(meant, part="")
        for host, said in sorted(self._driven.said.items()):
            is_here = any(each.name == port for each in said.state.ports)
            if is_here and said.state.chassis not in intent.chassis:
                return msgspec.structs.replace(meant, part=host, text=_no_record(host, port))
        return meant


def policies_of(told: Flows) -> dict[int, Policy]:
    """Return which logical flows keep packets back for a policy, by their cookies."""
    found = ((flow.cookie, _policy(flow, told.owners)) for flow in told.flows)
    return {cookie: policy for cookie, policy in found if policy is not None}


def _policy(flow: LogicalFlow, owners: Mapping[str, str]) -> Policy | None:
    if flow.refuses:
        return Policy(owners.get(flow.hint, flow.stage))
    if flow.stage.endswith("_port_sec"):
        return Policy("port security", "target" if "_out_" in flow.stage else "source")
    return None


def _no_record(host: str, port: str) -> str:
    return f"the controller has no record of {host}, at which {port} is plugged in"


def places(flows: Iterable[str]) -> tuple[tuple[int, int, int], ...]:
    """Return table, cookie and metadata of flows as `ovs-ofctl dump-flows` prints them."""
    found = []
    for text, _ in zip(flows, range(MOST_FLOWS), strict=False):
        head = text.partition(" actions=")[0]
        cookie, table, metadata = (each.search(head) for each in (_COOKIE, _TABLE, _METADATA))
        found.append((
            int(table[1]) if table else 0,
            int(cookie[1], 16) if cookie else 0,
            int(metadata[1], 16) if metadata else 0,
        ))  # fmt: skip
    return tuple(found)
