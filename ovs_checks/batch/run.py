# SPDX-License-Identifier: Apache-2.0
"""Many packets at once through one host's flow tables.

Packets go through the tables together: a lookup asks each mask once for all of them, and flows that
do the same with other constants are done at once. What this does not know (groups, connection
tracking, NORMAL, patch ports, several copies, ...) is left to `pipeline.walk`, packet by packet, so
that the answers are those of `walk` however they came about.

numpy is imported here, so this module stays out of the agent: it is for a process of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from netagent.model.walk import EndKind
from ovs_checks.openflow.heap import only_growing
from ovs_checks.openflow.notation import integer, ipv4, or_zero
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from ovs_checks.walk.host import walk
from ovs_checks.walk.values import LocalWalk

from .state import I32, U64, WIDE, Index, Packets, State
from .tables import RESERVED, PacketTable, Template

KINDS: tuple[EndKind, ...] = get_args(EndKind)
_OUTPUT, _TUNNELLED, _DROPPED, _MISSED = (
    KINDS.index(kind) for kind in ("output", "tunnelled", "dropped", "missed")
)
_UNDECIDED, _DEFERRED = len(KINDS), len(KINDS) + 1

MAX_DEPTH = 60
"""Lookups within lookups that a batch follows; `walk` takes what goes deeper. Chosen: below Open
vSwitch's own limit of 64, at which `walk` finds loops."""

MAX_LOOKUPS = 4000
"""Lookups of one batch; `walk` takes what needs more. Chosen: below Open vSwitch's own limit of
4096 per packet."""
_IN_PORT, _TUN_DST, _TUN_ID = (SLOTS[name] for name in ("in_port", "tun_dst", "tun_id"))


ODD = (
    *("packet_type", "nw_frag", "recirc_id", "tun_dst", "tun_ipv6_dst", "tun_tos"),
    *("ct_state", "conj_id"),
)
"""Slots that lookups of many packets do not know: whoever has one of them is walked."""


@dataclass(frozen=True)
class Ends:
    """What became of the packets, one element for each."""

    kind: NDArray[np.uint8]
    """Index into `KINDS`."""

    port: I32
    """OpenFlow number of the port it left by, -1 for none."""

    tun_dst: U64
    """IPv4 address that it was tunnelled to; 0 for none. What goes to an IPv6 one is walked."""

    tun_id: U64
    flow: I32
    """Index into the bridge's flows of the one that did it; -1 for none, or if it was walked."""

    table: I32
    """Number of the table that has no flow for it; -1 if that is not how it ended."""

    walked: Mapping[int, LocalWalk]
    """Walks of the packets that were left to `walk`, by position."""


class Batch:
    """A bridge of a snapshot, made ready for many packets."""

    def __init__(self, snapshot: Snapshot, bridge: str) -> None:
        self.snapshot = snapshot
        self.bridge: Bridge = snapshot.by_name[bridge]
        self._index = {id(flow): n for n, flow in enumerate(self.bridge.flows)}
        self._tables: dict[int, PacketTable | None] = {}
        self._ports = _PortKinds(snapshot, self.bridge)

    def prepare(self) -> None:
        """Make all tables ready, which is otherwise done when a packet comes to them."""
        with only_growing():
            for number in self.bridge.tables:
                self.table(number)

    def table(self, number: int) -> PacketTable | None:
        """Return a table; None for an empty one."""
        if number not in self._tables:
            table = self.bridge.tables.get(number)
            self._tables[number] = PacketTable(number, table, self._index) if table else None
        return self._tables[number]

    def run(self, packets: Packets) -> Ends:
        """Carry packets that enter the bridge by their `in_port` through the host.

        Raises
        ------
        ValueError
            If columns are not of one length, or hold fields of over 64 bits.
        """
        wide = [name for name in packets.columns if SLOTS[name] in WIDE]
        if wide:
            raise ValueError(f"no column may hold {wide[0]}")
        run = _Run(self, packets)
        everyone = np.arange(packets.count, dtype=np.int64)
        if _may_begin(packets) and self._ports.simple:
            in_ports = run.state.read(_IN_PORT, everyone).astype(np.int64)
            known = self._ports.kind[np.minimum(in_ports, 0xFFFF)] == _PLAIN
            run.defer(everyone[~known])
            run.look_up(0, everyone[known], 0)
        else:
            run.defer(everyone)
        return run.ends()

    @property
    def ports(self) -> "_PortKinds":
        """How packets leave by each port."""
        return self._ports


