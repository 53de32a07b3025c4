# SPDX-License-Identifier: Apache-2.0
"""A healthy OVN with policies: a diagnosis says what `ovn-trace` says and what packets do.

`NETAGENT_ORACLE_PAIRS` sets how many random questions are put to each encapsulation, and
`NETAGENT_ORACLE_SEED` which; both are printed with what came of them. With
`NETAGENT_ORACLE_WHOLE=1` agents and analyzer run, and are asked by `POST /v1/diagnose`; else their
code is called, over the tables as Open vSwitch has them.
"""

import asyncio
import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from msgspec import to_builtins

from analyzer.controllers.flows import read_flows
from analyzer.controllers.messages import AskFlows
from analyzer.diagnosis.engine import Diagnosis
from analyzer.diagnosis.together import together
from analyzer.intent.model import Intent, Port
from analyzer.localize.observations import Policy
from analyzer.questions import Ask
from analyzer.roster.registry import Registry
from analyzer.server.intended import Intended
from analyzer.server.meaning import policies_of
from netagent.agent.answers import routed
from netagent.commands import check
from netagent.host.facts import Namespace
from netagent.model.endpoint import Endpoint as Known
from netagent.model.ids import EndpointId
from netagent.model.topology import DeclaredTopology
from netagent.wire.messages import CheckReply, CheckRequest, Registration, Service
from netagent.wire.worker import CheckWork
from tests.analyzer.asking import drive
from tests.conftest import OVN, OVS, ROOT, require
from tests.lab import Lab, LabError, Shape, cms
from tests.lab.commands import run, wait_for
from tests.lab.demo import Observer
from tests.lab.namespaces import entering, in_thread
from tests.lab.shape import Controller, Tunnel
from tests.lab.workload import Endpoint
from tests.oracles import ovn_policies as oracle
from tests.oracles.ovn_policies import Names, Question

pytestmark = [pytest.mark.lab, pytest.mark.ovs, pytest.mark.ovn]

PAIRS = int(os.environ.get("NETAGENT_ORACLE_PAIRS", "40"))
WHOLE = os.environ.get("NETAGENT_ORACLE_WHOLE") == "1"
SEED = int(os.environ.get("NETAGENT_ORACLE_SEED", "1"))
Said = dict[str, Any]
TRACE_S = 120.0
"""Seconds for a trace: each reads the whole database, on a machine that is busy."""
SIZES = (32, 8, 4, 2)
"""Most questions of one diagnosis, at first and where agents do not answer in time."""
TRIES, WAIT_S = 3, 0.5
"""A datagram may be late on a machine that is busy; one that is refused never comes."""


# --- the lab --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[Tunnel.GENEVE, Tunnel.VXLAN], ids=str)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Bring OVN up with the policies, and with containers that have a way to their router."""
    for needed in (ROOT, OVS, OVN):
        require(needed)
    made = Lab()
    shape = Shape(
        hosts=3, segments=1, controller=Controller.OVN, encapsulation=request.param, traced=False
    )
    try:
        made.up(shape, agents=WHOLE, traffic=None)
        every = [each for task in oracle.TENANTS for each in oracle.every_end(task)]
        if WHOLE:
            _wait_for_agents(made, len(every))
        words = [word for command in oracle.commands() for word in ("--", *command)]
        made.run("ovn", "ovn-nbctl", *words[1:])
        made.run("ovn", "ovn-nbctl", "--wait=hv", "sync")
        for each in every:
            _give_routes(made, each)
        yield made
    finally:
        assert made.down() == []


def _wait_for_agents(lab: Lab, endpoints: int) -> None:
    with lab.services().client() as client:
        observer = Observer(client)
        wait_for("endpoints", lambda: observer.endpoints_up() == endpoints, timeout_s=60)


