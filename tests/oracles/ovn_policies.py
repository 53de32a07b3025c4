# SPDX-License-Identifier: Apache-2.0
"""A cloud's policies on the lab's OVN, questions about its pairs, and `ovn-trace`'s answers. Pure.

Each tenant gets a router between its rails' networks. Tenant a's policies are stateful and by port
group, with a load balancer; tenant b's are by port, one network denies by default, one port is
disabled and one may not use the address that it has.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netagent.wire.messages import Protocol
from tests.lab import cms
from tests.lab.workload import Endpoint, container_of

RAILS, HOSTS, TENANTS = (0, 1), (0, 1, 2), ("train-a", "train-b")
Balancer = tuple[Protocol, str, int]
ONE_BACKEND: Balancer = ("tcp", "10.99.0.1", 80)
TWO_BACKENDS: Balancer = ("udp", "10.99.0.2", 53)
"""Protocol, address and port of each load balancer."""
BACKEND_PORT = 9100
PROTOCOLS: Sequence[Protocol] = ("udp", "udp", "tcp", "tcp", "icmp")
PORTS = (22, 23, 25, 53, 80, 443, 4791, 5001, 5003, 6000, 8080, 8443, 18600, 30000)
"""Destination ports that questions are about: some are no policy's."""


def end(task: str, host: int, rail: int) -> Endpoint:
    """Return an endpoint of the lab."""
    return container_of(f"{task}-{host}").endpoint(rail)


def every_end(task: str) -> list[Endpoint]:
    """Return a tenant's endpoints."""
    return [end(task, host, rail) for host in HOSTS for rail in RAILS]


DISABLED, WRONG_ADDRESS = end("train-b", 0, 1), end("train-b", 2, 1)
BACKENDS = (end("train-a", 1, 0), end("train-a", 2, 1))


def gateway(rail: int) -> str:
    """Return the address of a tenant's router in a rail's network."""
    return f"10.0.{rail}.1"


def router_mac(task: str, rail: int) -> str:
    """Return the router's hardware address there."""
    return f"02:0f:00:00:{ord(task[-1]):02x}:{rail:02x}"


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL."""

    on: str
    """A port group, or a logical switch."""
    way: str
    priority: int
    match: str
    action: str
    name: str = ""


def _acls() -> list[Acl]:
    bad = "ip4.src == $bad_a"
    one = cms.port(end("train-a", 2, 1))
    two = cms.port(end("train-b", 1, 0))
    b0 = cms.switch(end("train-b", 0, 0))
    return [
        Acl("pg_a", "from-lport", 1000, "inport == @pg_a && ip4", "allow-related"),
        Acl("pg_a", "to-lport", 1000, "outport == @pg_a && ip4", "allow-related", "all-of-a"),
        Acl("pg_a", "from-lport", 2000, "inport == @pg_a && tcp.dst == 25", "reject", "no-smtp"),
        Acl("pg_web", "to-lport", 2000, "outport == @pg_web && tcp.dst == 23", "drop", "no-telnet"),
        Acl("pg_web", "to-lport", 2001, f"outport == @pg_web && {bad} && udp.dst == {{5001, 5003}}",
            "reject", "quarantine"),
        Acl("pg_web", "to-lport", 2001, f"outport == @pg_web && {bad} && tcp.dst == 443", "drop"),
        Acl("pg_a", "to-lport", 2002, f'outport == "{one}" && icmp4', "drop", "no-ping"),
        Acl("pg_a", "from-lport", 2002, f'inport == "{one}" && udp.dst >= 30000', "drop"),
        Acl("pg_b1", "to-lport", 900, "outport == @pg_b1 && ip4", "drop", "default-deny"),
        Acl("pg_b1", "to-lport", 1000, "outport == @pg_b1 && icmp4", "allow-related"),
        Acl("pg_b1", "to-lport", 1000,
            "outport == @pg_b1 && ip4.src == $all_b && udp.dst > 1000 && udp.dst < 20000",
            "allow-related", "probes"),
        Acl(b0, "to-lport", 1500, "tcp.dst == 22", "drop", "no-ssh"),
        Acl(b0, "from-lport", 1500, "udp.dst == 53", "reject"),
        Acl(b0, "to-lport", 1600, f'outport == "{two}" && ip4.src == 10.0.0.10 && tcp', "drop",
            "not-from-b0"),
        Acl(b0, "from-lport", 1700, "udp.dst == 6000 || udp.src == 6000", "allow-stateless"),
        Acl(b0, "to-lport", 1700, "udp.dst == 6000 || udp.src == 6000", "allow-stateless"),
    ]  # fmt: skip


ACLS = _acls()


def commands() -> list[list[str]]:
    """Return ovn-nbctl's commands that make all of it."""
    made: list[list[str]] = []
    for task in TENANTS:
        router = f"lr_{task}"
        made.append(["lr-add", router])
        for rail in RAILS:
            switch, port = cms.switch(end(task, 0, rail)), f"{task}_gw{rail}"
            mac = router_mac(task, rail)
            made += [
                ["lrp-add", router, f"{router}_{rail}", mac, f"{gateway(rail)}/24"],
                ["lsp-add", switch, port],
                ["lsp-set-type", port, "router"],
                ["lsp-set-addresses", port, "router"],
                ["lsp-set-options", port, f"router-port={router}_{rail}"],
            ]
    groups = {
        "pg_a": every_end("train-a"),
        "pg_web": [end("train-a", 1, rail) for rail in RAILS],
        "pg_b1": [end("train-b", host, 1) for host in HOSTS],
    }
    made += [["pg-add", name, *map(cms.port, ends)] for name, ends in groups.items()]
    sets = {"bad_a": [end("train-a", 2, 0), end("train-a", 0, 1)], "all_b": every_end("train-b")}
    for name, ends in sets.items():
        addresses = ",".join(f'"{each.address}"' for each in ends)
        made.append(["create", "Address_Set", f"name={name}", f"addresses={addresses}"])
    for acl in ACLS:
        named = [f"--name={acl.name}"] if acl.name else []
        of = "switch" if "switch" in acl.on else "port-group"
        made.append(
            [f"--type={of}", *named, "acl-add", acl.on, acl.way, str(acl.priority), acl.match,
             acl.action]
        )  # fmt: skip
    for (protocol, address, at), backends in (
        (ONE_BACKEND, BACKENDS[:1]), (TWO_BACKENDS, BACKENDS),
    ):  # fmt: skip
        name, to = f"lb_{protocol}", ",".join(f"{e.address}:{BACKEND_PORT}" for e in backends)
        made.append(["lb-add", name, f"{address}:{at}", to, protocol])
        made += [["ls-lb-add", cms.switch(end("train-a", 0, rail)), name] for rail in RAILS]
    wrong = f"{WRONG_ADDRESS.mac} 10.0.1.99"
    made.append(["lsp-set-enabled", cms.port(DISABLED), "disabled"])
    made.append(["lsp-set-port-security", cms.port(WRONG_ADDRESS), wrong])
    return made


