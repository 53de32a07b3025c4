# SPDX-License-Identifier: Apache-2.0
"""A snapshot from what Open vSwitch answers, now or when a bundle was made."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from netagent.model.errors import RemoteProtocolError, Unreachable
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.kept import KeptTables
from ovs_checks.openflow.parse import Dump, parse_dump

from .bonds import parse_bonds
from .rows import bridge_parts, configuration, with_bonds, with_states, with_tree
from .shows import (
    parse_datapath_ports,
    parse_dpif,
    parse_fdb,
    parse_features,
    parse_fragments,
    parse_groups,
    parse_listeners,
    parse_meters,
    parse_neighbours,
    parse_options,
    parse_ports,
    parse_routes,
    parse_tree,
)
from .snapshot import Bridge, Snapshot

Row = Mapping[str, Any]


class Source(Protocol):
    """Whoever answers for Open vSwitch.

    Every method raises `Unreachable` for what is refused or not held, and `RemoteProtocolError` for
    an answer that makes no sense.
    """

    def rows(self) -> Mapping[str, list[Row]]:
        """Return the rows of OVSDB, by table: those of `switch_rows.TABLES`."""

    def command(self, name: str, *arguments: str) -> str:
        """Return what one of the commands of `ovs-appctl` prints."""

    def ofctl(self, command: str, bridge: str) -> str:
        """Return what `ovs-ofctl COMMAND BRIDGE` prints."""


def assemble(
    source: Source,
    host: str,
    *,
    bridges: Iterable[str] | None = None,
    wall_ns: int = 0,
    kept: dict[str, KeptTables] | None = None,
) -> Snapshot:
    """Put together ports, flows, groups and learned addresses of all bridges, or of `bridges`.

    Only the rows and the flows cannot be done without; what else is missing is a problem of the
    snapshot. Who asks again and again passes the same `kept`: then only flows that changed since
    are read and indexed, and a snapshot is good until the next.
    """
    tables = source.rows()
    rows = bridge_parts(tables)
    wanted = set(bridges) if bridges is not None else None
    asking = _Asking(source, kept)
    numbers = asking.datapath_ports(rows)
    found = tuple(
        asking.fill(bridge, numbers.get(bridge.name, {}))
        for bridge in rows
        if wanted is None or bridge.name in wanted
    )
    features = {
        kind: parse_features(asking.features(name))
        for kind, name in {bridge.datapath_type: bridge.name for bridge in found}.items()
    }
    native = any(one.tunnel_push_pop for one in features.values())
    return Snapshot(
        host,
        found,
        asking.command("version").strip().rpartition(" ")[2],
        wall_ns,
        tuple(asking.problems),
        features,
        parse_routes(asking.command("ovs/route/show")) if native else (),
        parse_neighbours(asking.command("tnl/neigh/show")) if native else (),
        parse_listeners(asking.command("tnl/ports/show", "-v")) if native else (),
        config=configuration(tables),
    )


class _Asking:
    """Asks a source, and notes what it does not answer."""

    def __init__(self, source: Source, kept: dict[str, KeptTables] | None) -> None:
        self._source, self._kept = source, kept
        self.problems: list[str] = []

    def command(self, name: str, *arguments: str) -> str:
        return self._ask(
            lambda: self._source.command(name, *arguments), " ".join((name, *arguments))
        )

    def features(self, bridge: str) -> str:
        """Return what the datapath can do, and its settings where a command shows them.

        Without a feature's name the command that sets them only shows what they are set to.
        """
        try:
            return self._source.command("dpif/set-dp-features", bridge)
        except RemoteProtocolError:
            pass
        except Unreachable as e:
            if e.reason == "timeout":
                raise
        return self.command("dpif/show-dp-features", bridge)

    def _ofctl(self, command: str, bridge: str) -> str:
        """Ask for what an older OpenFlow may not know of."""
        return self._ask(lambda: self._source.ofctl(command, bridge), f"{bridge}: {command}")

    def _ask(self, ask: Callable[[], str], what: str) -> str:
        try:
            return ask()
        except RemoteProtocolError as e:
            self.problems.append(str(e))
        except Unreachable as e:
            if e.reason == "timeout":  # the other questions would each wait as long
                raise
            self.problems.append(f"{what}: {e.reason}")
        return ""

    def datapath_ports(self, bridges: Iterable[Bridge]) -> Mapping[str, Mapping[str, int | None]]:
        """Return the datapath's number of each port of each bridge."""
        if shown := self.command("dpif/show"):
            return parse_dpif(shown)
        return {
            bridge.name: parse_datapath_ports(self.command("dpctl/show", "-s", bridge.datapath))
            for bridge in bridges
        }

    def fill(self, bridge: Bridge, numbers: Mapping[str, int | None]) -> Bridge:
        """Add to what the database says of a bridge what only its daemon knows."""
        name = bridge.name
        shown = self._ofctl("show", name)  # in OpenFlow 1.0, which alone knows NO_FLOOD
        if _NEWER.match(shown):
            self.problems.append(f"{name}: which ports do not flood takes OpenFlow 1.0 to tell")
        states = parse_ports(self._ofctl("dump-ports-desc", name))
        bridge = with_states(bridge, states, numbers, parse_ports(shown))
        if any(port.bond for port in bridge.ports):
            bridge = with_bonds(bridge, parse_bonds(self.command("bond/show")))
        if bridge.spanning_tree:
            asked = f"{bridge.spanning_tree.lower()}/show"
            told = self.command(asked, name)
            bridge = with_tree(bridge, parse_tree(told) if told else None)
        ports = {port.name: port.ofport for port in bridge.ports if port.ofport >= 0}
        dump = self._flows(name, ports)
        flows = self._exact_tags(name, dump.flows)
        groups, wrong = parse_groups(self._ofctl("dump-groups", name), ports)
        self.problems += [f"{name}: {problem}" for problem in (*dump.problems, *wrong)]
        return replace(
            bridge,
            flows=flows,
            index=self._kept[name].tables if self._kept and flows is dump.flows else None,
            fdb=parse_fdb(self.command("fdb/show", name)),
            fragments=parse_fragments(shown),
            groups=groups,
            meters=parse_meters(self._ofctl("dump-meters", name)),
            options=parse_options(self._ofctl("dump-tlv-map", name)),
        )

    def _flows(self, bridge: str, ports: Mapping[str, int]) -> Dump:
        """Return the flows; the daemon's own dump, without cookies, of those ovs-ofctl cannot read.

        One action that it does not know keeps it from showing any flow of the same message.
        """
        text = self._source.ofctl("dump-flows", bridge)
        if failed := _UNDECODED.search(text):
            self.problems.append(f"{bridge}: ovs-ofctl cannot read all flows: {failed[1]}")
            text = self._source.command("bridge/dump-flows", bridge)
        if self._kept is None:
            return parse_dump(text, ports, source="flows")
        if bridge not in self._kept or not self._kept[bridge].fits(ports):
            self._kept[bridge] = KeptTables(ports)
        return self._kept[bridge].take(text)

    def _exact_tags(self, bridge: str, flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """Return the flows with `mod_vlan_vid` where OpenFlow 1.5 could not say it.

        It says `push_vlan` and `set_field` instead, which adds a tag to a packet that has one. The
        daemon's own dump has the right word but no cookies, so it is read only if such flows exist.
        """
        if not any(_AMBIGUOUS in flow.text for flow in flows):
            return flows
        own = parse_dump(self.command("bridge/dump-flows", bridge)).flows
        exact = {(flow.table, flow.priority, flow.match): flow for flow in own}
        return tuple(
            flow
            if _AMBIGUOUS not in flow.text or (flow.table, flow.priority, flow.match) not in exact
            else flow.doing(exact[flow.table, flow.priority, flow.match])
            for flow in flows
        )


_AMBIGUOUS = "push_vlan:0x8100,set_field:"
_NEWER = re.compile(r"OFPT_FEATURES_REPLY \(OF1\.")
_UNDECODED = re.compile(r"^(?:\w+_FLOW reply.*)?\*\*\*decode error: (\w+)", re.MULTILINE)
