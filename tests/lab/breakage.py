# SPDX-License-Identifier: Apache-2.0
"""Do faults to a living lab, and undo them exactly.

Faults in flows are not here: they are part of the desired state (`faults.disturbed`), and
injecting or healing one is a re-synchronisation of its host.
"""

import signal
import sys
from contextlib import suppress

from tests.lab import containers, fabric, losses, namespaces, ovn_faults, rdma, surroundings, unseen
from tests.lab.catalogue import CATALOGUE
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.faults import cut_interfaces
from tests.lab.rim import Action, Rim, ends, needed
from tests.lab.shape import namespace, rnic
from tests.lab.state import Fault
from tests.lab.targets import Kind, endpoint_of, host_of, link_of, rnic_of
from tests.lab.workload import container_of

STARVED = 0.9
"""Share of the time for which a starved host's agent stands still."""
FLAPPING_LIMIT_S = 600
"""A flapper ends by itself after this many seconds, whatever happens to the lab."""

_QUEUE_MS = 500
_BURST_BYTES = 1600  # one full packet: less would drop it, more would let bursts pass untouched


def apply(rim: Rim, fault: Fault) -> None:
    """Do what a fault does outside the flow tables."""
    action = _ACTIONS.get(fault.name)
    if action is not None:
        action[0](rim, fault)


def undo(rim: Rim, fault: Fault) -> None:
    """Undo `apply`; nothing happens where the fault is gone already."""
    action = _ACTIONS.get(fault.name)
    if action is not None:
        action[1](rim, fault)


# --- links -------------------------------------------------------------------------------------


def _shape(rim: Rim, fault: Fault) -> None:
    rate = f"{round(fault.parameters['kbit'])}kbit"
    for where, interface in ends(rim, fault):
        bucket = ("tbf", "rate", rate, "burst", str(_BURST_BYTES), "latency", f"{_QUEUE_MS}ms")
        run(*("tc", "-n", where, "qdisc", "replace", "dev", interface, "root"), *bucket)


def _delay(rim: Rim, fault: Fault) -> None:
    by = ("netem", "delay", f"{fault.parameters['ms']:g}ms")
    with needed("netem"):
        for where, interface in ends(rim, fault):
            run("tc", "-n", where, "qdisc", "replace", "dev", interface, "root", *by)


def _stop_shaping(rim: Rim, fault: Fault) -> None:
    for where, interface in ends(rim, fault):
        with suppress(LabError):  # already gone
            run("tc", "-n", where, "qdisc", "del", "dev", interface, "root")


def _pulse(rim: Rim, fault: Fault) -> None:
    queues = [part for end in ends(rim, fault) for part in ("--queue", *end)]
    values = fault.parameters
    _start_pulser(rim, fault, *queues, "--kbit", str(values["kbit"]), "--duty", str(values["duty"]))


def _stop_pulsing(rim: Rim, fault: Fault) -> None:
    rim.processes.kill(_pulser(fault))
    _stop_shaping(rim, fault)


def _starve(rim: Rim, fault: Fault) -> None:
    period_s = str(fault.parameters["period_s"])
    starved = ("--starve", f"{fault.target}/agent", "--duty", str(STARVED))
    _start_pulser(rim, fault, *starved, "--period-s", period_s)


def _feed(rim: Rim, fault: Fault) -> None:
    rim.processes.kill(_pulser(fault))
    with suppress(LabError):  # it died meanwhile
        rim.processes.signal(f"{fault.target}/agent", signal.SIGCONT)


def _pulser(fault: Fault) -> str:
    return f"pulser-{fault.target.replace('/', '-')}"


def _start_pulser(rim: Rim, fault: Fault, *arguments: str) -> None:
    rim.processes.start_working(
        _pulser(fault),
        *(sys.executable, "-m", "tests.lab.pulser", "--lab", str(rim.directory)),
        *("--limit-s", str(FLAPPING_LIMIT_S), *arguments),
    )


def _darken(rim: Rim, fault: Fault) -> None:
    ours = namespace(fault.target)
    ends = [(wire.left, wire.left_interface) for wire in rim.shape.wires()]
    ends += [(wire.right, wire.right_interface) for wire in rim.shape.wires()]
    cut = [interface for where, interface in ends if where == ours]
    fabric.configure_router(rim.shape, fault.target, cut=cut)


def _light(rim: Rim, fault: Fault) -> None:
    fabric.configure_router(rim.shape, fault.target)
    for spine in rim.shape.spine_names:
        fabric.meet_leaves(rim.shape, spine, cut=cut_interfaces(spine, rim.faults, rim.shape))
    for host in range(rim.shape.hosts):
        if fault.target in {rim.shape.leaf_of(host, rail) for rail in range(rim.shape.rails)}:
            with suppress(LabError):  # some other fault may keep a rail dead
                fabric.warm_up(rim.shape, host, limit_s=2)


