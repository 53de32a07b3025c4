# SPDX-License-Identifier: Apache-2.0
"""One packet through one host's bridges, by their tables.

The machine keeps an explicit stack of frames, one per flow being executed, as Open vSwitch's
translation keeps one on its C stack. A rewrite in a resubmitted table stays in force after the
return; what happens behind a patch port does not. Whatever is not understood ends the walk in
`cannot_tell`, for nothing after it is certain.

One difference from Open vSwitch is known: a loop is found when a state repeats, before Open vSwitch
would notice. If such a loop also floods, Open vSwitch may first exceed 64 kB of datapath actions,
and then executes what it has instead of dropping it. Here that is a loop like any other.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from .flow import (
    Action,
    Bridge,
    Flow,
    Plain,
    Port,
    Resubmit,
    Snapshot,
    Subfield,
    ToField,
    ToPort,
    Tunnel,
    Unknown,
)
from .notation import SPECIAL_PORTS, format_ipv4, format_mac, integer, ipv4, or_zero
from .packet import FIELDS, FRAGMENT, Header, read
from .rewrite import (
    TUN_DST,
    TUN_ID,
    Origins,
    rewrite,
    through_patch,
    trace_origins,
    ttl_exhausted,
)
from .table import Found, lookup, nearest
from .walk import End, EndKind, LocalWalk, Quote, Step

MAX_DEPTH = 64
MAX_RESUBMITS = 4096
"""Where Open vSwitch gives up and drops the packet (`ofproto-dpif-xlate.c`)."""

MAX_COPIES = 8192
"""As many as fit into the 64 KiB that Open vSwitch allows for a packet's datapath actions."""

_IN_PORT, _NORMAL = SPECIAL_PORTS["in_port"], SPECIAL_PORTS["normal"]
_FLOOD, _ALL = SPECIAL_PORTS["flood"], SPECIAL_PORTS["all"]
_CONTROLLER, _TABLE, _NONE = (SPECIAL_PORTS[n] for n in ("controller", "table", "none"))
_NOWHERE = "0.0.0.0"
_RESERVED_GROUP = 0x0180C2000000
"""The 16 link-local group addresses from here up are not forwarded by NORMAL."""


def walk(snapshot: Snapshot, bridge: str, header: Header) -> LocalWalk:
    """Carry a packet that enters `bridge` by its `in_port` through the host.

    Raises
    ------
    KeyError
        If the host has no such bridge.
    """
    at = snapshot.by_name[bridge]
    port = at.by_number.get(header.in_port)
    machine = _Machine(snapshot, header)
    machine.run(at)
    name = port.name if port else ""
    return LocalWalk(snapshot.host, bridge, name, tuple(machine.ends), tuple(machine.steps))


_Outside = tuple[Header, Origins]


@dataclass(slots=True)
class _Frame:
    """One flow being executed."""

    bridge: Bridge
    table: int
    flow: Flow
    level: int
    depth: int
    key: object
    outside: _Outside | None
    """Set where a patch port was crossed: what to restore on the way back."""

    position: int = 0
    pending: deque[int] = field(default_factory=deque)
    """Ports that the current action still has to send to."""

    done: bool = False
    """Whether anything became of the packet here: a copy left, or another table took over."""

    why_not: str = ""

    @property
    def quote(self) -> Quote:
        return Quote.of(self.bridge.name, self.flow)


