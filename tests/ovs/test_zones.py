# SPDX-License-Identifier: Apache-2.0
"""Three hosts, each with databases of OVN of its own, which the analyzer reads through agents."""

import signal
from collections.abc import Iterator

import pytest

from tests.conftest import OVN, OVS, ROOT, require
from tests.lab import Lab, Shape, cms
from tests.lab.commands import wait_for
from tests.lab.demo import SETTLE_S, SPARED_S, Observer
from tests.lab.faults import PROBE_PORT, RDMA_PORT
from tests.lab.shape import Controller, Transport, Tunnel
from tests.lab.workload import container_of
from tests.lab.zones import Zones

pytestmark = [pytest.mark.lab, pytest.mark.ovn]

SHAPE = Shape(hosts=3, rails=1, segments=1, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    for each in (ROOT, OVS, OVN):
        require(each)
    made = Lab()
    try:
        made.up(SHAPE, agents=False, traffic=None)
        Zones(made.directory, SHAPE).start(made.state().containers)
        services, settings = made.services(), made.directory / "analyzer.toml"
        central = settings.read_text()
        settings.write_text(
            central[: central.index("[controllers.ovn]")] + '[controllers.ovn]\nzones = "agents"\n'
        )
        services.start_analyzer()
        containers = made.state().containers
        for task in sorted({each.task for each in containers}):
            mine = tuple(each for each in containers if each.task == task)
            services.submit_task(task, mine)
        for host in range(SHAPE.hosts):
            services.start_agent(host)
        yield made
    finally:
        assert made.down() == []


@pytest.fixture(scope="module")
def zones(lab: Lab) -> Zones:
    return Zones(lab.directory, SHAPE)


@pytest.fixture(scope="module")
def observer(lab: Lab) -> Iterator[Observer]:
    with lab.services().client() as client:
        yield Observer(client)


def intent(observer: Observer) -> dict:
    return observer._get("intent")


def controllers(observer: Observer) -> set[str]:
    return {
        each["component"]
        for each in observer.incidents()
        if (each["component"] or "").startswith("controller")
    }


def test_the_intent_is_that_of_all_zones(lab, zones, observer):
    wanted = {
        (cms.port(each), f"h{each.container.host}")
        for each in cms.endpoints(lab.state().containers, SHAPE.rails)
    }

    def read() -> bool:
        said = intent(observer)
        return len(said["zones"]) == SHAPE.hosts and not said["away"]

    wait_for("all zones", read, timeout_s=60)
    said = intent(observer)
    assert {(each["name"], each["zone"]) for each in said["ports"]} == wanted
    assert {(each["name"], each["placement"]["chassis"]) for each in said["ports"]} == wanted
    assert [(each["name"], each["zone"]) for each in said["chassis"]] == [
        (f"h{host}", f"h{host}") for host in range(SHAPE.hosts)
    ]
    for host in range(SHAPE.hosts):
        listed = zones.sbctl(host, "--bare", "--columns=name", "list", "Chassis").split()
        assert sorted(listed) == ["h0", "h1", "h2"]


def test_nobody_is_named(lab, observer):
    expected = len(cms.endpoints(lab.state().containers, SHAPE.rails))
    wait_for("all endpoints", lambda: observer.endpoints_up() == expected, timeout_s=60)
    assert observer.wait(observer.new, timeout_s=SETTLE_S[Transport.UDP]) == []


def test_what_a_look_costs_that_finds_nothing_new(observer):
    def idle() -> bool:
        counts = observer.status()["controller"]["zones"]
        return counts["unchanged"] >= 3

    wait_for("looks that find nothing", idle, timeout_s=60)
    print(observer.status()["controller"]["zones"])


def test_what_a_policy_of_a_zone_refuses_is_no_fault_and_known_by_that_zone(lab, zones, observer):
    observer.remember()
    target = container_of("train-a-1").endpoint(0)
    match = f'outport == "{cms.port(target)}" && udp.dst == {{{RDMA_PORT}, {PROBE_PORT}}}'
    policy = (cms.switch(target), "to-lport", "1002", match)
    zones.nbctl(1, "--name=quarantine", "acl-add", *policy, "drop")
    try:
        observer.wait(observer.new, timeout_s=SPARED_S)
        # Nobody is named; that nobody can tell is said where a busy host does not answer in time.
        assert [each["component"] for each in observer.new() if each["component"]] == []
        question = {"source": "train-a-0/rail0", "target": "train-a-1/rail0"}
        told: dict = {}

        def is_told() -> bool:  # hosts that are busy do not answer in time
            told.update(observer.client.post("/v1/diagnose", json=question, timeout=30).json())
            return told["outcome"] != "cannot_tell"

        wait_for("a diagnosis", is_told, timeout_s=90)
    finally:
        zones.nbctl(1, "acl-del", *policy)
    assert told["outcome"] == "refused", told["text"]
    assert {each["by"] for each in told["observations"]} - {""} == {"ACL quarantine"}


def test_a_northd_that_stands_still_is_that_of_its_host(lab, zones, observer):
    lab.processes.signal(zones.northd(1), signal.SIGSTOP)
    try:
        for host in range(SHAPE.hosts):
            zones.ask(host)
        wait_for("an incident", lambda: controllers(observer), timeout_s=150)
        assert controllers(observer) == {"controller northd h1"}
        ladders = {each["zone"]: each["ladder"] for each in intent(observer)["zones"]}
        behind = {h for h, each in ladders.items() if each["translated"] < each["asked"]}
        assert behind == {"h1"}
    finally:
        lab.processes.signal(zones.northd(1), signal.SIGCONT)


def test_a_zone_that_sends_to_where_another_host_is_not_is_named(lab, zones, observer):
    """Its tunnel leads nowhere, which others may tell sooner."""
    known = zones.sbctl(0, "--bare", "--columns=_uuid", "find", "Encap", "chassis_name=h2").split()
    before = zones.sbctl(0, "get", "Encap", known[0], "ip").strip()
    zones.sbctl(0, "set", "Encap", known[0], 'ip="172.30.0.99"')
    try:
        wait_for(
            "an incident", lambda: "controller zone h0" in controllers(observer), timeout_s=240
        )
        assert controllers(observer) == {"controller northd h1", "controller zone h0"}
    finally:
        zones.sbctl(0, "set", "Encap", known[0], f"ip={before}")


def test_a_zone_whose_agent_is_gone_is_away_and_nobody_else(lab, observer):
    observer.remember()
    before = controllers(observer)
    lab.processes.kill("h2/agent")
    wait_for("its zone to be away", lambda: intent(observer)["away"], timeout_s=60)
    assert set(intent(observer)["away"]) == {"h2"}
    wait_for("it to be told", observer.new, timeout_s=90)
    fresh = [each for each in observer.new() if (each["component"] or "") not in before]
    assert {each["component"] for each in fresh} <= {"agent h2", "host h2"}
    assert controllers(observer) == before
    lab.services().start_agent(2)
    wait_for("its zone", lambda: not intent(observer)["away"], timeout_s=90)
