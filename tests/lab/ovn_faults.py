# SPDX-License-Identifier: Apache-2.0
"""Faults of OVN: what it is told, where it puts things, and who no longer listens."""

import signal
from contextlib import suppress
from pathlib import Path

from tests.lab import cms, namespaces
from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.faults import PROBE_PORT, RDMA_PORT
from tests.lab.ovn import NORTHD, Ovn, controller
from tests.lab.ovs import external_ids
from tests.lab.rim import Action, Rim
from tests.lab.shape import INTEGRATION_BRIDGE, SOUTHBOUND
from tests.lab.state import Fault
from tests.lab.targets import destination_of, endpoint_of, host_of, rnic_of
from tests.lab.truths import OVN_LOOKUP
from tests.lab.workload import Endpoint

NOWHERE = "tcp:198.18.0.3:6642"
"""Where a southbound database could be, and nobody is."""
NO_HOST, GHOST_HOST = 240, 245
"""Numbers of hosts that no lab has, for addresses that nobody has."""
_ACL = ("to-lport", "1001")

_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")


def _ovn(rim: Rim) -> Ovn:
    return Ovn(rim.directory, rim.shape)


def _settle(rim: Rim, fault: Fault) -> None:
    """Return once all hosts have what a fault asks for, unless another may keep one from it."""
    if all(each.key == fault.key for each in rim.faults):
        _ovn(rim).sync()


def _port(rim: Rim, fault: Fault) -> str:
    return cms.port(endpoint_of(fault.target, rim.shape))


# --- a host's instance -------------------------------------------------------------------------


def _freeze(rim: Rim, fault: Fault) -> None:
    rim.processes.signal(controller(host_of(fault.target, rim.shape)), signal.SIGSTOP)
    _ovn(rim).ask()


def _thaw(rim: Rim, fault: Fault) -> None:
    with suppress(LabError):  # it died meanwhile
        rim.processes.signal(controller(host_of(fault.target, rim.shape)), signal.SIGCONT)


def _cut_off(rim: Rim, fault: Fault) -> None:
    _send_to(rim, fault, NOWHERE)
    _ovn(rim).ask()


def _reconnect(rim: Rim, fault: Fault) -> None:
    _send_to(rim, fault, SOUTHBOUND)


def _send_to(rim: Rim, fault: Fault, database: str) -> None:
    switch = rim.switch(host_of(fault.target, rim.shape))
    switch.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-remote="{database}"')


def _end(rim: Rim, fault: Fault) -> None:
    name = controller(host_of(fault.target, rim.shape))
    _ovn(rim).appctl(name, "exit")
    wait_for(f"the end of {name}", lambda: rim.processes.pid(name) is None, timeout_s=10)


def _begin(rim: Rim, fault: Fault) -> None:
    host = host_of(fault.target, rim.shape)
    if rim.processes.pid(controller(host)) is None:
        _ovn(rim).start_controller(host)


# --- a port ------------------------------------------------------------------------------------


def _misname(rim: Rim, fault: Fault) -> None:
    _name(rim, fault, f"{_port(rim, fault)}x")


def _rename(rim: Rim, fault: Fault) -> None:
    _name(rim, fault, _port(rim, fault))


def _name(rim: Rim, fault: Fault, name: str) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    interface = ("--if-exists", "set", "Interface", endpoint.port)
    rim.switch(endpoint.container.host).vsctl(*interface, f"external_ids:iface-id={name}")


