# SPDX-License-Identifier: Apache-2.0
"""A host without a virtual switch, on the kernel: what is declared is found in its namespace."""

import asyncio
import json
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.host.watcher import Watcher
from netagent.adapters.probes.loop import ProbeLoop
from netagent.adapters.probes.opener import TransportOpener
from netagent.adapters.probes.udp_transport import Answering
from netagent.collect.windows import WindowTally
from netagent.config import AgentConfig, AnalyzerConfig, EndpointsConfig, OvsConfig, ProbeConfig
from netagent.host.discovery import GRACE_NS
from netagent.host.facts import HostView
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.wire.messages import ProbeAnswer
from tests.conftest import NETNS, require
from tests.waiting import wait_until

pytestmark = pytest.mark.netns

A0, A1, B0 = EndpointId("a", 0), EndpointId("a", 1), EndpointId("b", 0)
SOON_S = 3.0
"""Seconds within which a declaration counts. Chosen: the folder is looked at twice a second."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Bare:
    """A host with two RNICs, a container's namespace, and a Watcher at work."""

    def __init__(self, folder: Path) -> None:
        tag = secrets.token_hex(3)
        self.host, self.inside, self.other = (f"na-{tag}-{which}" for which in "hab")
        self.folder = folder
        self.latest = HostView()
        for name in self.namespaces:
            ip("netns", "add", name)
        for rail in (0, 1):  # veths stand for RNICs: this kernel need not have dummies
            self.ip("link", "add", f"rnic{rail}", "type", "veth", "peer", f"cable{rail}")
            self.ip("link", "set", f"rnic{rail}", "up")
            self.ip("link", "set", f"cable{rail}", "up")

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self.host, self.inside, self.other

    def ip(self, *words: str) -> None:
        ip("-n", self.host, *words)

    def give(self, kind: str, rail: int, address: str, inside: str = "") -> None:
        """Give a container a device of that kind on the RNIC of a rail; skip without such."""
        if not has(kind):
            pytest.skip(f"this kernel has no {kind.partition(' ')[0]}")
        name = f"net{rail}"
        self.ip("link", "add", name, "link", f"rnic{rail}", "type", *kind.split())
        self.move(name, address, inside)

    def move(self, device: str, address: str, inside: str = "") -> None:
        """Move a device into a container."""
        inside = inside or self.inside
        self.ip("link", "set", device, "netns", inside)
        ip("-n", inside, "addr", "add", f"{address}/24", "dev", device)
        ip("-n", inside, "link", "set", device, "up")

    def declare(self, rails: dict[int, str], *, netns: str = "", name: str = "a", **more) -> None:
        """Put a file into the folder, whole."""
        path = netns or f"/run/netns/{self.inside}"
        said = {"container": name, "task": "train", "netns": path, "rails": rails, **more}
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(said))
        new.rename(self.folder / f"{name}.json")

    def within(self, seconds: float, what: str, condition: Callable[[HostView], object]) -> None:
        try:
            wait_until(lambda: condition(self.latest), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {self.latest}") from None

    def endpoint(self, key: EndpointId = A0) -> Endpoint | None:
        return next((each for each in self.latest.endpoints if each.id == key), None)

    def watch(self, running: threading.Event, stopping: list[Callable[[], None]]) -> None:
        config = AgentConfig(
            host="h0",
            analyzer=AnalyzerConfig(url="http://127.0.0.1:1"),
            ovs=OvsConfig(integration_bridge=""),
            endpoints=EndpointsConfig(folder=str(self.folder)),
        )

        def keep(view: HostView) -> None:
            self.latest = view

        async def main() -> None:
            work = asyncio.create_task(Watcher(config).run(keep))
            loop = asyncio.get_running_loop()
            stopping.append(lambda: loop.call_soon_threadsafe(work.cancel) and None)
            running.set()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()

        call_in_namespace(f"/run/netns/{self.host}", lambda: asyncio.run(main()))


@pytest.fixture
def bare(tmp_path) -> Iterator[Bare]:
    require(NETNS)
    folder = tmp_path / "endpoints"
    folder.mkdir(mode=0o755)
    made = Bare(folder)
    running, stopping = threading.Event(), list[Callable[[], None]]()
    thread = threading.Thread(target=made.watch, args=(running, stopping))
    thread.start()
    try:
        assert running.wait(5)
        made.within(5, "a first view", lambda view: view.complete)
        assert made.latest.findings == ()
        yield made
    finally:
        for stop in stopping:
            stop()
        thread.join(5)
        for name in made.namespaces:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@cache
def has(kind: str) -> bool:
    """Whether the kernel has devices of a kind, as tried in a namespace that is thrown away."""
    name = f"na-{secrets.token_hex(3)}-k"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "v1")
        ip("-n", name, "link", "add", "x0", "link", "v0", "type", *kind.split())
    except subprocess.CalledProcessError:
        return False
    finally:
        ip("netns", "del", name)
    return True


