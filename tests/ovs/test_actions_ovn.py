# SPDX-License-Identifier: Apache-2.0
"""What may be done about a verdict, on a lab that OVN drives: it heals, within its limits."""

import json
import shlex
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from analyzer.actions.broker import CONFIRM_NS
from tests.lab import Lab, Shape, cms, config
from tests.lab.certs import ADMIN, ANALYZER
from tests.lab.commands import wait_for
from tests.lab.demo import Observer
from tests.lab.ovn import Ovn, controller
from tests.lab.ovs import external_ids
from tests.lab.services import ANALYZER as ANALYZER_PROCESS
from tests.lab.shape import NORTHBOUND, Controller, Tunnel
from tests.lab.workload import container_of
from tests.waiting import NotInTime, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn]

SHAPE = Shape(hosts=3, segments=1, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
TARGET = "train-a-1/rail0"
ENDPOINT = container_of("train-a-1").endpoint(0)
NAME = cms.port(ENDPOINT)
DO_WITHIN_S = 90.0
"""Seconds from a fault until something is done about it: named, confirmed, and `CONFIRM_NS`."""
LASTING_S = 240.0
"""The same of what is told only once it has lasted."""
PER_HOUR = 2
"""Actions that the owner of a host permits within an hour."""
SECTION = "\n[actions]\n"


class World:
    """A lab whose owners permit actions, and who asks its analyzer."""

    def __init__(self, lab: Lab, observer: Observer) -> None:
        self.lab, self.observer, self.client = lab, observer, observer.client
        self.ovn = Ovn(lab.directory, SHAPE)
        self.said = lab.directory / "said"
        """What the operator's command was told, a line each time."""
        self.command = lab.directory / "command"
        self.answer_with(0)

    def answer_with(self, status: int) -> None:
        """Have the operator's command note what it is told, and exit with a status."""
        text = f'#!/bin/sh\necho "$@" >> {shlex.quote(str(self.said))}\nexit {status}\n'
        self.command.write_text(text)
        self.command.chmod(0o755)

    def permit(self, text: str) -> None:
        """Start the analyzer anew, with these limits and an empty trail."""
        file = self.lab.directory / "analyzer.toml"
        file.write_text(file.read_text().partition(SECTION)[0] + SECTION + text)
        self.lab.processes.kill(ANALYZER_PROCESS)
        for each in (self.lab.directory / "analyzer").glob("actions.jsonl*"):
            each.unlink()
        self.said.unlink(missing_ok=True)
        self.lab.services().start_analyzer()
        self.observer.remember()

    def told(self) -> list[str]:
        return self.said.read_text().splitlines() if self.said.exists() else []

    def trail(self) -> list[dict[str, Any]]:
        return list(self.client.get("/v1/actions").json()["entries"])

    def breaker(self) -> str | None:
        found: str | None = self.client.get("/v1/actions").json()["breaker"]
        return found

    def steps(self) -> list[str]:
        return [each["step"] for each in self.trail()]

    def entry(self, step: str) -> dict[str, Any]:
        """Return the newest entry of a step."""
        return next(each for each in reversed(self.trail()) if each["step"] == step)

    def await_step(self, step: str, text: str = "", timeout_s: float = DO_WITHIN_S) -> None:
        """Wait for an entry of a step that says something."""

        def is_there() -> bool:
            return any(e["step"] == step and text in e["text"] for e in self.trail())

        try:
            wait_until(is_there, step, timeout_s)
        except NotInTime:
            known = [
                (e["component"], e["state"], e["unobserved_ns"]) for e in self.observer.incidents()
            ]
            pytest.fail(f"no {step} {text}: {self.trail()}, {known}")

    def ask(self, what: str, **body: str) -> httpx.Response:
        return self.client.post(f"/v1/actions/{what}", json=body, timeout=60)

    def named(self, component: str, timeout_s: float = DO_WITHIN_S) -> dict[str, Any]:
        """Return the incident that names a component, once there is one."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.observer.new() if each["component"] == component]

        wait_for(f"{component} to be named", lambda: bool(found()), timeout_s=timeout_s)
        return found()[-1]

    def offer(self, incident: dict[str, Any]) -> dict[str, Any]:
        """Return the one thing that could be done, as a dry run says it."""
        answer = self.ask("dry-run", incident=incident["id"])
        (action,) = answer.json()["actions"]
        return dict(action)

    def flows(self, host: str) -> list[str]:
        bridge = f"unix:{self.lab.directory}/{host}/br-int.mgmt"
        words = ("ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", bridge)
        return sorted(
            each for each in self.lab.run(host, *words).splitlines() if "actions=" in each
        )

    def protocols(self, host: str) -> str:
        return self.lab.run(host, "ovs-vsctl", "get", "Bridge", "br-int", "protocols")

    def recomputed(self, host: int) -> int:
        """Return how often a host's instance computed its flows anew."""
        said = self.ovn.appctl(controller(host), "inc-engine/show-stats")
        return int(said.partition("Node: logical_flow_output\n- recompute:")[2].split()[0])

    def is_whole(self) -> bool:
        return all(self.lab.reaches(each, "10.0.0.11", timeout_s=0.2) == 3
                   for each in ("train-a-0", "train-a-2"))  # fmt: skip

    @contextmanager
    def broken(self, fault: str, target: str) -> Iterator[Callable[[], None]]:
        """Break something; yield what heals it before the end."""
        made, healed = self.lab.inject(fault, target), False

        def heal() -> None:
            nonlocal healed
            if not healed:
                healed = True
                self.lab.heal(made.key)

        try:
            yield heal
        finally:
            heal()
            wait_for("the end of all incidents", self._is_over, timeout_s=90)

    def _is_over(self) -> bool:
        return all(each["state"] == "recovered" for each in self.observer.incidents())


@pytest.fixture(scope="module")
def world(lab: Lab, observer: Observer) -> World:
    for host in range(SHAPE.hosts):
        file = lab.directory / f"h{host}" / "agent.toml"
        allowed = f'allow = ["recompute", "reinstall"]\nper_hour = {PER_HOUR}\n'
        file.write_text(file.read_text() + SECTION + allowed)
        lab.restart("agent", f"h{host}")
    return World(lab, observer)


def limits(world: World, *, share: float = 1.0, per_hour: int = 10, ports: str = "") -> str:
    command = json.dumps([str(world.command)])
    return (
        'mode = "act"\nverbs = ["recompute", "reinstall", "cordon"]\n'
        f"cordon_command = {command}\nshare = {share}\nper_hour = {per_hour}\n{ports}\n"
    )


def of_agent(world: World, host: int, party: str) -> httpx.Client:
    """Return a client of a host's agent, by the name of a party."""
    certificates = world.lab.services().certificates
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(str(certificates.cert(party)), str(certificates.key(party)))
    return httpx.Client(base_url=config.agent_url(host), verify=context, timeout=60)


def log_of(world: World, host: str, event: str) -> list[str]:
    text = Path(world.lab.directory, host, "agent.log").read_text()
    return [line for line in text.splitlines() if event in line]


# --- one host ----------------------------------------------------------------------------------


def test_a_host_computes_anew_once_for_each_id_and_seldom(world: World) -> None:
    def asked(client: httpx.Client, name: str, *, dry_run: bool = False) -> httpx.Response:
        body = {"id": name, "verb": "recompute", "bridge": "br-int", "dry_run": dry_run}
        return client.post("/v1/actions", json=body)

    with of_agent(world, 2, ADMIN) as stranger:
        assert asked(stranger, "a0").status_code == 403
    with of_agent(world, 2, ANALYZER) as client:
        before = world.recomputed(2)
        look = asked(client, "a1", dry_run=True).json()
        assert (look["done"], look["refused"]) == (False, "")
        assert world.recomputed(2) == before
        assert asked(client, "a1").json()["done"]
        wait_for("it", lambda: world.recomputed(2) > before, timeout_s=10)
        once = world.recomputed(2)
        assert asked(client, "a1").json()["done"]
        assert world.recomputed(2) == once
        world.lab.restart("agent", "h2")
    with of_agent(world, 2, ANALYZER) as client:
        assert asked(client, "a2").json()["done"]
        third = asked(client, "a3")
        assert not third.is_success
        assert "2 actions within an hour" in third.text
    assert len(log_of(world, "h2", "action_begun")) == len(log_of(world, "h2", "action_ended")) == 2
    (refused,) = (each for each in log_of(world, "h2", "action_refused") if "a3" in each)
    assert "per_hour" in refused


# --- by itself ---------------------------------------------------------------------------------


def test_lost_flows_are_installed_anew_and_one_host_is_all_that_may_be_touched(
    world: World,
) -> None:
    world.permit(limits(world, share=0.34))
    whole, protocols = world.flows("h0"), world.protocols("h0")
    with world.broken("flow-lost", "h0/train-a-1/rail0"):
        lacking = world.flows("h0")
        assert len(lacking) == len(whole) - 1
        incident = world.named("flow h0/br-int/table=33")
        offer = world.offer(incident)
        assert (offer["verb"], offer["host"], offer["problem"]) == ("reinstall", "h0", "")
        assert (world.flows("h0"), world.protocols("h0"), world.steps()) == (lacking, protocols, [])
        world.await_step("helped")
        assert world.flows("h0") == whole
        assert world.protocols("h0") == protocols
        assert world.steps() == ["started", "done", "helped"]
        assert world.is_whole()
    started = world.entry("started")
    assert started["wall_ns"] - incident["detected_ns"] >= CONFIRM_NS
    assert started["action"]["id"] == offer["id"]
    assert len(log_of(world, "h0", "action_begun")) == 1
    undo = world.ask("undo", id=offer["id"])
    assert undo.status_code == 409
    assert "nothing to undo" in undo.text
    with world.broken("flow-lost", "h1/train-a-0/rail0"):
        offer = world.offer(world.named("flow h1/br-int/table=33"))
        lacking = world.flows("h1")
        world.await_step("held", "1 of 3 hosts in the last hour")
        assert world.ask("do", id=offer["id"]).status_code == 409
        assert world.flows("h1") == lacking
    assert not log_of(world, "h1", "action_begun")


def test_a_host_is_cordoned_and_uncordoned_by_the_operators_command(world: World) -> None:
    world.permit(limits(world))
    with world.broken("rnic-down", "h1/rnic0") as heal:
        incident = world.named("rnic h1/rnic0")
        offer = world.offer(incident)
        assert offer["command"] == f"{world.command} cordon h1"
        assert (world.told(), world.steps()) == ([], [])
        world.await_step("done")
        assert world.told() == ["cordon h1"]
        assert world.entry("started")["wall_ns"] - incident["detected_ns"] >= CONFIRM_NS
        heal()
        world.await_step("helped")
    assert world.told() == ["cordon h1"]
    assert world.ask("undo", id=offer["id"]).is_success
    assert world.told() == ["cordon h1", "uncordon h1"]
    assert world.ask("undo", id=offer["id"]).status_code == 409
    assert world.steps() == ["started", "done", "helped", "undone"]
    assert world.entry("undone")["by"] == ADMIN


def test_what_fails_opens_the_breaker_and_a_person_closes_it(world: World) -> None:
    world.answer_with(3)
    world.permit(limits(world, per_hour=2))
    with world.broken("rnic-down", "h2/rnic0"):
        world.await_step("opened")
        assert "exit status 3" in world.entry("failed")["text"]
    world.lab.restart("analyzer")
    assert "cordon on h2 failed" in (world.breaker() or "")
    whole = world.flows("h1")
    with world.broken("flow-lost", "h1/train-a-0/rail0"):
        offer = world.offer(world.named("flow h1/br-int/table=33"))
        world.await_step("held", "the breaker is open")
        assert world.flows("h1") != whole
        assert world.ask("do", id=offer["id"]).is_success
        world.await_step("helped")
        assert world.flows("h1") == whole
        assert world.ask("do", id=offer["id"]).status_code == 409
    assert [each["by"] for each in world.trail() if each["step"] == "started"] == [
        "netagent", ADMIN
    ]  # fmt: skip
    assert world.ask("close", why="the token was old").is_success
    assert world.breaker() is None
    world.answer_with(0)
    with world.broken("rnic-down", "h1/rnic1"):
        world.await_step("held", "2 actions in the last hour, 2 at most")
    assert world.told() == ["cordon h2"]


def test_an_instance_that_installs_nothing_is_told_to_compute_anew(world: World) -> None:
    """`debug/pause` keeps it from that, though it is connected; a recompute alone heals nothing."""
    world.permit(limits(world))
    before = world.recomputed(0)
    world.ovn.appctl(controller(0), "debug/pause")
    try:
        world.ovn.ask()
        offer = world.offer(world.named("controller h0", LASTING_S))
        assert (offer["verb"], offer["problem"]) == ("recompute", "")
        assert world.recomputed(0) == before
        world.await_step("done")
        assert world.steps() == ["started", "done"]
    finally:
        world.ovn.appctl(controller(0), "debug/resume")
    wait_for("it", lambda: world.recomputed(0) > before, timeout_s=10)
    world.await_step("helped")
    assert world.breaker() is None


# --- ports -------------------------------------------------------------------------------------


def test_a_port_is_disabled_through_its_owner_by_a_person_alone(world: World) -> None:
    world.permit(limits(world, ports=f"port_command = {json.dumps([str(world.command)])}"))
    with world.broken("port-contested", TARGET) as heal:
        offer = world.offer(world.named(f"controller port {NAME}", LASTING_S))
        assert offer["command"] == f"{world.command} disable {NAME}"
        world.await_step("advised")
        assert world.told() == []
        assert world.ask("do", id=offer["id"]).is_success
        assert world.told() == [f"disable {NAME}"]
        heal()
    assert world.ask("undo", id=offer["id"]).is_success
    assert world.told() == [f"disable {NAME}", f"enable {NAME}"]
    assert world.steps()[:3] == ["advised", "started", "done"]
    assert world.steps()[-1] == "undone"


def test_a_port_of_a_pod_is_refused_and_one_of_nobody_is_disabled_until_undone(
    world: World,
) -> None:
    def enabled() -> str:
        return world.ovn.nbctl("--bare", "get", "Logical_Switch_Port", NAME, "enabled").strip()

    ports = f'northbound = {{ remotes = ["{NORTHBOUND}"] }}'
    ids = external_ids(cms.port_ids(ENDPOINT))
    world.permit(limits(world, ports=ports))
    with world.broken("port-contested", TARGET):
        offer = world.offer(world.named(f"controller port {NAME}", LASTING_S))
        assert "belongs to who wrote" in offer["problem"]
        refused = world.ask("do", id=offer["id"])
        assert refused.status_code == 409
        assert "belongs to who wrote" in refused.text
        assert enabled() == "[]"
        assert world.steps()[-1] == "refused"
        world.ovn.nbctl("clear", "Logical_Switch_Port", NAME, "external_ids")
        try:
            assert world.ask("do", id=offer["id"]).is_success
            assert enabled() == "false"
            world.ovn.sync()
            assert world.lab.reaches("train-a-0", "10.0.0.11", timeout_s=0.2) == 0
            world.ovn.nbctl("lsp-set-enabled", NAME, "enabled")
            again = world.ask("undo", id=offer["id"])
            assert "somebody enabled it since" in again.text
            assert enabled() == "true"
            world.ovn.nbctl("lsp-set-enabled", NAME, "disabled")
            assert world.ask("undo", id=offer["id"]).is_success
            assert enabled() == "[]"
        finally:
            world.ovn.nbctl("clear", "Logical_Switch_Port", NAME, "external_ids")
            world.ovn.nbctl("set", "Logical_Switch_Port", NAME, *ids)
    wait_for("all of it", world.is_whole, timeout_s=20)
    assert world.breaker() is None