def _contest(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    impostor, host = _impostor(endpoint), _other(rim, endpoint.container.host)
    told = {"iface-id": cms.port(endpoint), "encap-ip": rim.shape.vtep(host, endpoint.rail)}
    rim.switch(host).vsctl(
        *("add-port", INTEGRATION_BRIDGE, impostor, "--", "set", "Interface", impostor),
        *("type=internal", *external_ids(told)),
    )


def _cede(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    gone = ("--if-exists", "del-port", INTEGRATION_BRIDGE, _impostor(endpoint))
    rim.switch(_other(rim, endpoint.container.host)).vsctl(*gone)


def _impostor(endpoint: Endpoint) -> str:
    container = endpoint.container
    return f"other-{container.tenant}{container.host}-r{endpoint.rail}"


def _other(rim: Rim, host: int) -> int:
    if rim.shape.hosts == 1:
        raise LabError("the lab has one host", "run: up --hosts 2")
    return (host + 1) % rim.shape.hosts


def _misplace(rim: Rim, fault: Fault) -> None:
    other = _other(rim, endpoint_of(fault.target, rim.shape).container.host)
    chosen = f"options:requested-chassis=h{other}"
    _ovn(rim).nbctl("set", "Logical_Switch_Port", _port(rim, fault), chosen)
    _settle(rim, fault)


def _place(rim: Rim, fault: Fault) -> None:
    row = ("Logical_Switch_Port", _port(rim, fault))
    _ovn(rim).nbctl("--if-exists", "remove", *row, "options", "requested-chassis")


def _disable(rim: Rim, fault: Fault) -> None:
    _ovn(rim).nbctl("lsp-set-enabled", _port(rim, fault), "disabled")
    _settle(rim, fault)


def _enable(rim: Rim, fault: Fault) -> None:
    _ovn(rim).nbctl("lsp-set-enabled", _port(rim, fault), "enabled")


def _change_mac(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    _set_mac(endpoint, "06" + endpoint.mac.removeprefix("02"))


def _restore_mac(rim: Rim, fault: Fault) -> None:
    endpoint = endpoint_of(fault.target, rim.shape)
    _set_mac(endpoint, endpoint.mac)


def _set_mac(endpoint: Endpoint, mac: str) -> None:
    enter = namespaces.entering(endpoint.container.namespace)
    run(*enter, "ip", "link", "set", endpoint.interface, "address", mac)


# --- policy ------------------------------------------------------------------------------------


def _forbid(rim: Rim, fault: Fault) -> None:
    _ovn(rim).nbctl("--name=quarantine", "acl-add", *_policy(rim, fault), "drop")
    _settle(rim, fault)


def _permit(rim: Rim, fault: Fault) -> None:
    _ovn(rim).nbctl("acl-del", *_policy(rim, fault))


def _policy(rim: Rim, fault: Fault) -> tuple[str, ...]:
    ports = f"udp.dst == {{{RDMA_PORT}, {PROBE_PORT}}}"
    match = f'outport == "{_port(rim, fault)}" && {ports}'
    return cms.switch(endpoint_of(fault.target, rim.shape)), *_ACL, match


# --- flows -------------------------------------------------------------------------------------


def _lose_flow(rim: Rim, fault: Fault) -> None:
    found = _cookies(rim, fault)
    if len(found) != 1:
        raise LabError(f"{len(found)} logical flows lead to {fault.target}", "see: ovn-sbctl")
    cookie, bridge = f"cookie={found[0]}/-1", _management(rim, fault)
    flows = run(*_OFCTL, "--no-stats", "--no-names", "dump-flows", bridge, cookie)
    lost = [line.strip() for line in flows.splitlines() if "actions=" in line]
    if len(lost) != 1 or f"table={OVN_LOOKUP}," not in lost[0].replace(" ", ""):
        raise LabError(f"OVN's flow is not one of table {OVN_LOOKUP}: {lost}", "see: OVN_LOOKUP")
    _lost(rim, fault).write_text(lost[0])
    run(*_OFCTL, "del-flows", bridge, cookie)


def _restore_flow(rim: Rim, fault: Fault) -> None:
    # ovn-controller believes that it is there, and so gives it back to nobody.
    lost = _lost(rim, fault)
    if lost.exists():
        flow = lost.read_text()
        # Of a port that is gone, or was made anew, it is of no use.
        if any(f"cookie={cookie}," in flow for cookie in _cookies(rim, fault)):
            run(*_OFCTL, "add-flow", _management(rim, fault), flow)
        lost.unlink()


def _cookies(rim: Rim, fault: Fault) -> list[str]:
    """Return the cookies of flows that lead to where the flow does: each is how its row begins."""
    mac = destination_of(fault.target, rim.shape).endpoint.mac
    match = ("Logical_Flow", f'match="eth.dst == {mac}"')
    rows = _ovn(rim).sbctl("--bare", "--columns=_uuid", "find", *match).split()
    return [f"{int(row.partition('-')[0], 16):#x}" for row in rows]


def _lost(rim: Rim, fault: Fault) -> Path:
    return rim.directory / f"{fault.key.replace('/', '-')}.flow"


def _management(rim: Rim, fault: Fault) -> str:
    host = destination_of(fault.target, rim.shape).host
    return f"unix:{rim.switch(host).rundir / INTEGRATION_BRIDGE}.mgmt"


# --- tunnels -----------------------------------------------------------------------------------


def _mistake_address(rim: Rim, fault: Fault) -> None:
    rail = rnic_of(fault.target, rim.shape).rail
    _offer(rim, fault, rim.shape.vtep(NO_HOST, rail))
    _settle(rim, fault)


def _take_address(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    _offer(rim, fault, rim.shape.vtep(_other(rim, found.host), found.rail))
    _ovn(rim).ask()


def _offer_own(rim: Rim, fault: Fault) -> None:
    found = rnic_of(fault.target, rim.shape)
    _offer(rim, fault, rim.shape.vtep(found.host, found.rail))


def _offer(rim: Rim, fault: Fault, address: str) -> None:
    found = rnic_of(fault.target, rim.shape)
    vteps = [rim.shape.vtep(found.host, rail) for rail in range(rim.shape.rails)]
    vteps[found.rail] = address
    told = f'external_ids:ovn-encap-ip="{",".join(vteps)}"'
    rim.switch(found.host).vsctl("set", "Open_vSwitch", ".", told)


# --- the central -------------------------------------------------------------------------------


def _pause(rim: Rim, _fault: Fault) -> None:
    _ovn(rim).appctl(NORTHD, "pause")
    _ovn(rim).ask()


def _resume(rim: Rim, _fault: Fault) -> None:
    _ovn(rim).appctl(NORTHD, "resume")


def _haunt(rim: Rim, fault: Fault) -> None:
    address = rim.shape.vtep(GHOST_HOST, 0)
    _ovn(rim).sbctl("chassis-add", fault.target, str(rim.shape.encapsulation), address)


def _lay(rim: Rim, fault: Fault) -> None:
    _ovn(rim).sbctl("--if-exists", "chassis-del", fault.target)


ACTIONS: dict[str, tuple[Action, Action]] = {
    "controller-frozen": (_freeze, _thaw),
    "controller-cut-off": (_cut_off, _reconnect),
    "controller-gone": (_end, _begin),
    "port-unbound": (_misname, _rename),
    "port-contested": (_contest, _cede),
    "port-misplaced": (_misplace, _place),
    "flow-lost": (_lose_flow, _restore_flow),
    "tunnel-address-wrong": (_mistake_address, _offer_own),
    "tunnel-address-taken": (_take_address, _offer_own),
    "address-refused": (_change_mac, _restore_mac),
    "translation-stale": (_pause, _resume),
    "ghost-chassis": (_haunt, _lay),
    "policy-drop": (_forbid, _permit),
    "port-disabled": (_disable, _enable),
}