def _give_routes(lab: Lab, one: Endpoint) -> None:
    """Have what an endpoint sends from its address leave by its own interface, and resolve."""
    where, table, device = one.container.id, str(100 + one.rail), ("dev", one.interface)
    lab.run(where, "ip", "rule", "add", "from", one.address, "table", table)
    lab.run(where, "ip", "route", "add", one.network, *device, "table", table)
    router = oracle.gateway(one.rail)
    lab.run(where, "ip", "route", "add", "default", "via", router, *device, "table", table)
    if one not in (oracle.DISABLED, oracle.WRONG_ADDRESS):
        arrived = lab.run(where, "ping", "-n", "-c", "1", "-W", "5", "-I", one.address, router)
        assert " 1 received" in arrived


# --- what packets do ------------------------------------------------------------------------------

_at_work: defaultdict[object, Lock] = defaultdict(Lock)
"""By container, protocol and port: one listens at a time."""


def arrives(asked: Question) -> bool:
    """Tell whether a question is answered: a datagram, an echo, or a connection's handshake."""
    if asked.protocol == "icmp":
        return _pings(asked)
    with _at_work[asked.target.container, asked.protocol, asked.arrives_at]:
        return _asks(asked)


def _pings(asked: Question) -> bool:
    argv = ("ping", "-n", "-q", "-c", str(TRIES), "-i", "0.2", "-W", str(WAIT_S))
    to = ("-I", asked.source.address, asked.target.address)
    try:
        return " 0 received" not in run(*entering(asked.source.container.namespace), *argv, *to)
    except LabError:
        return False


def _asks(asked: Question) -> bool:
    is_tcp = asked.protocol == "tcp"
    kind = socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM

    def opened(one: Endpoint, port: int) -> socket.socket:
        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.settimeout(TRIES * WAIT_S if is_tcp else WAIT_S)
            made.bind((one.address, port))
            return made

        return in_thread(one.container.namespace, make)

    with ExitStack() as cleanup:
        listener = cleanup.enter_context(opened(asked.target, asked.arrives_at))
        sender = cleanup.enter_context(opened(asked.source, asked.source_port))
        to = asked.address or asked.target.address, asked.port
        if is_tcp:
            listener.listen(1)
            return _is_done(lambda: sender.connect(to))

        def echoed() -> None:
            sender.sendto(b"x", to)
            said, whence = listener.recvfrom(16)
            listener.sendto(said, whence)
            sender.recvfrom(16)

        return any(_is_done(echoed) for _ in range(TRIES))


def _is_done(work: Callable[[], object]) -> bool:
    try:
        work()
    except OSError:  # in time, or it was rejected
        return False
    return True


# --- what is said ---------------------------------------------------------------------------------


def traced(lab: Lab, names: Names, asked: Question) -> str:
    """Return what `ovn-trace` has become of a question: "" if it is answered, or who refuses it."""
    for is_reply in (False, True):
        ends = (asked.source, asked.target)
        sender, receiver = reversed(ends) if is_reply else ends
        words = oracle.traced(asked, is_reply=is_reply)
        found = oracle.read_trace(lab.run("ovn", "ovn-trace", *words, timeout_s=TRACE_S))
        if found.port != cms.port(receiver):
            return names.who(found.flow, sender, receiver)
    return ""


