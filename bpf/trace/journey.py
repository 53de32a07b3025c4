# SPDX-License-Identifier: Apache-2.0
"""Names the place where packets of a flow vanish, from the counts of one or two hosts.

A host counts packets at stages. The difference between two neighbouring counted stages was lost
there, unless the switch itself explains it (upcalls, flows without actions). Of several places, the
verdict names the one that lost most.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bpf.trace.abi import STAGES

EGRESS = (
    "rxe_transmit",
    "port_receive",
    "lookup",
    "actions",
    "output",
    "port_transmit",
    "encapsulate",
    "uplink_transmit",
)
"""Stages of a packet from a container of this host to another host."""

INGRESS = (
    "uplink_receive",
    "decapsulate",
    "tunnel_receive",
    "lookup",
    "actions",
    "output",
    "port_transmit",
    "rxe_receive",
)
"""Stages of a packet from another host to a container of this one."""

LOCAL = (*EGRESS[: EGRESS.index("encapsulate")], "rxe_receive")
"""Stages of a packet between two containers of this host."""

PLACES = {
    ("rxe_transmit", "port_receive"): "the container's stack, before the switch",
    ("port_receive", "lookup"): "the switch, before its flow lookup",
    ("tunnel_receive", "lookup"): "the switch, before its flow lookup",
    ("lookup", "actions"): "ovs-vswitchd (upcalls not answered)",
    ("actions", "output"): "datapath action drop",
    ("output", "port_transmit"): "the output port, before its device transmits",
    ("port_transmit", "encapsulate"): "the tunnel device, before encapsulation",
    ("encapsulate", "uplink_transmit"): "uplink transmit (after encapsulation)",
    ("uplink_receive", "decapsulate"): "between uplink receive and the tunnel",
    ("decapsulate", "tunnel_receive"): "the tunnel",
    ("port_transmit", "rxe_receive"): "the container's stack, behind the switch",
    ("uplink_transmit", "uplink_receive"): "underlay",
}
"""What lies between two stages."""

UPCALL_QUEUE = "upcall queue"
WRONG_VNI = "encapsulation (wrong VNI)"
TUNNEL_PORT = "tunnel port not found at the far end"
LOCAL_PORT = "the flow table: sent to a port of this host, not to a tunnel"

_FROM_TUNNEL = {
    PLACES["lookup", "actions"]: "ovs-vswitchd hangs",
    PLACES["actions", "output"]: "a flow drops",
}
"""What it is unless ovs-vswitchd knows no port of a VNI: then it executes nothing, and adds a flow
that drops, until the next revalidation (`upcall_receive`, ofproto-dpif-upcall.c)."""

SLACK = 0.01
"""Share of a stage's packets that may be missing at the next. Chosen: packets are on their way when
a trace begins and ends."""

_TUNNELS = ("vxlan_sys_", "genev_sys_")
"""How names of the datapath's tunnel devices begin (lib/dpif-netlink-rtnl.c of Open vSwitch)."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Packets freed as dropped."""

    reason: str
    location: str
    after: str
    """Last stage passed; empty where the packet was not followed."""

    device: str
    packets: int

    def __str__(self) -> str:
        """Return it as evidence."""
        after = f" after {self.after}" if self.after else ""
        on = f" on {self.device}" if self.device else ""
        return f"{self.packets} dropped{after}{on}: {self.reason} at {self.location}"


@dataclass(frozen=True)
class HostView:
    """One host's counts of a flow."""

    packets: Mapping[str, int]
    """Counted stage -> packets; a stage that is not here is unknown, not zero."""

    foreign: Mapping[str, int] = field(default_factory=dict)
    """Stage -> packets of the flow with another VNI."""

    drops: Sequence[Dropped] = ()
    failed_upcalls: Mapping[str, int] = field(default_factory=dict)
    """Error that the kernel returned -> packets without a datapath flow that met it."""

    output_devices: frozenset[str] = frozenset()
    vnis: frozenset[int] = frozenset()
    """VNIs seen on the flow's packets, foreign ones included."""

    mean_bytes: Mapping[str, int] = field(default_factory=dict)
    """Stage -> mean bytes of a packet there, headers included."""

    def passed(self, stage: str) -> int:
        """Return how many packets of the flow passed, whatever their VNI."""
        return self.packets.get(stage, 0) + self.foreign.get(stage, 0)

    @property
    def is_local(self) -> bool:
        """Return whether packets were sent to ports of this host only."""
        to_tunnel = any(name.startswith(_TUNNELS) for name in self.output_devices)
        return bool(self.output_devices) and not to_tunnel and not self.passed("encapsulate")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where packets vanish."""

    where: str | None
    """The place; None where no packet vanished, or where `missing` says what is unknown."""

    host: str = ""
    """`sender`, `receiver` or `underlay`; `this host` where it may be either end."""

    lost: int = 0
    entered: int = 0
    """Packets that reached the place."""

    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What would have to be known; empty if nothing is missing."""

    def __str__(self) -> str:
        """Return one line."""
        if self.where:
            return f"packets vanish: {self.where} ({self.lost} of {self.entered}, {self.host})"
        if self.missing:
            return f"cannot tell: {'; '.join(self.missing)}"
        return f"no packet vanished of {self.entered}"


