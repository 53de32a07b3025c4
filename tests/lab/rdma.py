# SPDX-License-Identifier: Apache-2.0
"""RDMA endpoints: Soft-RoCE on interfaces in the initial namespace, the only one it works in.

There the addresses of all endpoints are local, and the kernel would hand their packets over by the
loopback. Rules that come before the local table's send whatever an endpoint sends, told by
its source address or its interface, by a table of its own, which holds one route: out of that
interface. The local table's rule, at preference 0 and thus always first, is moved behind them.

All rules carry a protocol number of ours, and tables a prefix: what is the lab's can be told, and
taken away, whatever else the machine has.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from tests.lab import namespaces
from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.shape import MAX_RAILS, Transport
from tests.lab.workload import Container, Endpoint

MODULES = ("rdma_rxe", "ib_uverbs", "openvswitch", "vport_vxlan")
AUTO = "auto"

DEVICE_SYSCTLS: dict[str, int] = {
    "ipv4/conf/{}/accept_local": 1,  # the sender's address is one of ours, too
    "ipv4/conf/{}/rp_filter": 0,
    "ipv4/conf/{}/arp_ignore": 1,  # answer for the interface's own address only
    "ipv4/conf/{}/arp_announce": 2,
    "ipv6/conf/{}/disable_ipv6": 1,
}

# The kernel takes the larger of this and the device's own.
_SHARED_SYSCTLS: dict[str, int] = {"ipv4/conf/all/rp_filter": 0}
_SETTINGS = "initial.json"

_INFINIBAND = Path("/sys/class/infiniband")
_DEVICE = re.compile(r"rxe-[a-z]\d{1,3}-r\d")
_TABLES = 0x6E610000
_LOCAL_TABLE, _KERNEL_PROTOCOL = 255, 2  # RT_TABLE_LOCAL, RTPROT_KERNEL: linux/rtnetlink.h
_OUR_PROTOCOL = 110  # no name in iproute2's rt_protos
_BY_ADDRESS, _BY_INTERFACE, _LOCAL = 10, 11, 100  # preferences


def choose(wanted: str) -> Transport:
    """Return the transport for ``udp``, ``rdma`` or ``auto``: RDMA where the kernel can.

    Raises `LabError` where RDMA is wanted and impossible.
    """
    if wanted == Transport.UDP:
        return Transport.UDP
    try:
        run("modprobe", "-q", "-a", *MODULES)
        run("rdma", "dev")
    except LabError as error:
        if wanted == Transport.RDMA:
            remedy = "boot a guest that has Soft-RoCE and openvswitch.ko: python -m vagrant.vm"
            raise LabError(f"no RDMA here: {error.problem}", remedy) from error
        return Transport.UDP
    return Transport.RDMA


# --- the machine -------------------------------------------------------------------------------


def prepare(directory: Path) -> None:
    """Let endpoints of this machine meet on the wire; `restore` undoes it."""
    choose(Transport.RDMA)
    before = {key: _sysctl(key).read_text().strip() for key in _SHARED_SYSCTLS}
    (directory / _SETTINGS).write_text(json.dumps(before))
    for key, value in _SHARED_SYSCTLS.items():
        _sysctl(key).write_text(str(value))
    with IPRoute() as ip:
        if _is_local_first(ip):
            _add_rule(ip, _LOCAL, _LOCAL_TABLE)
            ip.rule("del", priority=0, table=_LOCAL_TABLE)


def restore(directory: Path) -> None:
    """Delete what is left of endpoints and give the machine its own settings back."""
    for device in _devices():
        _delete_device(device)
    with IPRoute() as ip:
        for rule in _our_rules(ip):
            if rule.get_attr("FRA_TABLE") == _LOCAL_TABLE and not _is_local_first(ip):
                ip.rule("add", priority=0, table=_LOCAL_TABLE, protocol=_KERNEL_PROTOCOL)
            _delete_rule(ip, rule)
    settings = directory / _SETTINGS
    if settings.exists():
        for key, value in json.loads(settings.read_text()).items():
            _sysctl(key).write_text(value)


def leftovers() -> list[str]:
    """Return what of RDMA endpoints is on this machine: devices, rules, routes."""
    with IPRoute() as ip:
        rules = [f"rule {rule.get_attr('FRA_PRIORITY', 0)}" for rule in _our_rules(ip)]
        tables = {route.get_attr("RTA_TABLE", 0) for route in ip.get_routes(family=2)}
    routes = [f"routing table {table:#x}" for table in sorted(tables) if _is_ours(table)]
    return [f"RDMA device {device}" for device in _devices()] + rules + routes


# --- endpoints ---------------------------------------------------------------------------------


def attach(endpoint: Endpoint) -> None:
    """Bring an endpoint's interface up, with address, routing and RDMA device.

    What is there already stays: this also restores an endpoint that was down or changed.
    """
    for key, value in DEVICE_SYSCTLS.items():
        _sysctl(key.format(endpoint.interface)).write_text(str(value))
    with IPRoute() as ip:
        index = namespaces.index_of(ip, endpoint.interface)
        ip.link("set", index=index, address=endpoint.mac, mtu=endpoint.mtu, state="up")
        namespaces.replace_addresses(ip, endpoint.interface, endpoint.address)
        _route(ip, endpoint, index)
    if not (_INFINIBAND / endpoint.rdma_device).exists():
        device = ("type", "rxe", "netdev", endpoint.interface)
        run("rdma", "link", "add", endpoint.rdma_device, *device)


def wait_until_usable(endpoint: Endpoint) -> None:
    """Return once the RDMA port is active and has the GID of the endpoint's address."""
    port = _INFINIBAND / endpoint.rdma_device / "ports/1"
    gid = _gid(endpoint.address)

    def usable() -> bool:
        return "ACTIVE" in (port / "state").read_text() and gid in gids(endpoint).values()

    wait_for(f"the port of {endpoint.rdma_device}", usable, timeout_s=30)


