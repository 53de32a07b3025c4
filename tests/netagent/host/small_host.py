# SPDX-License-Identifier: Apache-2.0
"""A small host as values: one bridge, two rails, and as many containers as one likes."""

from dataclasses import replace
from typing import Any

from netagent.host.facts import (
    Bridge,
    Link,
    LinkView,
    Namespace,
    Port,
    VswitchView,
)
from netagent.host.sources import Found, Given, OwnPorts, found_by
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface

S = 1_000_000_000
"""Nanoseconds of a second."""


def tunnel(rail: int = 0, **changes: Any) -> Interface:
    made = Interface(
        name=f"vxlan{rail}",
        type="vxlan",
        ofport=1 + rail,
        options={"local_ip": f"172.30.{rail}.10", "remote_ip": "flow", "key": "flow"},
        external_ids={"rail": str(rail)},
    )
    return replace(made, **changes)


def plug(container: str = "c0", rail: int = 0, octet: int = 10, **ids: str | None) -> Interface:
    """Return a container's interface; `ids` changes its external_ids, None removes one."""
    keys: dict[str, str | None] = {
        "iface-id": f"a_{container}_rail{rail}",
        "attached_mac": f"02:00:00:00:{rail:02x}:{octet:02x}",
        "ip_addresses": f"10.0.{rail}.{octet}/24",
        "sandbox": container,
        "task": "train",
        "rail": str(rail),
        **{key.replace("__", "-"): value for key, value in ids.items()},
    }
    kept = {key: value for key, value in keys.items() if value is not None}
    return Interface(name=f"{container}-r{rail}", ofport=100, external_ids=kept)


def physical(rail: int, *members: str) -> Bridge:
    """Return the bridge between a rail's VTEP and its RNIC(s)."""
    name = f"br-phy{rail}"
    names = members or (f"rnic{rail}",)
    uplink = Port(names[0] if len(names) == 1 else "bond", tuple(map(Interface, names)))
    return Bridge(name, "netdev", (Port(name, (Interface(name, "internal"),)), uplink))


def vswitch(*interfaces: Interface, bridges: tuple[Bridge, ...] | None = None) -> VswitchView:
    own = Interface("br-int", "internal")
    ports = tuple(Port(each.name, (each,)) for each in (own, *interfaces))
    others = (physical(0), physical(1)) if bridges is None else bridges
    return VswitchView(True, (Bridge("br-int", "netdev", ports), *others))


class Links:
    """Devices that a test changes and then looks at."""

    def __init__(self, rails: int = 2) -> None:
        self.host: dict[str, Link] = {}
        self.inside: dict[int, dict[int, Link]] = {}
        self.namespaces: dict[int, Namespace] = {}
        self._index = 100
        for rail in range(rails):
            self.add(f"rnic{rail}", kind="veth")
            self.add(f"br-phy{rail}", kind="tun", addresses=(f"172.30.{rail}.10",))

    def add(self, name: str, **facts: Any) -> Link:
        self._index += 1
        self.host[name] = Link(index=self._index, name=name, **facts)
        return self.host[name]

    def change(self, name: str, **facts: Any) -> None:
        self.host[name] = replace(self.host[name], **facts)

    def start(self, interface: Interface, nsid: int, **facts: Any) -> None:
        """Make the veth that `interface` names, with its other end in namespace `nsid`."""
        keys = interface.external_ids
        self.add(interface.name, kind="veth", netnsid=nsid, peer=7)
        known: dict[str, Any] = {
            "mac": keys["attached_mac"],
            "mtu": 1400,
            "addresses": (keys["ip_addresses"].partition("/")[0],),
            **facts,
        }
        self.inside.setdefault(nsid, {})[7] = Link(index=7, name="eth0", **known)
        self.namespaces[nsid] = Namespace(f"/run/netns/{nsid}", 4_000_000_000 + nsid)

    def give(self, interface: Interface, nsid: int, **facts: Any) -> None:
        """Make a representor of that name, with its function in namespace `nsid`."""
        self.start(interface, nsid, **facts)
        index = self.host[interface.name].index
        self.host[interface.name] = Link(index=index, name=interface.name, switch_port="pf0vf3")

    def change_inside(self, nsid: int, **facts: Any) -> None:
        self.inside[nsid][7] = replace(self.inside[nsid][7], **facts)

    def end(self, interface: Interface, nsid: int) -> None:
        """Delete the namespace, and with it the veth."""
        del self.host[interface.name], self.inside[nsid], self.namespaces[nsid]

    @property
    def view(self) -> LinkView:
        inside = {nsid: dict(table) for nsid, table in self.inside.items()}
        return LinkView(dict(self.host), inside, dict(self.namespaces))


def found_in(view: VswitchView, links: LinkView | None = None) -> Found:
    """Return what netagent's own external_ids say of endpoints."""
    bridge = view.bridge("br-int")
    given = Given(bridge.ports if bridge else (), links or LinkView())
    return found_by([OwnPorts()], given)


C0 = EndpointId("c0", 0)
