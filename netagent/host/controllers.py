# SPDX-License-Identifier: Apache-2.0
"""What controllers write into external_ids, read as container, task and rail.

Controllers know pods and logical ports, and neither tasks nor rails: a rule takes each of these
from what they do write. A port that the rules for task and rail say nothing of belongs to others.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from netagent.host.ports import (
    OF_THE_HOST,
    ContainerPort,
    Unusable,
    first_address,
    is_container,
    is_task,
    is_tunnel,
    parse_rail,
)
from netagent.host.sources import Found, Given
from netagent.model.address import canonical
from netagent.model.endpoint import MAC
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import Why

UPLINK = "uplink"
"""In place of a rule for the rail: it is that of the tunnel, or of the RNIC, that the port uses."""
PORT = "port"
"""Key by which a rule reads the port's own name, as if it were in external_ids."""

_OWN = frozenset({"task", "rail"})
"""Keys of netagent's own external_ids; who has one says all by itself."""
_SHOWN = 80
"""Characters of an odd value that are told. Chosen: to be read."""
_KEY = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """How to read one text from external_ids."""

    text: str
    """Text in which each ``{KEY}`` stands for that key's value."""
    match: str = ""
    """Regular expression that all of the text must match; its first group is the result. Empty:
    all of the text is."""
    first: int = 0
    """Of a rail: the number that stands for rail 0."""

    def __post_init__(self) -> None:
        """Raise ValueError for what can never say anything."""
        if not self.text or re.search(r"[{}]", _KEY.sub("", self.text)):
            raise ValueError(f"{self.text!r} is no text with keys in braces")
        try:
            groups = re.compile(self.match).groups
        except re.error as error:
            raise ValueError(f"{self.match!r} is no regular expression: {error}") from error
        if self.match and not groups:
            raise ValueError(f"{self.match!r} has no group: put what counts in parentheses")

    @property
    def has_keys(self) -> bool:
        """Whether what it reads depends on the port."""
        return _KEY.search(self.text) is not None

    def of(self, keys: Mapping[str, str]) -> str:
        """Return what it reads of `keys`; "" where a key is not there, or nothing matches."""
        if any(not keys.get(key) for key in _KEY.findall(self.text)):
            return ""
        text = _KEY.sub(lambda found: keys[found[1]], self.text)
        if not self.match:
            return text
        found = re.fullmatch(self.match, text)
        return (found[1] or "") if found else ""


@dataclass(frozen=True, slots=True)
class Rules:
    """How to read one controller's external_ids."""

    container: Rule
    task: Rule | None = None
    """None: the controller writes nothing of the kind, and the configuration has to say it."""
    rail: Rule | None = None
    """None: the rail of the uplink."""
    mac: Rule | None = None
    """None: the controller does not write it."""
    address: Rule | None = None
    netns: Rule | None = None
    netdev: Rule | None = None