# --- questions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a connection of one endpoint to another comes about."""

    source: Endpoint
    target: Endpoint
    protocol: Protocol
    port: int = 0
    source_port: int = 0
    address: str = ""
    """A load balancer's, that stands before the target."""

    @property
    def is_balanced(self) -> bool:
        """Whether it depends on a hash which backend it goes to."""
        return self.address == TWO_BACKENDS[1]

    @property
    def arrives_at(self) -> int:
        """The port at which the target has it."""
        return BACKEND_PORT if self.address else self.port

    def __str__(self) -> str:
        to = f" by {self.address}" if self.address else ""
        where = (named(each) for each in (self.source, self.target))
        return f"{' -> '.join(where)}{to} {self.protocol} {self.source_port}>{self.port}"


def named(one: Endpoint) -> str:
    """Return an endpoint's name, as netagent has it."""
    return f"{one.container.id}/rail{one.rail}"


def pings() -> list[Question]:
    """Return the pings between all endpoints of each tenant."""
    return [
        Question(a, b, "icmp")
        for task in TENANTS
        for a in every_end(task)
        for b in every_end(task)
        if a.container != b.container
    ]


_A, _B = every_end("train-a"), every_end("train-b")
_WEB, _BAD = (
    [end("train-a", 1, rail) for rail in RAILS],
    [end("train-a", 2, 0), end("train-a", 0, 1)],
)
_B0, _B1 = ([end("train-b", host, rail) for host in HOSTS] for rail in RAILS)
POINTED: Sequence[tuple[Sequence[Endpoint], Sequence[Endpoint], Protocol, int]] = (
    (_A, _A, "tcp", 25), (_A, _WEB, "tcp", 23), (_BAD, _WEB, "udp", 5001), (_BAD, _WEB, "tcp", 443),
    ([end("train-a", 2, 1)], _A, "udp", 30000), (_A, [end("train-a", 2, 1)], "icmp", 0),
    (_B, _B1, "tcp", 80), (_B, _B0, "tcp", 22), (_B0, _B, "udp", 53),
    ([end("train-b", 0, 0)], [end("train-b", 1, 0)], "tcp", 8080), (_B, _B1, "udp", 5001),
)  # fmt: skip
"""Sources, targets, protocol and port that a policy is about, most often."""


