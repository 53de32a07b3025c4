# SPDX-License-Identifier: Apache-2.0
"""The faults of a controller, done to a toy cluster: how each is made, named and mended."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from analyzer.intent.differences.binding import BINDING_NS
from analyzer.intent.differences.ghosts import GHOST_NS, REPLACED_NS
from analyzer.intent.differences.ladder import AWAY_NS, STALE_NS, TRANSLATION_NS
from analyzer.intent.differences.security import REFUSED_NS
from analyzer.intent.differences.tunnels import TUNNEL_NS
from analyzer.intent.model import Allowed, Chassis, Encapsulation
from netagent.wire.controller import Working
from tests.analyzer.intent.differences.clusters import Cluster

Mend = Callable[[], object]


@dataclass(frozen=True)
class Fault:
    """A fault that can be done to a cluster, at a host of it."""

    kind: str
    within_ns: int
    part: Callable[[Cluster, str], str]
    do: Callable[[Cluster, str], Mend]


def _port(cluster: Cluster, host: str) -> str:
    """Return a port that is plugged in at a host, always the same one."""
    return min(each.name for each in cluster.plugs.values() if each.host == host)


def _other(cluster: Cluster) -> str:
    """Return a host at which no fault is done."""
    return max(cluster.host)


def _working(how: Working) -> Callable[[Cluster, str], Mend]:
    def do(cluster: Cluster, host: str) -> Mend:
        cluster.host[host].working = how
        return lambda: setattr(cluster.host[host], "working", Working.CONNECTED)

    return do


def _hangs(cluster: Cluster, host: str) -> Mend:
    """Let an instance that says that it works install nothing: a generation is asked for twice."""
    chassis = cluster.host[host].chassis
    cluster.asked += 1
    settle = cluster.settle
    stuck = replace(cluster.chassis[chassis], installed=cluster.translated)

    def settled() -> None:
        settle()
        cluster.chassis[chassis] = stuck

    cluster.settle = settled  # type: ignore[method-assign]
    return lambda: setattr(cluster, "settle", settle)


def _exits(cluster: Cluster, host: str) -> Mend:
    """End an instance in order: its record goes, and all peers delete their tunnels."""
    record = cluster.chassis.pop(cluster.host[host].chassis)
    cluster.host[host].working = Working.STOPPED

    def mend() -> None:
        cluster.chassis[record.name] = record
        cluster.host[host].working = Working.CONNECTED

    return mend


def _freeze(cluster: Cluster, _host: str) -> Mend:
    cluster.frozen = True
    cluster.plug(cluster.declare())
    return lambda: setattr(cluster, "frozen", False)


def _freeze_unasked(cluster: Cluster, host: str) -> Mend:
    """Do the same where nobody counts what is asked for."""
    mend = _freeze(cluster, host)
    cluster.asked = cluster.translated
    return mend


def _iface_id(wrong: str) -> Callable[[Cluster, str], Mend]:
    def do(cluster: Cluster, host: str) -> Mend:
        name = _port(cluster, host)
        plug = cluster.plugged(name)[0]
        plug.name = wrong
        return lambda: setattr(plug, "name", name)

    return do


def _second(cluster: Cluster, host: str) -> Mend:
    name = _port(cluster, host)
    plug = cluster.plug(cluster.port[name], _other(cluster))
    return lambda: cluster.plugs.pop(plug.interface)


def _elsewhere(cluster: Cluster, host: str) -> Mend:
    name = _port(cluster, host)
    old = cluster.port[name]
    cluster.port[name] = replace(old, hosts=(cluster.host[_other(cluster)].chassis,))
    cluster.placement[name] = replace(cluster.placement[name], chassis="")
    settle = cluster.settle

    def settled() -> None:
        settle()
        if cluster.port[name].hosts:
            cluster.placement[name] = replace(cluster.placement[name], chassis="")

    cluster.settle = settled  # type: ignore[method-assign]
    return lambda: cluster.port.update({name: old})


def _offer(address: Callable[[Cluster, str], str]) -> Callable[[Cluster, str], Mend]:
    def do(cluster: Cluster, host: str) -> Mend:
        cluster.host[host].offered = address(cluster, host)
        cluster.asked += 1
        return lambda: setattr(cluster.host[host], "offered", cluster.host[host].address)

    return do


def _ghost(cluster: Cluster, _host: str) -> Mend:
    ends = (Encapsulation("geneve", "192.0.2.200"),)
    cluster.chassis["gone"] = Chassis("gone", "gone.example", ends, is_registered=False)
    return lambda: cluster.chassis.pop("gone")


def _reimage(cluster: Cluster, host: str) -> Mend:
    """Install a host anew: its instance has another name, and is refused for the old one."""
    cluster.host[host].chassis += "-new"

    def mend() -> None:
        old = cluster.chassis.pop(cluster.host[host].chassis.removesuffix("-new"))
        new = replace(old, name=cluster.host[host].chassis)
        cluster.chassis[new.name] = new

    return mend


def _change(what: str, to: str) -> Callable[[Cluster, str], Mend]:
    def do(cluster: Cluster, host: str) -> Mend:
        name = _port(cluster, host)
        port, plug = cluster.port[name], cluster.plugged(name)[0]
        cluster.port[name] = replace(port, allowed=(Allowed(port.macs[0], port.addresses),))
        was = getattr(plug, what)
        setattr(plug, what, to)
        return lambda: setattr(plug, what, was)

    return do


def _away(cluster: Cluster, _host: str) -> Mend:
    cluster.away = {"OVN_Southbound": "connection refused"}
    return cluster.away.clear


def _all_cut_off(cluster: Cluster, _host: str) -> Mend:
    mends = [_working(Working.CUT_OFF)(cluster, host) for host in cluster.host]
    return lambda: [mend() for mend in mends]


def _at(host: str) -> Callable[[Cluster, str], str]:
    return lambda cluster, at: host.format(at=at, port=_port(cluster, at),
                                           chassis=cluster.host[at].chassis)  # fmt: skip


FAULTS = {
    "a1 frozen": Fault("controller-stale", STALE_NS, _at("{at}"), _working(Working.SILENT)),
    "a1 cut off": Fault("controller-stale", STALE_NS, _at("{at}"), _working(Working.CUT_OFF)),
    "a1 behind": Fault("controller-stale", STALE_NS, _at("{at}"), _hangs),
    "a2 killed": Fault("controller-stale", STALE_NS, _at("{at}"), _working(Working.STOPPED)),
    "a3 ended": Fault("controller-stale", STALE_NS, _at("{at}"), _exits),
    "b1 no iface-id": Fault("port-unbound", BINDING_NS, _at("port {port}"), _iface_id("")),
    "b1 wrong iface-id": Fault("port-unbound", BINDING_NS, _at("port {port}"), _iface_id("px")),
    "b2 two": Fault("port-contested", BINDING_NS, _at("port {port}"), _second),
    "b3 elsewhere": Fault("port-misplaced", BINDING_NS, _at("port {port}"), _elsewhere),
    "e2 wrong": Fault("tunnel-address-wrong", TUNNEL_NS, _at("tunnel {at}"),
                      _offer(lambda _c, _h: "192.0.2.99")),
    "e3 taken": Fault("tunnel-address-taken", TUNNEL_NS, _at("tunnel {at}"),
                      _offer(lambda c, _h: c.host[_other(c)].address)),
    "f address": Fault("address-refused", REFUSED_NS, _at("port {port}"),
                       _change("address", "10.0.9.9")),
    "f mac": Fault("address-refused", REFUSED_NS, _at("port {port}"),
                   _change("mac", "02:00:00:00:00:99")),
    "g frozen": Fault("translation-stale", TRANSLATION_NS, _at("northd"), _freeze),
    "g not asked": Fault("translation-stale", TRANSLATION_NS, _at("northd"), _freeze_unasked),
    "h1 ghost": Fault("ghost-chassis", GHOST_NS, _at("chassis gone"), _ghost),
    "h2 re-imaged": Fault("ghost-chassis", REPLACED_NS, _at("chassis {chassis}"), _reimage),
    "away": Fault("controller-away", AWAY_NS, _at("ovn"), _away),
    "all cut off": Fault("controller-away", AWAY_NS, _at("ovn"), _all_cut_off),
}  # fmt: skip