CONTROLLERS: Mapping[str, Rules] = {
    # ovn-controller reads this one key (ovn-controller(8)); what plugs in need not write others.
    "ovn": Rules(container=Rule("{iface-id}")),
    # ConfigureOVS, go-controller/pkg/cni/helper_linux.go; GetIfaceId, pkg/util/multi_network.go:
    # NAMESPACE_POD, on secondary networks with the network and another "_" before it.
    "ovn-kubernetes": Rules(
        container=Rule("{sandbox}"),
        task=Rule("{iface-id}", r"(?:[^_]+_)?([^_]+)_[^_]+"),
        mac=Rule("{attached_mac}"),
        address=Rule("{ip_addresses}"),
    ),
    # configureNic, pkg/daemon/ovs_linux.go. It writes no hardware address.
    "kube-ovn": Rules(
        container=Rule("{pod_namespace}.{pod_name}"),
        task=Rule("{pod_namespace}"),
        address=Rule("{ip}"),
        netns=Rule("{pod_netns}"),
    ),
    # create_ovs_vif_port, os-vif's vif_plug_ovs/ovsdb/ovsdb_lib.py, by which Nova and Kuryr plug
    # Neutron's ports. It writes no address.
    "neutron": Rules(container=Rule("{vm-uuid}"), mac=Rule("{attached-mac}")),
    # createPortOperation, pkg/ovsdb/ovsdb.go: all of it on the row of the Port. Multus calls
    # secondary interfaces net1, net2, ...
    "ovs-cni": Rules(
        container=Rule("{contPodUid}"),
        rail=Rule("{contIface}", r"net(\d+)", first=1),
        netns=Rule("{contNetns}"),
        netdev=Rule("{contIface}"),
    ),
    # BuildOVSPortExternalIDs, pkg/agent/cniserver/pod_configuration.go; before 2.0 without net-ns.
    "antrea": Rules(
        container=Rule("{pod-namespace}.{pod-name}"),
        task=Rule("{pod-namespace}"),
        mac=Rule("{attached-mac}"),
        address=Rule("{ip-address}"),
        netns=Rule("{net-ns}"),
    ),
}
"""What each controller writes, and where that is said. The task is the namespace where there is
one: chosen, since a namespace is what tenants do not share."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A port, and what the rules read of it."""

    interface: Interface
    keys: Mapping[str, str]
    task: str
    container: str
    rail: int | Unusable | None
    """None: nothing says it."""


@dataclass(slots=True)
class ControllerPorts:
    """Ports that a controller plugged in."""

    rules: Rules
    _rails: dict[str, int] = field(default_factory=dict)
    """Rails that followed from devices. A device that fails may vanish; its port stays."""

    def endpoints(self, given: Given) -> Found:
        """Return the endpoints that the rules read."""
        ports: dict[EndpointId, ContainerPort] = {}
        unusable, passed = [], []
        rows = [(port, each) for port in given.ports for each in port.interfaces]
        names = {interface.name for _, interface in rows}
        self._rails = {name: rail for name, rail in self._rails.items() if name in names}
        for port, interface in sorted(rows, key=lambda row: row[1].name):
            keys = {**port.external_ids, **interface.external_ids, PORT: interface.name}
            if is_tunnel(interface) or keys.keys() & _OWN:
                continue
            task = _read(self.rules.task, keys)
            rail = self._rail(interface, keys, given) if task else None
            row = _Row(interface, keys, task, self.rules.container.of(keys), rail)
            if why := self._of_others(row):
                passed.append(replace(why, task=task, container=row.container))
                continue
            found = self._port(row)
            if isinstance(found, ContainerPort) and found.id in ports:
                other = ports[found.id].interface
                found = Unusable(interface.name, f"{found.id} is already on port {other}")
            if isinstance(found, Unusable):
                unusable.append(replace(found, task=task, container=row.container))
            else:
                ports[found.id] = found
        whole = tuple(ports[key] for key in sorted(ports))
        return Found(whole, tuple(unusable), tuple(passed))

    def _of_others(self, row: _Row) -> Unusable | None:
        """Return why a port is nobody's that the rules know; None where they say something."""
        rules, name = self.rules, row.interface.name
        if not row.task:
            return Unusable(name, _untold(rules.task, row.keys, "task"), why=Why.NO_TASK)
        # A rule that says the same of each port says nothing of this one.
        says = row.rail is not None and any(r and r.has_keys for r in (rules.task, rules.rail))
        if not row.container and (row.interface.type in OF_THE_HOST or not says):
            text = _odd(rules.container, row.container, "container")
            return Unusable(name, text, why=Why.NO_CONTAINER)
        if row.rail is None:
            text = "it has no encap-ip, and stands for no function of an RNIC"
            text = _untold(rules.rail, row.keys, "rail") if rules.rail else text
            return Unusable(name, text, why=Why.NO_RAIL)
        return None

    def _port(self, row: _Row) -> ContainerPort | Unusable:
        rules, interface, keys, rail = self.rules, row.interface, row.keys, row.rail
        name, task, container = interface.name, row.task, row.container
        if not isinstance(rail, int):
            return rail or Unusable(name, "it has no rail", why=Why.NO_RAIL)
        mac = _read(rules.mac, keys).lower()
        stated = _read(rules.address, keys)
        address = first_address(stated) or ""
        if not is_container(container):
            text = _odd(rules.container, container, "container")
            return Unusable(name, text, why=Why.NO_CONTAINER)
        if rules.mac and not MAC.fullmatch(mac):
            return Unusable(name, _odd(rules.mac, mac, "hardware address"))
        if stated and not address:
            text = f"cannot use the address {stated[:_SHOWN]!r}"
            return Unusable(name, text, why=Why.NO_ADDRESS)
        if interface.type not in {"", "system"} or not is_task(task):
            what, value = ("type", interface.type) if is_task(task) else ("task", task)
            return Unusable(name, f"cannot use {what} {value[:_SHOWN]!r}")
        unopened = "it could not be opened" if interface.ofport == -1 else ""
        return ContainerPort(
            id=EndpointId(container, rail),
            task=task,
            interface=name,
            address=address,
            mac=mac,
            netns=_path(_read(rules.netns, keys)),
            netdev=_read(rules.netdev, keys),
            error=interface.error or unopened,
        )

    def _rail(
        self, interface: Interface, keys: Mapping[str, str], given: Given
    ) -> int | Unusable | None:
        if self.rules.rail is None:
            rail = _uplink_rail(interface.name, keys.get("encap-ip", ""), given)
            if isinstance(rail, int):
                self._rails[interface.name] = rail
            return self._rails.get(interface.name, rail)
        text = self.rules.rail.of(keys)
        if not text:
            return None
        number = parse_rail(text)
        rail = None if number is None else number - self.rules.rail.first
        if rail is None or rail < 0:
            return Unusable(interface.name, f"{text[:_SHOWN]!r} is no rail", why=Why.NO_RAIL)
        return rail


