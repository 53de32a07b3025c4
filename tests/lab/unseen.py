# SPDX-License-Identifier: Apache-2.0
"""Faults of which the flow tables say nothing: beside, behind, or in the far end of the switch."""

import os
import sys
from contextlib import suppress

from tests.lab import namespaces
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.faults import source_of
from tests.lab.ovs import kernel_datapath
from tests.lab.rim import Action, Rim, needed, nft_table, wrapped_in
from tests.lab.shape import UNDERLAY_MTU, namespace, rnic, underlay_bridge
from tests.lab.state import Fault
from tests.lab.targets import endpoint_of, rnic_of

_FLOOD_BURSTS = 2_000_000
"""A flood ends after this many bursts, however long it may last."""


def _uplink(rim: Rim, fault: Fault) -> tuple[str, str]:
    found = rnic_of(fault.target, rim.shape)
    return namespace(f"h{found.host}"), rnic(found.rail)


# --- a tc filter on the uplink -----------------------------------------------------------------


def _filter(rim: Rim, fault: Fault) -> None:
    where, interface = _uplink(rim, fault)
    ip = wrapped_in(rim)
    udp = ("match", ip, "protocol", "17", "0xff")
    tunnel = ("match", ip, "dport", str(rim.shape.encapsulation.port), "0xffff")
    with needed("tc's clsact, cls_u32 and act_gact"):
        run("tc", "-n", where, "qdisc", "add", "dev", interface, "clsact")
        run(
            *("tc", "-n", where, "filter", "add", "dev", interface, "egress"),
            *("protocol", "ipv6" if ip == "ip6" else "ip"),
            *("u32", *udp, *tunnel, "action", "drop"),
        )


def _stop_filtering(rim: Rim, fault: Fault) -> None:
    where, interface = _uplink(rim, fault)
    with suppress(LabError):  # already gone
        run("tc", "-n", where, "qdisc", "del", "dev", interface, "clsact")


# --- an uplink that is too narrow --------------------------------------------------------------


def _narrow(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    # Left alone, ovs-vswitchd would follow with the bridge, and the kernel would tell senders.
    rim.switch(found.host).keep_mtu(found.rail, UNDERLAY_MTU)
    namespaces.set_mtu(*_uplink(rim, fault), round(fault.parameters["bytes"]))


def _widen(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    namespaces.set_mtu(*_uplink(rim, fault), UNDERLAY_MTU)
    rim.switch(found.host).keep_mtu(found.rail, None)


# --- the far end of a tunnel -------------------------------------------------------------------


def _fix_vni(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    rim.switch(found.host).accept_vni(found.rail, round(fault.parameters["vni"]))


def _free_vni(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    rim.switch(found.host).accept_vni(found.rail, None)


def _refuse_source(rim: Rim, fault: Fault) -> None:
    if not kernel_datapath():
        raise LabError(
            "the userspace datapath takes packets before the host's firewall sees them",
            "run it in a guest: python -m vagrant.vm --help",
        )
    found = rnic_of(fault.target, rim.shape)
    remote = rim.shape.vtep(source_of(fault, rim.shape), found.rail)
    bridge, family = underlay_bridge(found.rail), wrapped_in(rim)
    rule = (
        f'iifname "{bridge}" {family} saddr {remote} udp dport {rim.shape.encapsulation.port} drop'
    )
    hook = "type filter hook prerouting priority raw"
    text = f"table {family} {nft_table(fault)} {{\n chain wire {{\n {hook};\n {rule}\n }}\n}}\n"
    run("ip", "netns", "exec", namespace(f"h{found.host}"), "nft", "-f", "-", stdin=text)


def _accept_source(rim: Rim, fault: Fault) -> None:
    where, _interface = _uplink(rim, fault)
    with suppress(LabError):  # already gone
        run(
            "ip",
            "netns",
            "exec",
            where,
            "nft",
            "delete",
            "table",
            wrapped_in(rim),
            nft_table(fault),
        )


# --- a flood of new flows ----------------------------------------------------------------------


def _flood(rim: Rim, fault: Fault) -> None:
    if not kernel_datapath():
        raise LabError(
            "the userspace datapath has no upcall queue",
            "run it in a guest: python -m vagrant.vm --help",
        )
    if rim.shape.ip.overlay != 4:
        raise LabError("the flood is of IPv4", "run: up --overlay 4")
    endpoint = endpoint_of(fault.target, rim.shape)
    # Who asks and who answers share one processor, the asking first: else it depends on the
    # machine who is faster. The other hosts of the lab have the rest.
    processor = max(os.sched_getaffinity(0))
    rim.switch(endpoint.container.host).confine(processor)
    rim.processes.start_working(
        _flooder(fault),
        *(sys.executable, "-m", "tests.lab.flooder", "--lab", str(rim.directory)),
        *("--namespace", endpoint.container.namespace, "--interface", endpoint.interface),
        *("--mac", endpoint.mac, "--address", endpoint.address),
        *("--processor", str(processor)),
        *("--limit-s", str(fault.parameters["seconds"]), "--limit-bursts", str(_FLOOD_BURSTS)),
    )


def _stop_flooding(rim: Rim, fault: Fault) -> None:
    rim.processes.kill(_flooder(fault))
    rim.switch(endpoint_of(fault.target, rim.shape).container.host).release()


def _flooder(fault: Fault) -> str:
    return f"flooder-{fault.target.replace('/', '-')}"


ACTIONS: dict[str, tuple[Action, Action]] = {
    "tc-drop": (_filter, _stop_filtering),
    "encap-mtu": (_narrow, _widen),
    "far-vni": (_fix_vni, _free_vni),
    "tunnel-source-filtered": (_refuse_source, _accept_source),
    "upcall-flood": (_flood, _stop_flooding),
}
