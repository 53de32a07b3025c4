# SPDX-License-Identifier: Apache-2.0
"""Packets that are dropped on the way: by chance, by their length, or by their ports.

It is nftables that drops them: the kernels of many machines have no netem.
"""

from collections.abc import Iterator
from contextlib import suppress

from tests.lab import namespaces
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.rim import Action, Rim, ends, nft_table, wrapped_in
from tests.lab.shape import UNDERLAY_MTU, namespace, rnic
from tests.lab.state import Fault
from tests.lab.targets import link_of, rnic_of


def _drop(rim: Rim, fault: Fault, rule: str) -> None:
    """Drop what `rule` matches as it comes off the wire, at both ends: it is lost on the link."""
    for where, interface in ends(rim, fault):
        _drop_at(fault, where, interface, rule)


def _drop_at(fault: Fault, where: str, interface: str, rule: str, number: int = 0) -> None:
    table = f"{nft_table(fault)}_{number}"
    hook = f'type filter hook ingress device "{interface}" priority 0'
    text = f"table netdev {table} {{\n chain wire {{\n {hook};\n {rule} drop\n }}\n}}\n"
    run("ip", "netns", "exec", where, "nft", "-f", "-", stdin=text)


def _stop_dropping(rim: Rim, fault: Fault) -> None:
    for where, _interface in ends(rim, fault):
        _stop_dropping_at(fault, where)


def _stop_dropping_at(fault: Fault, where: str, number: int = 0) -> None:
    table = f"{nft_table(fault)}_{number}"
    with suppress(LabError):  # already gone
        run("ip", "netns", "exec", where, "nft", "delete", "table", "netdev", table)


def _some(fault: Fault) -> str:
    # In hundredths of a percent: fractions of a percent are interesting, too.
    return f"numgen random mod 10000 < {round(fault.parameters['percent'] * 100)}"


def _lose_one_way(rim: Rim, fault: Fault) -> None:
    link = link_of(fault.target, rim.shape)
    _drop_at(fault, namespace(link.leaf), f"to-{link.spine}", _some(fault))


def _lose_at_rnic(rim: Rim, fault: Fault) -> None:
    for where, interface in _cable(rim, fault):
        _drop_at(fault, where, interface, _some(fault))


def _stop_dropping_at_rnic(rim: Rim, fault: Fault) -> None:
    for where, _interface in _cable(rim, fault):
        _stop_dropping_at(fault, where)


def _cable(rim: Rim, fault: Fault) -> Iterator[tuple[str, str]]:
    """Yield (namespace, interface) of both ends of an RNIC's cable."""
    found = rnic_of(fault.target, rim.shape)
    yield namespace(f"h{found.host}"), rnic(found.rail)
    yield namespace(rim.shape.leaf_of(found.host, found.rail)), f"to-h{found.host}"


def _lose(rim: Rim, fault: Fault) -> None:
    _drop(rim, fault, _some(fault))


def _lose_large(rim: Rim, fault: Fault) -> None:
    _drop(rim, fault, f"meta length > {round(fault.parameters['bytes'])}")


def _lose_ports(rim: Rim, fault: Fault) -> None:
    # A hash of the port, not the port: a member's share is no run of neighbouring numbers.
    member = f"jhash udp sport mod {round(fault.parameters['of'])} == 0"
    _drop(rim, fault, f"udp dport {rim.shape.encapsulation.port} {member}")


# --- whatever crosses a switch -----------------------------------------------------------------


def _lose_in_router(rim: Rim, fault: Fault) -> None:
    table, hook = nft_table(fault), "type filter hook prerouting priority raw"
    chain = f"chain any {{\n {hook};\n {_some(fault)} drop\n }}"
    text = f"table {wrapped_in(rim)} {table} {{\n {chain}\n}}\n"
    run("ip", "netns", "exec", namespace(fault.target), "nft", "-f", "-", stdin=text)


def _stop_losing_in_router(rim: Rim, fault: Fault) -> None:
    where, table = namespace(fault.target), (wrapped_in(rim), nft_table(fault))
    with suppress(LabError):  # already gone
        run("ip", "netns", "exec", where, "nft", "delete", "table", *table)


# --- every link --------------------------------------------------------------------------------


def _every_end(rim: Rim) -> Iterator[tuple[str, str]]:
    for link in rim.shape.links():
        yield namespace(link.spine), f"to-{link.leaf}"
        yield namespace(link.leaf), f"to-{link.spine}"
    for host in range(rim.shape.hosts):
        for rail in range(rim.shape.rails):
            yield namespace(f"h{host}"), rnic(rail)
            yield namespace(rim.shape.leaf_of(host, rail)), f"to-h{host}"


def _lose_everywhere(rim: Rim, fault: Fault) -> None:
    for number, (where, interface) in enumerate(_every_end(rim)):
        _drop_at(fault, where, interface, _some(fault), number)


def _stop_losing_everywhere(rim: Rim, fault: Fault) -> None:
    for number, (where, _interface) in enumerate(_every_end(rim)):
        _stop_dropping_at(fault, where, number)


# --- a narrow port -----------------------------------------------------------------------------


def _narrow_port(rim: Rim, fault: Fault) -> None:
    # The kernel takes IPv6 off an interface that is narrower (RFC 8200, section 5).
    least = 1280 if rim.shape.ip.underlay == 6 else 0
    _set_port_mtu(rim, fault, max(least, round(fault.parameters["bytes"])))


def _widen_port(rim: Rim, fault: Fault) -> None:
    _set_port_mtu(rim, fault, UNDERLAY_MTU)


def _set_port_mtu(rim: Rim, fault: Fault, mtu: int) -> None:
    found = rnic_of(fault.target, rim.shape)
    leaf = namespace(rim.shape.leaf_of(found.host, found.rail))
    namespaces.set_mtu(leaf, f"to-h{found.host}", mtu)


ACTIONS: dict[str, tuple[Action, Action]] = {
    "link-loss": (_lose, _stop_dropping),
    "one-way-loss": (_lose_one_way, _stop_dropping),
    "ecmp-member": (_lose_ports, _stop_dropping),
    "mtu-blackhole": (_lose_large, _stop_dropping),
    "rnic-loss": (_lose_at_rnic, _stop_dropping_at_rnic),
    "spine-loss": (_lose_in_router, _stop_losing_in_router),
    "leaf-loss": (_lose_in_router, _stop_losing_in_router),
    "background-loss": (_lose_everywhere, _stop_losing_everywhere),
    "narrow-port": (_narrow_port, _widen_port),
}