class _Machine:
    def __init__(self, snapshot: Snapshot, header: Header) -> None:
        self._snapshot = snapshot
        self._header = header
        self._arrived_at = header.tun_dst
        self._origins: Origins = {}
        self._stack: list[_Frame] = []
        self._on_path: set[object] = set()  # states of the frames on the stack
        self._resubmits = 0
        self.ends: list[End] = []
        self.steps: list[Step] = []

    def run(self, bridge: Bridge) -> None:
        """Carry the packet until nothing is left to do; `ends` and `steps` tell the tale."""
        self._enter(bridge, 0, self._header.in_port)
        while self._stack:
            frame = self._stack[-1]
            if frame.pending:
                self._send(frame, frame.pending.popleft())
            elif frame.position < len(frame.flow.actions):
                action = frame.flow.actions[frame.position]
                frame.position += 1
                self._execute(frame, action)
            else:
                self._leave()

    # --- tables ---------------------------------------------------------------------------------

    def _enter(
        self,
        bridge: Bridge,
        table: int,
        in_port: int,
        outside: _Outside | None = None,
    ) -> None:
        """Look the packet up in `table` as if from `in_port`; begin to execute what is found."""
        above = self._stack[-1] if self._stack else None
        key = (bridge.name, table, in_port, self._header)
        deep = above is not None and above.depth >= MAX_DEPTH
        if key in self._on_path or deep or self._resubmits >= MAX_RESUBMITS:
            self._loop(key, bridge, table, outside)
            return
        depth = 0
        if above:
            self._resubmits += 1
            depth = above.depth + (outside is not None or table <= above.table)
        seen = self._header._replace(in_port=in_port)
        if seen.nw_frag & FRAGMENT:  # a table cannot see ports that later fragments lack
            seen = seen._replace(tp_src=0, tp_dst=0)
        found = lookup(bridge.tables.get(table, ()), seen)
        level = above.level + 1 if above else 0
        if found.flow is None or found.doubt:
            self._not_found(bridge, table, seen, found, level)
            self._restore(outside)
            return
        self.steps.append(Step(level, f"{bridge.name}/table={table}", found.flow.text))
        self._stack.append(_Frame(bridge, table, found.flow, level, depth, key, outside))
        self._on_path.add(key)

    def _not_found(
        self, bridge: Bridge, table: int, seen: Header, found: Found, level: int
    ) -> None:
        if found.flow and found.doubt:
            quote = Quote.of(bridge.name, found.flow)
            self._give_up(End("cannot_tell", bridge.name, table, found.doubt, seen, flow=quote))
            return
        near, differing = _near(bridge, table, seen)
        reason = "no flow matches" if bridge.tables.get(table) else "the table is empty"
        end = End("missed", bridge.name, table, reason, seen, nearest=near, field=differing)
        self._end(end, level)

    def _leave(self) -> None:
        """Finish the topmost flow."""
        frame = self._stack.pop()
        self._on_path.discard(frame.key)
        if not frame.done:
            self._drop(frame, frame.why_not or "its actions send the packet nowhere")
        self._restore(frame.outside)

    def _restore(self, outside: _Outside | None) -> None:
        if outside:
            self._header, self._origins = outside

    def _loop(self, key: object, bridge: Bridge, table: int, outside: _Outside | None) -> None:
        """Stop as Open vSwitch does, which goes round until a limit that it takes for an error.

        An error behind a patch port ends what that bridge does; any other drops every copy.
        """
        cycle = self._cycle(key)
        if key in self._on_path:
            reason = "the packet comes back as it was"
        elif self._resubmits >= MAX_RESUBMITS:
            reason = f"over {MAX_RESUBMITS} lookups, where Open vSwitch gives up"
        else:
            reason = f"over {MAX_DEPTH} lookups deep, where Open vSwitch gives up"
        end = End("loop", bridge.name, table, reason, self._header, cycle=cycle)
        contained = outside or any(frame.outside for frame in self._stack)
        if not contained:
            self.ends.clear()
        self._end(end, self._stack[-1].level + 1)
        if outside:
            self._restore(outside)
        else:
            self._unwind()

    def _cycle(self, key: object) -> tuple[Quote, ...]:
        """Return the flows from the last visit to the same place until now."""
        keys = [frame.key for frame in self._stack]
        if key in keys:
            start = keys.index(key)
        else:
            last = self._stack[-1]
            same = [n for n, frame in enumerate(self._stack[:-1]) if frame.flow is last.flow]
            start = same[-1] + 1 if same else 0
        return tuple(frame.quote for frame in self._stack[start:])

    # --- actions --------------------------------------------------------------------------------

    def _execute(self, frame: _Frame, action: Action) -> None:
        match action:
            case Unknown(text, column):
                reason = f"action not understood (column {column}): {text}"
                self._give_up(self._end_at(frame, "cannot_tell", reason))
            case Resubmit(port, table):
                frame.done = True
                in_port = self._header.in_port if port is None else port
                self._enter(frame.bridge, frame.table if table is None else table, in_port)
            case ToPort(port):
                self._to_port(frame, port)
            case ToField(Subfield(name, start, width)):
                number = read(FIELDS[name], self._header) >> start & (1 << width) - 1
                self._to_port(frame, number)
            case Plain("drop"):
                frame.why_not = "drop"
            case Plain("controller"):
                self._to_controller(frame)
            case Plain("dec_ttl"):
                self._dec_ttl(frame)
            case Plain("exit"):
                self._unwind()
            case _:
                self._header = rewrite(self._header, action)
                self._origins = trace_origins(self._origins, frame.flow, action)

    def _to_port(self, frame: _Frame, number: int) -> None:
        """Send to a port or to what a reserved port stands for."""
        in_port = self._header.in_port
        if number == _IN_PORT:
            self._send(frame, in_port, hairpin=True)
        elif number == _CONTROLLER:
            self._to_controller(frame)
        elif number == _NORMAL:
            self._normal(frame)
        elif number in {_FLOOD, _ALL}:
            frame.pending.extend(n for n in frame.bridge.by_number if n != in_port)
        elif number == _TABLE:
            self._give_up(self._end_at(frame, "cannot_tell", "action not understood: TABLE"))
        else:
            self._send(frame, number)

    def _to_controller(self, frame: _Frame) -> None:
        self._end(self._end_at(frame, "controller", "sent to the controller"), frame.level + 1)
        frame.done = True

    def _dec_ttl(self, frame: _Frame) -> None:
        if ttl_exhausted(self._header):
            self._drop(frame, "its time to live ran out")
            frame.position = len(frame.flow.actions)
            frame.done = True
        else:
            self._header = rewrite(self._header, Plain("dec_ttl"))

    def _unwind(self) -> None:
        """Stop everything up to the patch port that led here."""
        for above in reversed(self._stack):
            above.position = len(above.flow.actions)
            above.pending.clear()
            if above.outside:
                return

    def _normal(self, frame: _Frame) -> None:
        """Forward as a learning switch would."""
        bridge, header = frame.bridge, self._header
        odd = next((port for port in bridge.ports if port.vlan or port.bond), None)
        if odd:
            what = f"bond {odd.bond}" if odd.bond else f"VLANs of port {odd.name}: {odd.vlan}"
            self._give_up(self._end_at(frame, "cannot_tell", f"NORMAL with {what}"))
        elif header.in_port not in bridge.by_number:
            frame.why_not = (
                f"NORMAL refuses a packet from port {header.in_port}, which is not there"
            )
        elif header.eth_dst & ~0xF == _RESERVED_GROUP:
            frame.why_not = "NORMAL does not forward link-local groups"
        else:
            self._switch(frame)

    def _switch(self, frame: _Frame) -> None:
        header = self._header
        multicast = header.eth_dst >> 40 & 1
        vlan = header.vlan_tci & 0xFFF
        entry = next(
            (e for e in frame.bridge.fdb if e.mac == header.eth_dst and e.vlan == vlan), None
        )
        if entry is None or multicast:
            frame.pending.extend(n for n in frame.bridge.by_number if n != header.in_port)
        elif entry.port == header.in_port:
            where = f"{format_mac(header.eth_dst)} is learned at the port that it came in by"
            frame.why_not = f"NORMAL: {where}"
        else:
            self._send(frame, entry.port)

    # --- ports ----------------------------------------------------------------------------------

    def _send(self, frame: _Frame, number: int, *, hairpin: bool = False) -> None:
        """Send a copy to one port."""
        port = frame.bridge.by_number.get(number)
        if port is None:
            if number != _NONE:
                frame.why_not = f"port {number} does not exist"
        elif number == self._header.in_port and not hairpin:
            frame.why_not = f"{port.name} is the port that it came in by"
        elif port.type == "patch":
            self._cross(frame, port)
        elif tunnel := port.tunnel:
            self._encapsulate(frame, port, tunnel)
        else:
            end = self._end_at(frame, "output", f"out by {port.name}", port=port.name)
            self._end(end, frame.level + 1)
            frame.done = True

    def _cross(self, frame: _Frame, port: Port) -> None:
        """Take the packet through a patch port into its peer's bridge."""
        peer_name = dict(port.options).get("peer", "")
        peer = self._snapshot.port(peer_name)
        if peer is None or peer.ofport < 0:
            frame.why_not = f"patch port {port.name} has no peer {peer_name!r}"
            return
        frame.done = True
        outside = (self._header, self._origins)
        self.steps.append(Step(frame.level + 1, "", f"through {port.name} to {peer.name}"))
        self._header, self._origins = through_patch(self._header, peer.ofport), {}
        self._enter(self._snapshot.by_name[peer.bridge], 0, peer.ofport, outside)

    def _encapsulate(self, frame: _Frame, port: Port, tunnel: Tunnel) -> None:
        """Send a copy into a tunnel, with what the port's options or the packet's metadata say."""
        header = self._header
        by_flow = tunnel.remote_ip == "flow"
        remote = format_ipv4(header.tun_dst) if by_flow else tunnel.remote_ip
        if remote in {"", _NOWHERE}:
            frame.why_not = f"no tunnel destination is set for {port.name}"
            return
        if self._arrived_at and or_zero(ipv4, remote) == self._arrived_at:
            frame.why_not = f"{remote} is the address at which it came in by a tunnel"
            return
        local = format_ipv4(header.tun_src) if tunnel.local_ip == "flow" else tunnel.local_ip
        key = tunnel.out_key
        tun_id = header.tun_id if key == "flow" else or_zero(integer, key) & (1 << 64) - 1
        reason = f"out by {port.name} to {remote}, key {tun_id}"
        end = replace(
            self._end_at(frame, "tunnelled", reason, port.name),
            tun_id=tun_id,
            tun_src="" if local == _NOWHERE else local,
            tun_dst=remote,
            tun_id_by=self._origin(frame, TUN_ID) if key == "flow" else None,
            tun_dst_by=self._origin(frame, TUN_DST) if by_flow else None,
        )
        self._end(end, frame.level + 1)
        frame.done = True

    def _origin(self, frame: _Frame, slot: int) -> Quote | None:
        flow = self._origins.get(slot)
        return Quote.of(frame.bridge.name, flow) if flow else None

    # --- ends -----------------------------------------------------------------------------------

    def _end_at(self, frame: _Frame, kind: EndKind, reason: str, port: str = "") -> End:
        bridge = frame.bridge.name
        return End(kind, bridge, frame.table, reason, self._header, port, frame.quote)

    def _drop(self, frame: _Frame, reason: str) -> None:
        """Record that nothing left by this flow; a table's default flow is as good as a miss."""
        near, differing = None, ""
        if not frame.flow.match.terms and not frame.flow.match.unknown:
            near, differing = _near(frame.bridge, frame.table, self._header)
        end = replace(self._end_at(frame, "dropped", reason), nearest=near, field=differing)
        self._end(end, frame.level + 1)

    def _end(self, end: End, level: int) -> None:
        if len(self.ends) == MAX_COPIES:
            self._stack.clear()
            end = replace(end, kind="cannot_tell", reason=f"over {MAX_COPIES} copies")
        self.ends.append(end)
        where = f"{end.bridge}/table={end.table}" if end.kind == "missed" else ""
        self.steps.append(Step(level, where, f"{end.kind}: {end.reason}"))

    def _give_up(self, end: End) -> None:
        level = self._stack[-1].level + 1 if self._stack else 0
        self._end(end, level)
        self._stack.clear()


def _near(bridge: Bridge, table: int, header: Header) -> tuple[Quote | None, str]:
    near = nearest(bridge.tables.get(table, ()), header)
    if near is None:
        return None, ""
    return Quote.of(bridge.name, near.flow), ",".join(term.field for term in near.failed)