@dataclass(frozen=True, slots=True)
class _Edge:
    """Two stages that were counted, with nothing counted between them."""

    host: str
    before: str
    after: str
    entered: int
    left: int
    view: HostView

    @property
    def drops(self) -> list[Dropped]:
        first, last = STAGES.index(self.before), STAGES.index(self.after)
        if self.host == "underlay":
            return []
        known = [drop for drop in self.view.drops if drop.after in STAGES]  # a host says any
        return [drop for drop in known if first <= STAGES.index(drop.after) < last]

    @property
    def lost(self) -> int:
        return max(self.entered - self.left, sum(drop.packets for drop in self.drops))

    @property
    def is_significant(self) -> bool:
        return bool(self.drops) or self.lost > max(1, self.entered * SLACK)


def diagnose(*, sender: HostView | None = None, receiver: HostView | None = None) -> Verdict:
    """Return where the packets of a flow vanish between two containers.

    One view alone is judged as far as it goes; a host that is both is given as `sender`.
    """
    edges: list[_Edge] = []
    missing: list[str] = []
    for host, view in (("sender", sender), ("receiver", receiver)):
        if view is None:
            continue
        if view.passed("port_receive") and view.passed("tunnel_receive"):
            missing.append(f"{host}: both directions were counted; name both addresses")
            continue
        edges += _edges(host, view, _way(host, view, receiver, sender), missing)
    if missing:
        return Verdict(None, missing=tuple(missing), evidence=_drops_of(sender, receiver))
    edges += _underlay(sender, receiver)
    return _wrong_vni(sender, receiver) or _misdirected(sender, receiver) or _worst(edges)


def view_of(result: Mapping[str, Any]) -> HostView:
    """Return what a trace's result (see `result.to_result`) says of its host."""
    return HostView(
        packets={row["stage"]: row["packets"] for row in result["stages"]},
        foreign={row["stage"]: row["foreign"] for row in result["stages"]},
        drops=tuple(
            Dropped(*(row[name] for name in ("reason", "location", "after", "device", "packets")))
            for row in result["drops"]
        ),
        failed_upcalls={
            row["result"]: row["packets"]
            for row in result["upcalls"]
            if row["command"] == "miss" and row["result"] != "ok"
        },
        output_devices=frozenset(r["device"] for r in result["ports"] if r["stage"] == "output"),
        mean_bytes={
            r["stage"]: r["bytes"] // r["packets"] for r in result["stages"] if r["packets"]
        },
        vnis=frozenset(row["vni"] for row in result["ports"] if row["vni"]),
    )


def diagnose_one(view: HostView) -> Verdict:
    """Return where packets vanish on one host, which may be either end."""
    from_wire = view.passed("uplink_receive") or view.passed("tunnel_receive")
    if from_wire and not view.passed("port_receive"):
        return diagnose(receiver=view)
    return diagnose(sender=view)


def diagnose_upcalls(view: HostView) -> Verdict:
    """Return whether packets vanish between a host's flow lookup and its actions.

    Of both directions together: each packet is looked up, and then acted on.
    """
    lookups, left = view.passed("lookup"), view.passed("actions")
    if not lookups:
        return Verdict(None, missing=("no packet of the flow was looked up here",))
    failed = view.failed_upcalls
    lost = max(lookups - left, sum(failed.values()))
    if not failed and lost <= max(1, lookups * SLACK):
        return Verdict(None, entered=lookups)
    evidence = tuple(f"{count} upcalls failed: {error}" for error, count in failed.items())
    where = UPCALL_QUEUE if failed else PLACES["lookup", "actions"]
    return Verdict(where, "this host", lost, lookups, evidence)


def _way(
    host: str, view: HostView, receiver: HostView | None, sender: HostView | None
) -> tuple[str, ...]:
    """Return the stages that packets of this host should have passed."""
    if host == "receiver":
        used = view.passed("rxe_receive") or (sender and sender.passed("rxe_transmit"))
        return INGRESS if used else INGRESS[:-1]
    if view.is_local and receiver is None:
        return LOCAL if view.passed("rxe_receive") else LOCAL[:-1]
    return EGRESS