def _may_begin(packets: Packets) -> bool:
    """Tell whether packets are of the kind that lookups of many are made for."""
    return not any(getattr(packets.base, name) or name in packets.columns for name in ODD)


_ABSENT, _PLAIN, _TUNNEL, _OTHER = range(4)


class _PortKinds:
    """What becomes of packets that are sent to a port, by number."""

    def __init__(self, snapshot: Snapshot, bridge: Bridge) -> None:
        features = snapshot.features.get(bridge.datapath_type)
        native = bool(features and features.tunnel_push_pop)
        plain = not bridge.mirrors and not bridge.unsupported and not bridge.spanning_tree
        self.simple = plain and not snapshot.listeners
        self.kind = np.zeros(1 << 16, np.uint8)
        self.tunnels: dict[int, Port] = {}
        for number, port in bridge.by_number.items():
            lane = bridge.by_lane.get(number)
            shut = lane is not None and lane.protected
            odd = shut or port.config or port.queues or port.layer != "L2"
            self.kind[number & 0xFFFF] = _OTHER if odd else _PLAIN
            if port.tunnel is not None:
                self.kind[number & 0xFFFF] = _OTHER if odd or native else _TUNNEL
                self.tunnels[number] = port


class _Run:
    """A batch of packets on its way through a host."""

    def __init__(self, batch: Batch, packets: Packets) -> None:
        count = packets.count
        self._batch, self._packets = batch, packets
        self.state = State(packets)
        self._kind = np.full(count, _UNDECIDED, np.uint8)
        self._port = np.full(count, -1, np.int32)
        self._flow = np.full(count, -1, np.int32)
        self._table = np.full(count, -1, np.int32)
        self._walked: dict[int, LocalWalk] = {}
        self._tun_dst = np.zeros(count, np.uint64)
        self._tun_id = np.zeros(count, np.uint64)
        self._events = np.zeros(count, np.int32)
        self._lookups = 0

    def defer(self, index: Index) -> None:
        """Leave packets to `walk`."""
        self._kind[index] = _DEFERRED
        self._events[index] += 1

    def look_up(self, number: int, index: Index, depth: int) -> None:
        """Have packets looked up in a table, and do what is found."""
        index = index[self._kind[index] != _DEFERRED]
        if not index.size:
            return
        self._lookups += 1
        table = self._batch.table(number)
        if table is None:
            self._miss(index, number)
            return
        if table.deferred or depth > MAX_DEPTH or self._lookups > MAX_LOOKUPS:
            self.defer(index)
            return
        rows, doubtful = self._find(table, index)
        if doubtful.any():
            self.defer(index[doubtful])
            index, rows = index[~doubtful], rows[~doubtful]
        missed = rows < 0
        if missed.any():
            self._miss(index[missed], number)
            index, rows = index[~missed], rows[~missed]
        used = table.template[rows]
        present = np.flatnonzero(np.bincount(used, minlength=len(table.templates)))
        for one in present:
            chosen = slice(None) if present.size == 1 else used == one
            self._do(table, table.templates[one], index[chosen], rows[chosen], depth)

    def _find(self, table: PacketTable, index: Index) -> tuple[I32, NDArray[np.bool_]]:
        """Return the row of each packet's flow, -1 for none, and where another is as good."""
        best = np.full(index.size, -1, np.int32)
        doubtful = np.zeros(index.size, bool)
        if len(table.subtables) == 1:
            found = table.subtables[0].find(self.state, index)
            return (best if found is None else found), doubtful
        rank = np.full(index.size, -1, np.int32)
        for subtable in table.subtables:
            if rank.size and rank.min() > subtable.top:
                break
            found = subtable.find(self.state, index)
            if found is None:
                continue
            priority = np.where(found >= 0, table.priority[found], np.int32(-2))
            doubtful |= priority == rank
            better = priority > rank
            doubtful &= ~better
            best[better], rank[better] = found[better], priority[better]
        return best, doubtful

    def _do(
        self, table: PacketTable, template: Template, index: Index, rows: I32, depth: int
    ) -> None:
        if template.deferred:
            self.defer(index)
            return
        before = self._events[index]
        position = table.position[rows]
        for n, step in enumerate(template.steps):
            constants = template.constants[n]
            match step:
                case ("write", slot, mask):
                    self.state.write(slot, mask, constants, position, index)
                case ("move", source, start, width, target, at):
                    moved = self.state.read(source, index) >> np.uint64(start)
                    moved = (moved & np.uint64((1 << width) - 1)) << np.uint64(at)
                    values, codes = np.unique(moved, return_inverse=True)
                    mask = (1 << width) - 1 << at
                    self.state.write(target, mask, values, codes, index)
                case ("look up", number):
                    self.look_up(number, index, depth + 1)
                case ("output",):
                    self._output(constants[position], index, table.flow[rows])
                case ("output by", slot, start, width):
                    ports = self.state.read(slot, index) >> np.uint64(start)
                    ports &= np.uint64((1 << width) - 1)
                    special = np.isin(ports, _SPECIAL)
                    self.defer(index[special])
                    self._output(ports[~special], index[~special], table.flow[rows[~special]])
                case ("return",):
                    ports = self.state.read(_IN_PORT, index)
                    self._output(ports, index, table.flow[rows], back=True)
        nothing = self._events[index] == before
        self._drop(index[nothing], table.flow[rows[nothing]])

    def _miss(self, index: Index, table: int) -> None:
        lost = index[self._lost(index)]
        self._kind[lost], self._flow[lost], self._table[lost] = _MISSED, -1, table

    def _drop(self, index: Index, flow: I32) -> None:
        told = self._lost(index)
        lost = index[told]
        self._kind[lost], self._flow[lost], self._table[lost] = _DROPPED, flow[told], -1

    def _lost(self, index: Index) -> NDArray[np.bool_]:
        """Tell of which of the packets, which end here, no copy has left."""
        self._events[index] += 1
        return ~np.isin(self._kind[index], (_OUTPUT, _TUNNELLED, _DEFERRED))

    def _output(self, ports: U64, index: Index, flow: I32, *, back: bool = False) -> None:
        numbers = ports.astype(np.int64)
        kinds = np.where(numbers > 0xFFFF, _ABSENT, self._batch.ports.kind[numbers & 0xFFFF])
        if not back:
            kinds = np.where(self.state.read(_IN_PORT, index) == ports, _ABSENT, kinds)
        again = np.isin(self._kind[index], (_OUTPUT, _TUNNELLED)) & (kinds != _ABSENT)
        kinds = np.where(again, _OTHER, kinds)
        self.defer(index[kinds == _OTHER])
        plain = kinds == _PLAIN
        self._sent(index[plain], _OUTPUT, numbers[plain], flow[plain])
        tunnelled = kinds == _TUNNEL
        for number in np.unique(numbers[tunnelled]):
            mine = tunnelled & (numbers == number)
            self._encapsulate(self._batch.ports.tunnels[int(number)], index[mine], flow[mine])

    def _encapsulate(self, port: Port, index: Index, flow: I32) -> None:
        tunnel = port.tunnel
        if tunnel is None:
            return
        if tunnel.remote_ip == "flow":
            remote = self.state.read(_TUN_DST, index)
        else:
            remote = np.full(index.size, or_zero(ipv4, tunnel.remote_ip), np.uint64)
        if tunnel.out_key == "flow":
            key = self.state.read(_TUN_ID, index)
        else:
            key = np.full(index.size, or_zero(integer, tunnel.out_key), np.uint64)
        led = remote != 0
        self.defer(index[~led])
        index = index[led]
        self._tun_dst[index], self._tun_id[index] = remote[led], key[led]
        self._sent(index, _TUNNELLED, port.ofport, flow[led])

    def _sent(self, index: Index, kind: int, port: Any, flow: I32) -> None:
        kept = self._kind[index] != _DEFERRED
        self._events[index] += 1
        index = index[kept]
        self._kind[index], self._flow[index] = kind, flow[kept]
        self._port[index] = port[kept] if isinstance(port, np.ndarray) else port

    def ends(self) -> Ends:
        """Return what became of the packets; walk the deferred ones now."""
        deferred = np.flatnonzero(self._kind >= _UNDECIDED)
        for n in deferred:
            self._take(
                int(n),
                walk(self._batch.snapshot, self._batch.bridge.name, self._packets.header(int(n))),
            )
        columns = self._kind, self._port, self._tun_dst, self._tun_id, self._flow, self._table
        return Ends(*columns, self._walked)

    def _take(self, n: int, walked: LocalWalk) -> None:
        end = walked.end
        port = self._batch.snapshot.port(end.port) if end.port else None
        self._kind[n] = KINDS.index(end.kind)
        self._port[n] = port.ofport if port else -1
        self._tun_dst[n] = or_zero(ipv4, end.tun_dst)
        self._tun_id[n] = end.tun_id
        self._flow[n] = self._table[n] = -1
        self._walked[n] = walked


_SPECIAL = np.array(sorted(RESERVED), np.uint64)