def gids(endpoint: Endpoint) -> dict[int, str]:
    """Return the GIDs of an endpoint's RDMA device by index, as sysfs writes them."""
    found = {}
    for file in (_INFINIBAND / endpoint.rdma_device / "ports/1/gids").iterdir():
        with suppress(OSError):  # a slot that was never used
            found[int(file.name)] = file.read_text().strip()
    return {index: gid for index, gid in found.items() if gid.strip("0:")}


def gid_index(endpoint: Endpoint) -> int:
    """Return the index of the GID made of the endpoint's address; LookupError without one."""
    for index, gid in sorted(gids(endpoint).items()):
        if gid == _gid(endpoint.address):
            return index
    raise LookupError(endpoint.address)


def change_address(endpoint: Endpoint) -> None:
    """Replace an endpoint's address by a foreign one, and so its GID; `attach` undoes it."""
    with IPRoute() as ip:
        namespaces.replace_addresses(ip, endpoint.interface, endpoint.foreign_address)


def detach(container: Container) -> None:
    """Remove the interfaces, devices, rules and routes of a container, as far as there are any."""
    for endpoint in map(container.endpoint, range(MAX_RAILS)):
        _delete_device(endpoint.rdma_device)
        with IPRoute() as ip:
            for rule in _our_rules(ip):
                if rule.get_attr("FRA_TABLE") == table(endpoint):
                    _delete_rule(ip, rule)
            for index in ip.link_lookup(ifname=endpoint.interface):
                ip.link("del", index=index)  # its routes go with it


def table(endpoint: Endpoint) -> int:
    """Return the number of an endpoint's routing table; unique in the lab."""
    container = endpoint.container
    return _TABLES | container.tenant_number << 11 | container.host << 3 | endpoint.rail


def _route(ip: IPRoute, endpoint: Endpoint, index: int) -> None:
    own = table(endpoint)
    ip.route("replace", dst=endpoint.network, oif=index, scope=253, table=own)  # RT_SCOPE_LINK
    if not any(rule.get_attr("FRA_TABLE") == own for rule in _our_rules(ip)):
        source = {"src": endpoint.address, "src_len": 32, "iifname": "lo"}
        _add_rule(ip, _BY_ADDRESS, own, **source)
        _add_rule(ip, _BY_INTERFACE, own, oifname=endpoint.interface)


# --- rules and files ---------------------------------------------------------------------------


def _rules(ip: IPRoute) -> Iterable[Any]:
    return list(ip.get_rules(family=2))  # AF_INET


def _is_local_first(ip: IPRoute) -> bool:
    # At preference 0 the kernel puts the local table's rule only; it leaves the number out.
    return any(rule.get_attr("FRA_PRIORITY", 0) == 0 for rule in _rules(ip))


def _our_rules(ip: IPRoute) -> list[Any]:
    return [rule for rule in _rules(ip) if rule.get_attr("FRA_PROTOCOL") == _OUR_PROTOCOL]


def _add_rule(ip: IPRoute, preference: int, into: int, **match: Any) -> None:
    ip.rule("add", priority=preference, table=into, protocol=_OUR_PROTOCOL, **match)


def _delete_rule(ip: IPRoute, rule: Any) -> None:
    # Preference, table and protocol are ours and tell it from all others.
    into, preference = rule.get_attr("FRA_TABLE"), rule.get_attr("FRA_PRIORITY", 0)
    ip.rule("del", priority=preference, table=into, protocol=_OUR_PROTOCOL)


def _is_ours(number: int) -> bool:
    return number & 0xFFFF0000 == _TABLES


def _delete_device(name: str) -> None:
    if (_INFINIBAND / name).exists():
        try:
            run("rdma", "link", "delete", name)
        except LabError:
            if (_INFINIBAND / name).exists():
                raise  # else: it went with its link meanwhile


def _devices() -> list[str]:
    if not _INFINIBAND.is_dir():
        return []
    return sorted(each.name for each in _INFINIBAND.iterdir() if _DEVICE.fullmatch(each.name))


def _gid(address: str) -> str:
    return IPv6Address(f"::ffff:{address}").packed.hex(":", 2)


def _sysctl(key: str) -> Path:
    return Path("/proc/sys/net", key)