def _cut_links(rim: Rim, fault: Fault) -> None:
    """Bring the links of a spine to what all faults together, with or without this one, say."""
    spine, cut = _cut(rim, fault)
    fabric.configure_router(rim.shape, spine, cut=cut)


def _mend_links(rim: Rim, fault: Fault) -> None:
    """Do the same, and return when the links carry packets again."""
    _cut_links(rim, fault)
    spine, cut = _cut(rim, fault)
    fabric.meet_leaves(rim.shape, spine, cut=cut)


def _cut(rim: Rim, fault: Fault) -> tuple[str, set[str]]:
    linked = CATALOGUE[fault.name].kind is Kind.LINK
    spine = link_of(fault.target, rim.shape).spine if linked else fault.target
    return spine, cut_interfaces(spine, rim.faults, rim.shape)


# --- hosts -------------------------------------------------------------------------------------


def _rnic_down(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    namespaces.set_link(namespace(f"h{found.host}"), rnic(found.rail), "down")


def _rnic_up(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    namespaces.set_link(namespace(f"h{found.host}"), rnic(found.rail), "up")


def _flapper(fault: Fault) -> str:
    return f"flapper-{fault.target.replace('/', '-')}"


def _flap(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    rim.processes.start_working(
        _flapper(fault),
        *(sys.executable, "-m", "tests.lab.flapper", "--lab", str(rim.directory)),
        *("--namespace", namespace(f"h{found.host}"), "--interface", rnic(found.rail)),
        *("--period-s", str(fault.parameters["period_s"]), "--limit-s", str(FLAPPING_LIMIT_S)),
    )


def _stop_flapping(rim: Rim, fault: Fault) -> None:
    rim.processes.kill(_flapper(fault))
    _rnic_up(rim, fault)


def _crash(rim: Rim, fault: Fault) -> None:
    containers.crash(container_of(fault.target, rim.shape.transport, rim.shape.ip))


def _recreate(rim: Rim, fault: Fault) -> None:
    container = container_of(fault.target, rim.shape.transport, rim.shape.ip)
    switch = rim.switch(container.host)
    # Unplugged first, as for any new sandbox: ovs-vswitchd 3.1 with the userspace datapath may
    # keep listening to the interface that is gone when one of the same name comes.
    switch.delete_ports(container)
    containers.delete(container)
    containers.create(container, rim.shape)
    switch.add_ports(container)


def _port_down(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    namespaces.set_link(endpoint.container.namespace, endpoint.interface, "down")


def _change_address(rim: Rim, fault: Fault) -> None:
    rdma.change_address(endpoint_of(fault.target, rim.shape))


def _repair_endpoint(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    rdma.attach(endpoint)
    rdma.wait_until_usable(endpoint)


def _kill_agent(rim: Rim, fault: Fault) -> None:
    rim.processes.signal(f"{fault.target}/agent", signal.SIGKILL)


def _restart_agent(rim: Rim, fault: Fault) -> None:
    rim.services.restart_agent(host_of(fault.target, rim.shape))


def _freeze_agent(rim: Rim, fault: Fault) -> None:
    rim.processes.signal(f"{fault.target}/agent", signal.SIGSTOP)


def _thaw_agent(rim: Rim, fault: Fault) -> None:
    rim.processes.signal(f"{fault.target}/agent", signal.SIGCONT)


def _kill_switch(rim: Rim, fault: Fault) -> None:
    rim.processes.signal(f"{fault.target}/ovs-vswitchd", signal.SIGKILL)


def _revive_switch(rim: Rim, fault: Fault) -> None:
    rim.revive_switch(host_of(fault.target, rim.shape))


_ACTIONS: dict[str, tuple[Action, Action]] = {
    **losses.ACTIONS,
    **ovn_faults.ACTIONS,
    **surroundings.ACTIONS,
    **unseen.ACTIONS,
    "leaf-down": (_darken, _light),
    "link-pulses": (_pulse, _stop_pulsing),
    "host-starved": (_starve, _feed),
    "link-down": (_cut_links, _mend_links),
    "spine-down": (_cut_links, _mend_links),
    "slow-link": (_shape, _stop_shaping),
    "link-delay": (_delay, _stop_shaping),
    "rnic-down": (_rnic_down, _rnic_up),
    "rnic-flapping": (_flap, _stop_flapping),
    "rdma-port-down": (_port_down, _repair_endpoint),
    "gid-change": (_change_address, _repair_endpoint),
    "container-crash": (_crash, _recreate),
    "agent-killed": (_kill_agent, _restart_agent),
    "agent-frozen": (_freeze_agent, _thaw_agent),
    "vswitchd-killed": (_kill_switch, _revive_switch),
}