def _edges(host: str, view: HostView, way: Sequence[str], missing: list[str]) -> Iterable[_Edge]:
    counted = [stage for stage in way if stage in view.packets]
    if counted and counted[0] == "rxe_transmit" and not view.passed("rxe_transmit"):
        counted = counted[1:]
    if len(counted) < 2:
        missing.append(f"{host}: counts of at least two stages; see what does not run")
        return []
    if not view.passed(counted[0]):
        if host == "sender":
            missing.append("sender: no packet of the flow came in; is it sent, or offloaded?")
            return []
        if not any(map(view.passed, counted)):
            return []  # all were lost before: the underlay's edge tells, if the sender is known
    return [
        _Edge(host, before, after, view.passed(before), view.passed(after), view)
        for before, after in pairwise(counted)
    ]


def _underlay(sender: HostView | None, receiver: HostView | None) -> list[_Edge]:
    if sender is None or receiver is None:
        return []
    names = ("uplink_transmit", "uplink_receive")
    if names[0] not in sender.packets or names[1] not in receiver.packets:
        return []
    counts = (sender.passed(names[0]), receiver.passed(names[1]))
    return [_Edge("underlay", *names, *counts, sender)]


def _worst(edges: Sequence[_Edge]) -> Verdict:
    """Return the verdict over edges whose counts can be trusted."""
    if not edges:
        return Verdict(None, missing=("no packet of the flow arrived; trace its sender too",))
    significant = sorted((e for e in edges if e.is_significant), key=lambda edge: -edge.lost)
    entered = edges[0].entered
    if not significant:
        return Verdict(None, entered=entered)
    worst = significant[0]
    evidence = [f"{worst.before} {worst.entered}, {worst.after} {worst.left}"]
    evidence += map(str, worst.drops)
    if not worst.drops and (size := worst.view.mean_bytes.get(worst.before)):
        evidence.append(f"no drop was seen; frames of {size} bytes on average: compare MTUs")
    if (worst.before, worst.after) == ("lookup", "actions"):
        failed = worst.view.failed_upcalls
        evidence += [f"{count} upcalls failed: {error}" for error, count in failed.items()]
    if worst.host == "receiver" and (reason := _FROM_TUNNEL.get(_place(worst))):
        vnis = ", ".join(map(str, sorted(worst.view.vnis)))
        evidence.append(f"from a tunnel, VNI {vnis}: {reason}, or no tunnel port takes it")
    evidence += map(str, (d for d in worst.view.drops if not d.after))
    evidence += [f"also {_place(e)}: {e.lost} of {e.entered} ({e.host})" for e in significant[1:]]
    return Verdict(_place(worst), worst.host, worst.lost, worst.entered, tuple(evidence))


def _place(edge: _Edge) -> str:
    if (edge.before, edge.after) == ("lookup", "actions") and edge.view.failed_upcalls:
        return UPCALL_QUEUE
    known = PLACES.get((edge.before, edge.after))
    return known or f"between {edge.before} and {edge.after}"


def _wrong_vni(sender: HostView | None, receiver: HostView | None) -> Verdict | None:
    """Return a verdict if the flow's packets all carry another VNI than was asked for.

    Another tenant may use the same addresses: its packets, which are foreign throughout, explain
    neither what its neighbour lost in the switch nor what was lost where no VNI changes.
    """
    for stage in ("uplink_transmit", "encapsulate"):
        count = sender.foreign.get(stage, 0) if sender else 0
        if sender is None or not count or sender.packets.get(stage):
            continue
        entered = sender.passed("port_receive")
        if "port_receive" not in sender.packets or count >= entered * (1 - SLACK):
            return _foreign(sender, "sender", stage, WRONG_VNI)
    sent = sender is not None and any(map(sender.passed, ("encapsulate", "uplink_transmit")))
    if receiver and not sent and not receiver.packets.get("uplink_receive"):
        return _foreign(receiver, "receiver", "uplink_receive", TUNNEL_PORT)
    return None


def _foreign(view: HostView, host: str, stage: str, where: str) -> Verdict | None:
    count = view.foreign.get(stage, 0)
    vnis = ", ".join(map(str, sorted(view.vnis)))
    evidence = (
        f"{count} at {stage} with VNI {vnis}",
        "or another tenant uses these addresses: name in_port",
    )
    return Verdict(where, host, count, count, evidence) if count else None


def _misdirected(sender: HostView | None, receiver: HostView | None) -> Verdict | None:
    """Return a verdict if a packet for another host was sent to a port of the sender's."""
    if sender is None or receiver is None or not sender.is_local:
        return None
    count = sender.passed("output")
    evidence = (f"output to {', '.join(sorted(sender.output_devices))}",)
    return Verdict(LOCAL_PORT, "sender", count, count, evidence)


def _drops_of(*views: HostView | None) -> tuple[str, ...]:
    return tuple(str(drop) for view in views if view for drop in view.drops)
