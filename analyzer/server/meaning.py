# SPDX-License-Identifier: Apache-2.0
"""What a controller wants where walks end: of a host's flows, and of its databases."""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import msgspec
import structlog

from analyzer.controllers.messages import AskMeaning, Flows
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.model import Intent
from analyzer.intent.ovn import SOURCE
from analyzer.intent.owners import owners
from analyzer.intent.reading import Meaning
from analyzer.localize.observations import Policy
from analyzer.questions import MeaningReply, MeaningRequest, Meant
from analyzer.roster.driven import DrivenHosts
from analyzer.server.controllers import Controller
from analyzer.server.zones import Zones
from netagent.model.errors import CapabilityMissing, NetAgentError, Unreachable
from netagent.wire.controller import ControllerState
from netagent.wire.messages import FlowsReply

log = structlog.get_logger()

Dump = Callable[[str, str], Awaitable[FlowsReply]]
"""Returns the flows of a host's bridge; raises Unreachable."""
_COOKIE = re.compile(r"cookie=0x([0-9a-f]{1,16})\b")
_TABLE = re.compile(r"\btable=(\d{1,3})\b")
_METADATA = re.compile(r"[ ,]metadata=0x([0-9a-f]{1,16})(?![0-9a-f/])")
SHARE = 0.9
"""Share of the time that there is, after which what is remembered has to do. Chosen: the window
does not wait for who is late."""
MOST_REFUSED = 4096
"""Most flows of policies that are remembered. Chosen: four on each of a thousand hosts."""
MOST_FLOWS = 200_000
"""Most flows of a bridge that are looked at. Chosen: twenty times those of the largest networks."""