def draw(count: int, seed: int) -> list[Question]:
    """Return random questions: one in ten to a load balancer, one in three about a policy."""
    chance = random.Random(seed)
    found = []
    for n in range(count):
        source_port = 40000 + n  # each its own, so that no connection of another one stands for it
        if chance.random() < 0.1:
            protocol, address, port = chance.choice((ONE_BACKEND, TWO_BACKENDS))
            source = chance.choice([e for e in every_end("train-a") if e.container.host == 0])
            found.append(Question(source, BACKENDS[0], protocol, port, source_port, address))
            continue
        if chance.random() < 0.33:
            sources, targets, protocol, port = chance.choice(POINTED)
        else:
            sources = targets = chance.choice((_A, _B))
            protocol = chance.choice(PROTOCOLS)
            port = 0 if protocol == "icmp" else chance.choice(PORTS)
        source, target = chance.choice(
            [(a, b) for a in sources for b in targets if a.container != b.container]
        )
        found.append(Question(source, target, protocol, port, source_port if port else 0))
    return found


def in_words(one: Endpoint, way: int) -> object:
    """Return one of the ways to name an endpoint to the analyzer."""
    task = one.container.task
    return (
        named(one),
        {"port": cms.port(one)},
        {"pod": f"{task}/{one.container.id}", "rail": one.rail},
        {"address": one.address, "task": task},
    )[way % 4]


# --- ovn-trace ------------------------------------------------------------------------------------


def traced(asked: Question, *, is_reply: bool) -> list[str]:
    """Return `ovn-trace`'s arguments for the first packet of a connection, or its reply."""
    near, far = (asked.target, asked.source) if is_reply else (asked.source, asked.target)
    to = asked.address if asked.address and not is_reply else far.address
    is_routed = near.rail != far.rail or to != far.address
    mac = router_mac(near.container.task, near.rail) if is_routed else far.mac
    match asked.protocol:
        case "icmp":
            what = f"icmp4.type == {0 if is_reply else 8} && icmp4.code == 0"
        case protocol:
            ports = asked.source_port, asked.arrives_at if is_reply else asked.port
            sent, at = reversed(ports) if is_reply else ports
            what = f"{protocol} && {protocol}.src == {sent} && {protocol}.dst == {at}"
    packet = (
        f'inport == "{cms.port(near)}" && eth.src == {near.mac} && eth.dst == {mac} && '
        f"ip4.src == {near.address} && ip4.dst == {to} && ip.ttl == 64 && {what}"
    )
    states = ["--ct=est,rpl" if is_reply else "--ct=new"] * 8
    chosen = f"--lb-dst={asked.target.address}:{BACKEND_PORT}"
    balanced = [chosen] if asked.address and not is_reply else []
    return [*states, *balanced, packet]


@dataclass(frozen=True, slots=True)
class Traced:
    """How `ovn-trace` has a packet end."""

    port: str = ""
    """Logical port that it is delivered to; "" where it is not."""
    flow: str = ""
    """First digits of the identity of the logical flow that stops it."""


_FLOW = re.compile(r"^ *\d+\. \S+ .*uuid ([0-9a-f]{8})")
_OUTPUT = re.compile(r'/\* output to "([^"]+)", type "" \*/')


def read_trace(text: str) -> Traced:
    """Return how a detailed trace ends; what a rejection sends back is another packet."""
    flow, port = "", ""
    for line in text.splitlines():
        if found := _FLOW.match(line):
            flow = found[1]
        elif found := _OUTPUT.search(line):
            port = found[1]
        elif line.strip().startswith("reject"):
            return Traced(flow=flow)
    return Traced(port, "" if port else flow)


Row = Mapping[str, Any]


def table(listed: str) -> list[Row]:
    """Return rows as ovn-nbctl and ovn-sbctl list them with ``--format=json``."""
    said = json.loads(listed)
    return [dict(zip(said["headings"], map(_plain, row), strict=True)) for row in said["data"]]


def _plain(value: Any) -> Any:
    match value:
        case ["uuid", str(uuid)]:
            return uuid
        case ["map", pairs]:
            return dict(pairs)
        case ["set", []]:
            return ""
    return value


@dataclass(frozen=True, slots=True)
class Names:
    """What stops packets, by its name."""

    flows: Sequence[Row]
    """Rows of Logical_Flow."""
    acls: Sequence[Row]

    def who(self, stopped_by: str, sender: Endpoint, receiver: Endpoint) -> str:
        """Return what the product ought to call what stands behind a logical flow."""
        [flow] = (each for each in self.flows if each["_uuid"].startswith(stopped_by))
        said = flow["external_ids"]
        stage, hint = said["stage-name"], said.get("stage-hint", "")
        if "_acl" in stage and hint:
            [acl] = (each for each in self.acls if each["_uuid"].startswith(hint))
            shown = acl["name"] or acl["match"]
            return f"ACL {shown if len(shown) <= 80 else f'{shown[:80]}...'}"
        if DISABLED in (sender, receiver):
            return f"logical port {cms.port(DISABLED)}, which is disabled"
        if stage.endswith("_port_sec"):
            return f"port security of {named(receiver if '_out_' in stage else sender)}"
        return f"nobody, in {stage}"