def _uplink_rail(name: str, vtep: str, given: Given) -> int | Unusable | None:
    """Return the rail of the uplink that a port's packets leave by; None for none of an RNIC's."""
    if vtep:  # ovn-controller(8), external_ids:encap-ip of an Interface
        address = canonical(vtep)
        if (
            rail := next((u.rail for u in given.uplinks if u.address == address), None)
        ) is not None:
            return rail
        tunnels = (each for port in given.ports for each in port.interfaces if is_tunnel(each))
        rails = [each.external_ids.get("rail") for each in tunnels
                 if address and canonical(each.options.get("local_ip", "")) == address]  # fmt: skip
        found = next((rail for rail in map(parse_rail, rails) if rail is not None), None)
        text = f"its encap-ip {vtep[:_SHOWN]!r} is the local_ip of no tunnel with a rail"
        return Unusable(name, text, why=Why.NO_UPLINK) if found is None else found
    link = given.links.host.get(name)
    if link is None or not link.switch_port:
        return None
    # A representor belongs to the device of its RNIC, as the RNIC's own netdev does.
    for uplink in given.uplinks:
        members = (given.links.host.get(member) for member in uplink.members)
        if any(each and each.parent and each.parent == link.parent for each in members):
            return uplink.rail
    of = f" of {link.parent}" if link.parent else ""
    text = f"it stands for {link.switch_port}{of}, which is no rail's RNIC"
    return Unusable(name, text, why=Why.NO_RAIL)


def _read(rule: Rule | None, keys: Mapping[str, str]) -> str:
    return rule.of(keys) if rule else ""


def _path(text: str) -> str:
    """Return an absolute path that can be opened; "" for what is none."""
    return text if text.startswith("/") and text.isprintable() else ""


def _untold(rule: Rule | None, keys: Mapping[str, str], what: str) -> str:
    """Say why a rule reads nothing of a port."""
    if rule is None or not replace(rule, match="").of(keys):
        return f"external_ids say no {what} ({rule.text if rule else 'no rule'})"
    read = replace(rule, match="").of(keys)
    return f"the rule for {what} does not match {read[:_SHOWN]!r}"


def _odd(rule: Rule, value: str, what: str) -> str:
    if value:
        return f"cannot use {value[:_SHOWN]!r} as {what}"
    return f"external_ids say no {what} ({rule.text})"