class Meanings:
    """Asks a host for its flows, and a controller's reader what they and the ends mean."""

    def __init__(self, controller: Controller | Zones, driven: DrivenHosts, dump: Dump) -> None:
        self._controller, self._driven, self._dump = controller, driven, dump
        self._refused: dict[tuple[str, int], Meant] = {}
        """Host and cookie of a flow by which a policy refused packets, the newest last."""

    async def read(self, host: str, asked: MeaningRequest, deadline_s: float) -> MeaningReply:
        """Return what each end means, within `deadline_s`.

        Raises Unreachable, CapabilityMissing and the like.
        What a policy refused stays refused while nobody can be asked: its flow is there still.
        """
        flows = [(host, end.flow.cookie if end.flow else 0) for end in asked.ends]
        try:
            async with asyncio.timeout(deadline_s * SHARE):
                reply = await self._read(host, asked)
        except (NetAgentError, TimeoutError) as error:
            known = [self._refused.get(flow, Meant()) for flow in flows]
            if not any(each.meaning for each in known):
                if isinstance(error, TimeoutError):
                    raise Unreachable(host, "timeout") from None
                raise
            return MeaningReply(meant=tuple(known))
        for flow, meant in zip(flows, reply.meant, strict=True):
            self._refused.pop(flow, None)
            if meant.meaning == Meaning.REFUSED.value and flow[1]:
                self._refused[flow] = meant
        while len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        return reply

    async def _read(self, host: str, asked: MeaningRequest) -> MeaningReply:
        said = self._driven.said.get(host)
        if said is None or not said.state.chassis or said.state.source != SOURCE:
            raise CapabilityMissing(f"the intent of {host}", f"{SOURCE} does not drive it, it says")
        if self._owner(said.state.chassis, self._controller.intent_of(host)) != host:
            why = f"another host is {said.state.chassis}, as the controller has it"
            raise CapabilityMissing(f"the intent of {host}", why)
        intent = self._controller.intent_of(host)
        if not intent.away and intent.chassis and said.state.chassis not in intent.chassis:
            text = f"the controller has no record of {host}, whose packets end at {asked.bridge}"
            gone = Meant(meaning=Meaning.MISSING.value, text=text, part=host)
            return MeaningReply(meant=(gone,) * len(asked.ends))
        reply = await self._dump(host, asked.bridge)
        installed = await asyncio.to_thread(places, reply.flows)
        ports = intent.ports.values()
        answer = await self._controller.meaning(
            AskMeaning(
                query=0,
                chassis=said.state.chassis,
                installed=installed,
                ends=asked.ends,
                disabled=tuple(port.name for port in ports if not port.is_enabled),
            ),
            host=host,
        )
        came = asked.ports or ("",) * len(asked.ends)
        meant = zip(answer.meant, came, strict=True)
        return MeaningReply(
            meant=tuple(
                self._left(each, host, said.state, port) or self._placed(each, host)
                for each, port in meant
            )
        )

    async def policies(
        self, cookies: Mapping[str, Collection[int]]
    ) -> dict[tuple[str, int], Policy]:
        """Return which cookies of hosts are policies' -> which; none where nobody knows."""
        found: dict[tuple[str, int], Policy] = {}
        for hosts in self._controller.together(cookies):
            prefixes = {f"{cookie:08x}" for host in hosts for cookie in cookies[host]}
            try:
                told = await self._controller.flows(sorted(prefixes), host=hosts[0])
            except NetAgentError as error:
                log.warning("policies_unknown", error=str(error))
                continue
            known = policies_of(told)
            found |= {
                (host, each): known[each]
                for host in hosts
                for each in cookies[host]
                if each in known
            }
        return found

    def _left(
        self, meant: Meant, host: str, state: ControllerState, interface: str
    ) -> Meant | None:
        """Return what it means that no flow takes what comes by an interface.

        That is its port's, where the controller has it at another host, or at none.
        """
        intent = self._controller.intent_of(host)
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
        if where == state.chassis or self._has(where, known[0], intent):
            return None  # it is where it should be, whatever this host calls its interface
        text = f"{host} has no flows for {known[0]}: its controller has it at {where or 'no host'}"
        return Meant(meaning=Meaning.MISSING.value, text=text, part=f"port {known[0]}")

    def _has(self, chassis: str, port: str, intent: Intent) -> bool:
        """Return whether the host that is called so has a port plugged in, by its own word."""
        said = self._driven.said.get(self._owner(chassis, intent))
        return said is not None and any(each.name == port for each in said.state.ports)

    def _owner(self, chassis: str, intent: Intent) -> str:
        """Return the host that a chassis is; "" where nobody says so who may be."""
        claims = {host: said.state.chassis for host, said in self._driven.said.items()}
        return owners(claims, intent.chassis, claims).get(chassis, "")

    def _placed(self, meant: Meant, of: str) -> Meant:
        """Return what is at fault where no flow leads to a port: its host, or its binding.

        Of a port that the controller has somewhere it is neither.
        """
        kind, _, port = meant.part.partition(" ")
        if kind != "port":
            return meant
        intent = self._controller.intent_of(of)
        placement = intent.placements.get(port)
        if intent.away or port not in intent.ports or (placement and placement.chassis):
            return msgspec.structs.replace(meant, part="")
        for host, said in sorted(self._driven.said.items()):
            if intent.zone not in {"", host}:
                continue  # a zone has records of its own host
            is_here = any(each.name == port for each in said.state.ports)
            if is_here and said.state.chassis not in intent.chassis:
                return msgspec.structs.replace(meant, part=host, text=_no_record(host, port))
        return meant


def policies_of(told: Flows) -> dict[int, Policy]:
    """Return which logical flows keep packets back for a policy, by their cookies."""
    several = Counter(flow.cookie for flow in told.flows)
    found = ((flow.cookie, _policy(flow, told.owners)) for flow in told.flows)
    return {
        cookie: policy for cookie, policy in found if policy is not None and several[cookie] == 1
    }


def _policy(flow: LogicalFlow, owners: Mapping[str, str]) -> Policy | None:
    if flow.refuses:
        return Policy(owners.get(flow.hint, flow.stage))
    if flow.stage.endswith("_port_sec"):
        return Policy("port security", "target" if "_out_" in flow.stage else "source")
    return None


def _no_record(host: str, port: str) -> str:
    return f"the controller has no record of {host}, at which {port} is plugged in"


_OWN = re.compile(r"\b(?:cookie|duration|n_packets|n_bytes|idle_age|hard_age)=[^, ]*,? *")
"""What one flow has of its own, beside table, priority and match."""
_NUMBERED = re.compile(r"\bconj_id=\d+")
"""What a controller may number anew when it starts again."""


def keys(flows: Iterable[str]) -> tuple[int, ...]:
    """Return what stands for table, priority and match of each flow; 0 of those that expire."""
    heads = (
        text.partition(" actions=")[0] for text, _ in zip(flows, range(MOST_FLOWS), strict=False)
    )
    return tuple(
        0 if "_timeout=" in head else _number(_NUMBERED.sub("conj_id", _OWN.sub("", head)))
        for head in heads
    )


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


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
