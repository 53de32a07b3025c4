# SPDX-License-Identifier: Apache-2.0
"""Logical flows beside a host's OpenFlow flows: what is missing or stale, and what one stands for.

A cookie is the first 32 bits of the identity of a row that OVN made the flow of (ovn-architecture
(7), ovn:controller/ofctrl.c). Of one logical flow several flows may be made; it is missing
where none is left of a datapath that a host has.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from analyzer.intent.matches import Can, Local, can_hold
from netagent.model.errors import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class LogicalFlow:
    """A row of Logical_Flow."""

    uuid: str
    pipeline: str
    """``ingress`` or ``egress``."""
    table: int
    """Of the logical pipeline."""
    priority: int
    match: str
    actions: str
    datapaths: frozenset[str] = frozenset()
    """Names of the logical switches and routers that have it; none where nobody asked."""
    stage: str = ""
    """Name of the table, ``ls_in_l2_lkup``."""
    hint: str = ""
    """First 32 bits, in hexadecimal digits, of the northbound row that it was made for."""
    source: str = ""
    """Place in northd's source that made it."""

    @property
    def cookie(self) -> int:
        """The cookie of its OpenFlow flows."""
        return cookie_of(self.uuid)

    @property
    def refuses(self) -> bool:
        """Whether it is of an ACL that keeps packets back; one that lets them on may log them."""
        return "_acl" in self.stage and self.hint != "" and not self.actions.endswith("next;")


@dataclass(frozen=True, slots=True)
class Host:
    """What of a controller's objects is on a host."""

    local: Local
    datapaths: Mapping[str, int]
    """Logical switches and routers whose flows belong here -> what their packets' metadata is."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A row of Port_Binding, as far as it says which flows belong where."""

    port: str
    datapath: str
    kind: str = ""
    """Type; "" is a container's or a virtual machine's."""
    chassis: str = ""
    peer: str = ""
    """Of a patch port: the one at the other logical switch or router."""
    cookie: int = 0
    """That of its own OpenFlow flows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Flows that are not as they should be."""

    missing: tuple[LogicalFlow, ...] = ()
    """Each with those of its datapaths that lack it."""
    stale: tuple[int, ...] = ()
    """Cookies of flows that no row stands for."""
    unclear: tuple[LogicalFlow, ...] = ()
    """Logical flows whose match could not be read: nobody can say whether they belong here."""
    compared: int = 0
    """Logical flows that belong here."""


EVERYWHERE = frozenset({"patch", "localnet", "vtep", "remote", "external"})
"""Types of ports that every host has which has their datapath (ovn:controller/binding.c)."""


_COPY = re.compile(r"^\d+_")
"""Each logical switch has a copy of a port group, ``TUNNEL-KEY_NAME`` (ovn:lib/ovn-util.c,
get_sb_port_group_name)."""


def cookie_of(uuid: str) -> int:
    """Return the cookie that stands for a row; RemoteProtocolError where that is no identity."""
    try:
        return int(uuid[:8], 16)
    except ValueError as error:
        raise RemoteProtocolError(f"{uuid[:40]!r} is no identity of a row") from error


def host_of(
    chassis: str,
    bindings: Iterable[Bound],
    *,
    keys: Mapping[str, int],
    groups: Mapping[str, frozenset[str]],
    empty: frozenset[str],
) -> Host:
    """Return what is on a chassis: its own ports, and all that they reach through patch ports.

    `keys` are the tunnel keys of datapaths, `groups` the southbound copies of port groups, of which
    matches leave out the number.
    """
    every = list(bindings)
    named: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for name, members in groups.items():
        named[_COPY.sub("", name)] |= members
    by_name = {each.port: each for each in every}
    resident = frozenset(each.port for each in every if chassis and each.chassis == chassis)
    leads: defaultdict[str, set[str]] = defaultdict(set)
    for each in every:
        if each.peer in by_name:
            leads[each.datapath].add(by_name[each.peer].datapath)
    reached, todo = set[str](), {by_name[port].datapath for port in resident}
    while todo:
        reached |= todo
        todo = {to for datapath in todo for to in leads[datapath]} - reached
    shared = {e.port for e in every if e.kind in EVERYWHERE and e.datapath in reached}
    return Host(
        Local(resident | shared, resident, named, empty), {d: keys[d] for d in reached if d in keys}
    )


def difference(
    flows: Iterable[LogicalFlow],
    host: Host,
    installed: Mapping[tuple[int, int], int],
    others: Collection[int] = (),
) -> Difference:
    """Return what of `flows` is not on a host, and what is there of no row.

    `installed` counts the host's flows by cookie and the metadata that they match, 0 for any;
    `others` are cookies of all rows of other tables.
    A logical flow belongs to a host that has one of its datapaths, unless its match can never hold
    there.
    """
    missing, unclear, compared = [], [], 0
    known = {0, *others}
    for flow in flows:
        known.add(flow.cookie)
        here = flow.datapaths & host.datapaths.keys()
        if not here:
            continue
        lacking = {d for d in here if not installed.get((flow.cookie, host.datapaths[d]))}
        if lacking:
            try:
                can = can_hold(flow.match, flow.pipeline, host.local)
            except RemoteProtocolError:
                unclear.append(flow)
                continue
            if can is Can.NEVER:
                continue
            missing.append(replace(flow, datapaths=frozenset(lacking)))
        compared += 1
    stale = tuple(sorted({cookie for cookie, _ in installed} - known))
    return Difference(_ordered(missing), stale, tuple(unclear), compared)


def _ordered(flows: Iterable[LogicalFlow]) -> tuple[LogicalFlow, ...]:
    order = sorted(flows, key=lambda f: (f.pipeline == "egress", f.table, -f.priority, f.match))
    return tuple(order)


@dataclass(slots=True)
class Explainer:
    """Says what cookies and tables of a host stand for."""

    flows: Mapping[int, LogicalFlow]
    owners: Mapping[str, str] = field(default_factory=dict)
    """First 32 bits, in hexadecimal digits, of a northbound row -> what it is, ``ACL name``."""
    rows: Mapping[int, str] = field(default_factory=dict)
    """Cookies of rows that are no logical flow -> what they are (``port train-a-0-0``)."""
    ports: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Tunnel keys of a datapath and of a port on it -> the logical port."""
    doubtful: frozenset[int] = frozenset()
    """Cookies that several rows have, by chance: nobody can tell which of them is meant."""

    def explain(self, cookie: int) -> str:
        """Return one line on what made the flows with this cookie."""
        flow = self.flows.get(cookie)
        if flow is not None:
            return sentence(flow, self.owners.get(flow.hint, ""))
        if cookie in self.rows:
            return f"made for {self.rows[cookie]}"
        if cookie in self.doubtful:
            return "several rows begin with these 32 bits"
        return "fixed part of the pipeline" if not cookie else "no row stands for it"

    def place_of(self, cookies: Iterable[int]) -> tuple[str, int] | None:
        """Return pipeline and table of the logical flows in an OpenFlow table, by its cookies.

        None where there are none. Numbers of OpenFlow tables differ between versions of OVN.
        """
        flows = (self.flows[each] for each in cookies if each in self.flows)
        places = Counter((flow.pipeline, flow.table) for flow in flows)
        return places.most_common(1)[0][0] if places else None


def sentence(flow: LogicalFlow, owner: str = "") -> str:
    """Return one line on a logical flow."""
    where = ", ".join(sorted(flow.datapaths))
    text = f"{flow.stage or flow.pipeline} (table {flow.table}) of {where}, {flow.match}"
    return f"{text}, for {owner}" if owner else text