class Tables:
    """Answers as the analyzer and its agents do, without their processes: one reading for all."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        every = [each for task in oracle.TENANTS for each in oracle.every_end(task)]
        self._endpoints = [_endpoint(each) for each in every]
        self._spaces = {
            end.id: _namespace(one) for end, one in zip(self._endpoints, every, strict=True)
        }
        self._roster = Registry()
        for host in oracle.HOSTS:
            said = Registration(
                host=f"h{host}", instance="1", generation=1, rpc_url="",
                endpoints=tuple(end for end in self._endpoints if end.host == f"h{host}"),
            )  # fmt: skip
            self._roster.apply(said, time.time_ns())

    def diagnosed(self, questions: Sequence[Question]) -> list[Said]:
        """Return what is said of each question."""
        diagnosis = Diagnosis(self._roster, DeclaredTopology())
        asking = together([
            diagnosis.diagnose(_id(asked.source), _id(asked.target), service=service(asked))
            for asked in questions
        ])  # fmt: skip
        told = drive(asking, self._reply)
        walks = [dict(each) if isinstance(each, dict) else pytest.fail(str(each)) for each in told]
        columns = ("--format=json", "--columns=name,enabled", "list", "Logical_Switch_Port")
        rows = oracle.table(self._lab.run("ovn", "ovn-nbctl", *columns))
        ports = {row["name"]: row["enabled"] is not False for row in rows}
        known = {
            cms.port(one): one.mac for task in oracle.TENANTS for one in oracle.every_end(task)
        }
        intent = Intent("ovn", 0, ports={
            name: Port(name, macs=(mac,), is_enabled=ports[name]) for name, mac in known.items()
        })  # fmt: skip
        intended = Intended(lambda: [intent], policies=self._policies)
        return asyncio.run(intended.explained(walks, self._endpoints))

    async def _policies(
        self, cookies: Mapping[str, Collection[int]]
    ) -> Mapping[tuple[str, int], Policy]:
        south, north = (
            [f"unix:{self._lab.directory}/ovn/ovn{name}_db.sock"] for name in ("sb", "nb")
        )
        every = {f"{cookie:08x}" for of in cookies.values() for cookie in of}
        found = policies_of(read_flows(south, AskFlows(query=0, prefixes=tuple(every)), north))
        return {
            (host, each): found[each]
            for host, of in cookies.items()
            for each in of
            if each in found
        }

    def _reply(self, asked: Ask) -> CheckReply:
        assert isinstance(asked.request, CheckRequest)
        mine = tuple(end for end in self._endpoints if end.host == asked.host)
        own = {end.id: end.address for end in mine}
        questions = routed(asked.request.questions, own, self._spaces.get)
        return check.done(
            CheckWork(
                rundir=str(self._lab.directory / asked.host), bridge="br-int", host=asked.host,
                request=CheckRequest(questions=questions), endpoints=mine,
            )
        )  # fmt: skip


def _id(one: Endpoint) -> EndpointId:
    return EndpointId(one.container.id, one.rail)


def _endpoint(one: Endpoint) -> Known:
    return Known(
        _id(one), one.container.task, f"h{one.container.host}", one.address, one.mac, one.vtep,
        f"rnic{one.rail}", "br-int", one.port,
    )  # fmt: skip


def _namespace(one: Endpoint) -> Namespace:
    path = Path("/run/netns") / one.container.namespace
    return Namespace(str(path), path.stat().st_ino)


def by_analyzer(lab: Lab, questions: Sequence[Question]) -> list[Said]:
    """Return what the analyzer says of each question, of which ends are named in all ways."""

    def written(n: int, asked: Question) -> dict[str, object]:
        ends = (oracle.in_words(asked.source, n), oracle.in_words(asked.target, n // 4))
        return {"source": ends[0], "target": ends[1], "service": to_builtins(service(asked))}

    pairs = [written(n, asked) for n, asked in enumerate(questions)]
    found: dict[int, Said] = {}
    for size in SIZES:
        todo = [n for n in range(len(pairs)) if n not in found or _is_unanswered(found[n])]
        for first in range(0, len(todo), size):
            part = todo[first : first + size]
            found.update(zip(part, _diagnosed(lab, [pairs[n] for n in part]), strict=True))
    return [found[n] for n in range(len(pairs))]


def service(asked: Question) -> Service:
    """Return what the analyzer is asked about."""
    return Service(
        protocol=asked.protocol, port=asked.port, source_port=asked.source_port,
        address=asked.address,
    )  # fmt: skip


def _is_unanswered(said: Said) -> bool:
    """Tell whether an agent did not answer in time: its machine has other work."""
    return any(
        line.startswith("flow tables of ") and (line.endswith("timeout") or "busy" in line)
        for line in said["text"].split("; ")
    )


def _diagnosed(lab: Lab, pairs: Sequence[object]) -> list[Said]:
    with lab.services().client() as client:
        client.timeout = 60
        known = client.post("/v1/diagnose", json={"pairs": pairs, "budget_s": 600})
        assert known.status_code == 202, known.text
        path, body = known.headers["location"], known.json()
        results: list[Said] = []
        while True:
            results += body["results"]
            if body["phase"] != "running" and len(results) == body["done"]:
                assert body["phase"] == "succeeded", body["error"]
                return results
            query = {"after": str(body["next"]), "wait_s": "3"}
            body = client.get(path, params=query).raise_for_status().json()


@dataclass
class Compared:
    """One question with all that was said of it."""

    asked: Question
    arrives: bool
    refused_by: str
    """By `ovn-trace`."""
    said: Said

    @property
    def by(self) -> str:
        """Who refuses it, by the product."""
        return next((o["by"] for o in self.said["observations"] if o["action"] == "refused"), "")

    @property
    def verdict(self) -> str:
        """``agrees``, ``cannot tell``, ``oracles`` where these disagree, or ``disagrees``."""
        outcome = self.said["outcome"]
        if outcome == "cannot_tell":
            return "cannot tell"
        if self.asked.is_balanced or self.arrives == bool(self.refused_by):
            return "oracles"
        told = "" if outcome == "delivered" else self.by if outcome == "refused" else outcome
        return "agrees" if told == self.refused_by else "disagrees"

    def __str__(self) -> str:
        did = "arrives" if self.arrives else "does not arrive"
        traced = f"refused by {self.refused_by}" if self.refused_by else "delivered"
        told = f"{self.said['outcome']}, by {self.by!r}: {self.said['text']}"
        return f"{self.asked}: packet {did}; ovn-trace: {traced}; diagnosis: {told}"


def compare(lab: Lab, questions: Sequence[Question]) -> list[Compared]:
    """Put all questions to packets, to ovn-trace, and to the analyzer."""
    listed = ("--format=json", "--columns=_uuid,external_ids", "list", "Logical_Flow")
    acls = ("--format=json", "--columns=_uuid,name,match", "list", "ACL")
    names = Names(
        oracle.table(lab.run("ovn", "ovn-sbctl", *listed)),
        oracle.table(lab.run("ovn", "ovn-nbctl", *acls)),
    )
    with ThreadPoolExecutor(max_workers=8) as pool:
        there = list(pool.map(arrives, questions))
    with ThreadPoolExecutor(max_workers=2) as pool:
        refused = list(pool.map(lambda asked: traced(lab, names, asked), questions))
    for n, asked in enumerate(questions):
        # Packets that are let through may be late on a busy machine, those that are not never come.
        there[n] = there[n] or (not refused[n] and any(arrives(asked) for _ in range(TRIES)))
    said = by_analyzer(lab, questions) if WHOLE else Tables(lab).diagnosed(questions)
    return [Compared(*each) for each in zip(questions, there, refused, said, strict=True)]


def print_counts(what: str, found: Sequence[Compared]) -> None:
    """Print what came of it, and each case that is not plain."""
    counts = Counter(each.verdict for each in found)
    ends = Counter(each.said["outcome"] for each in found)
    policies = Counter(each.by for each in found if each.by)
    print(f"\n{what}: {len(found)} questions, {dict(counts)}; said: {dict(ends)}")
    print(f"  refused by: {dict(policies.most_common())}")
    for each in found:
        if each.verdict != "agrees":
            print(f"  {each.verdict}: {each}")


# --- tests ----------------------------------------------------------------------------------------


def test_every_ping_ends_as_it_is_said_to(lab: Lab, request: pytest.FixtureRequest) -> None:
    found = compare(lab, oracle.pings())
    print_counts(f"{request.node.callspec.id}, every ping", found)
    assert {each.verdict for each in found} == {"agrees"}


def test_random_questions_are_answered_as_packets_and_ovn_trace_have_it(
    lab: Lab, request: pytest.FixtureRequest
) -> None:
    found = compare(lab, oracle.draw(PAIRS, SEED))
    print_counts(f"{request.node.callspec.id}, seed {SEED}", found)
    assert [each for each in found if each.verdict in {"disagrees", "oracles"}] == []
    unsure = [each for each in found if each.verdict == "cannot tell"]
    assert all(each.asked.is_balanced for each in unsure), "only a hash is not known"