@pytest.mark.parametrize(
    "kind", ["macvlan mode bridge", pytest.param("ipvlan mode l2", marks=pytest.mark.kernel)]
)
def test_a_device_on_an_rnic_is_found_with_its_address_and_its_rnic(bare, kind):
    bare.give(kind, 0, "10.1.0.1")
    bare.give(kind, 1, "10.1.1.1")
    bare.declare({0: "net0", 1: "net1"})
    bare.within(SOON_S, "both", lambda view: len(view.endpoints) == 2)
    endpoint = bare.endpoint(A1)
    assert (endpoint.task, endpoint.bridge, endpoint.port) == ("train", "", "net1")
    assert (endpoint.address, endpoint.underlay, endpoint.rnic) == ("10.1.1.1", "10.1.1.1", "rnic1")
    assert endpoint.mac.count(":") == 5
    assert bare.latest.namespaces[A1].path == f"/run/netns/{bare.inside}"
    assert bare.latest.rnics == ("rnic0", "rnic1")
    assert bare.latest.findings == ()
    # What is heard of it by events, too, and not by a dump, is still on the same RNIC.
    ip("-n", bare.inside, "link", "set", "net1", "mtu", "1300")
    bare.within(SOON_S, "the MTU", lambda _: bare.endpoint(A1).mtu == 1300)
    assert bare.endpoint(A1).rnic == "rnic1"
    ip("-n", bare.inside, "link", "set", "net0", "down")
    bare.within(
        GRACE_NS / 1e9 + SOON_S, "the finding",
        lambda view: [each.kind for each in view.findings] == [FindingKind.ENDPOINT_DOWN],
    )  # fmt: skip
    (finding,) = bare.latest.findings
    assert finding.text == "a/rail0 on interface net0: net0 is down in the container"


def test_a_device_that_was_moved_whole_is_found_and_blames_no_other(bare):
    bare.declare({0: "rnic0"})
    bare.move("rnic0", "10.1.0.1")
    bare.within(SOON_S, "the endpoint", lambda _: bare.endpoint())
    endpoint = bare.endpoint()
    assert (endpoint.address, endpoint.rnic) == ("10.1.0.1", "a:rnic0")
    bare.ip("link", "set", "cable0", "down")
    bare.within(
        GRACE_NS / 1e9 + SOON_S, "the finding",
        lambda view: [each.text for each in view.findings]
        == ["a/rail0 on interface rnic0: rnic0 has no carrier"],
    )  # fmt: skip


def test_an_rnic_that_is_down_is_a_finding_of_the_rnic(bare):
    bare.give("macvlan mode bridge", 0, "10.1.0.1")
    bare.declare({0: "net0"})
    bare.within(SOON_S, "the endpoint", lambda _: bare.endpoint())
    bare.ip("link", "set", "cable0", "down")
    bare.within(SOON_S, "the finding", lambda view: view.findings)
    assert [str(each.component) for each in bare.latest.findings] == ["rnic h0/rnic0"]
    assert bare.endpoint() is not None


def test_a_file_that_goes_is_a_stop_and_a_namespace_that_goes_a_crash(bare):
    bare.give("macvlan mode bridge", 0, "10.1.0.1")
    bare.declare({0: "net0"})
    bare.within(SOON_S, "the endpoint", lambda _: bare.endpoint())
    (bare.folder / "a.json").rename(bare.folder / "a.away")
    bare.within(SOON_S, "its end", lambda view: not view.endpoints)
    assert bare.latest.findings == ()
    (bare.folder / "a.away").rename(bare.folder / "a.json")
    bare.within(SOON_S, "the endpoint", lambda _: bare.endpoint())
    ip("netns", "del", bare.inside)
    bare.within(
        GRACE_NS / 1e9 + SOON_S, "the crash",
        lambda _: bare.endpoint().state is EndpointState.CRASHED,
    )  # fmt: skip
    assert [each.kind for each in bare.latest.findings] == [FindingKind.CONTAINER_CRASHED]


def test_a_container_may_be_in_the_hosts_own_namespace(bare):
    bare.declare({1: "rnic1"}, netns=f"/run/netns/{bare.host}")
    bare.ip("addr", "add", "10.1.1.9/24", "dev", "rnic1")
    bare.within(SOON_S, "the endpoint", lambda _: bare.endpoint(A1))
    endpoint = bare.endpoint(A1)
    assert (endpoint.address, endpoint.rnic) == ("10.1.1.9", "rnic1")
    bare.ip("link", "set", "rnic1", "mtu", "1400")
    bare.within(SOON_S, "the MTU", lambda _: bare.endpoint(A1).mtu == 1400)


def test_a_file_that_is_odd_is_a_finding_with_its_name(bare):
    bare.declare({0: "net0"}, pod="x")
    bare.within(SOON_S, "the finding", lambda view: view.findings)
    (finding,) = bare.latest.findings
    assert "file a.json: Object contains unknown field `pod`" in finding.text
    (bare.folder / "a.json").chmod(0o666)
    bare.within(SOON_S, "another reason", lambda view: "may write it" in view.findings[0].text)


def test_endpoints_without_a_port_probe_each_other_from_within(bare):
    for name, inside, octet in (("a", bare.inside, 1), ("b", bare.other, 2)):
        bare.give("macvlan mode bridge", 0, f"10.1.0.{octet}", inside)
        bare.declare({0: "net0"}, netns=f"/run/netns/{inside}", name=name)
    bare.within(SOON_S, "both", lambda view: len(view.endpoints) == 2)
    ends = {each.id: each for each in bare.latest.endpoints}
    target = Target(A0, B0, ends[B0].address, ends[B0].underlay)
    config = ProbeConfig()
    transports = TransportOpener(config, Answering(config.rate_per_host), None)
    with closing(ProbeLoop(config, WindowTally(large_class=2), transports)) as probes:
        transports.place(bare.latest.namespaces)
        assert probes.set_endpoints(bare.latest.endpoints) == []
        probes.set_pinglist(PingList(1, (target,)))
        collect = probes.begin_burst(target, 3)
        answers: list[ProbeAnswer] = []

        def answered() -> bool:
            probes.step()
            answers.extend(collect() or ())
            return bool(answers)

        wait_until(answered, "three answers")
    assert {each.outcome for each in answers} == {"replied"}
