# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from netagent.agent.membership import ACTIVATE_S, RETRY_S
from netagent.host.facts import HostView, Namespace, Uplink
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.wire.codec import encode
from netagent.wire.messages import Announcement, Peer, Registered
from netagent.wire.roster import Source, TaskChange, Update, named

A, B = EndpointId("a", 0), EndpointId("b", 0)


def endpoint(key, host="h0"):
    return Endpoint(key, "t", host, "10.0.0.1", "", "172.30.0.1", "rnic0", "br-int", "p")


def unopenable(key, folder):
    """Return a host with an endpoint whose namespace is gone."""
    namespaces = {key: Namespace(str(folder / "gone"), 1)}
    return HostView(endpoints=(endpoint(key),), namespaces=namespaces, complete=True)


def test_what_cannot_be_opened_is_a_finding_and_nobody_probes_it(membership, tmp_path):
    membership.on_view(unopenable(A, tmp_path))
    assert membership.complete
    assert membership.endpoints() == ()
    (found,) = membership.findings()
    assert found.component.name == str(A)


def test_a_finding_that_came_and_went_within_a_window_is_held_for_it(membership, tmp_path):
    membership.on_view(unopenable(A, tmp_path))
    membership.on_view(HostView(complete=True))
    assert membership.findings() == ()
    assert [f.component.name for f in membership.take_held()] == [str(A)]
    assert list(membership.take_held()) == []


@pytest.mark.parametrize("what", [{}, {"port": "vxlan0"}])
def test_of_several_bad_files_or_addresses_of_one_tunnel_each_is_held(membership, what):
    component = Component(Kind.HOST, "h0")
    bad = tuple(
        Finding(FindingKind.UNKNOWN_INPUT, component, name, 1, {"port": name, "about": name} | what)
        for name in "ab"
    )
    membership.on_view(HostView(findings=bad, complete=True))
    assert tuple(membership.take_held()) == bad


def test_a_finding_that_lasts_is_held_for_every_window(membership, tmp_path):
    membership.on_view(unopenable(A, tmp_path))
    assert len(membership.take_held()) == len(membership.take_held()) == 1


def test_who_leaves_registers_without_endpoints_and_says_so_to_its_peers(
    adapters, membership, monkeypatch
):
    said, told, announced = [], [], asyncio.Event()
    peer, source = Peer(host="h1", rpc_url="http://127.0.0.1:2"), Source(A, "t")
    change = TaskChange(task="t", whole=True, put=encode((peer,)), containers=("a", "b"))
    news = Update(version=3, rare_share=0.1, sources=(source,), tasks=(change,))

    async def register(_self, registration):
        said.append(registration)
        return Registered(sources=named((source,)))

    async def follow(_self, asked):
        if asked.version == 0 and said:  # of a registration, the analyzer's news come after it
            return news
        await asyncio.sleep(0.01)
        return None

    def announce(_self, _announcement, peers):
        told.append(peers)
        announced.set()

    async def tell(_self, announcement, peers, tries):
        said.append((announcement.generation, announcement.endpoints, peers, tries))

    monkeypatch.setattr(type(adapters.uplink), "register", register)
    monkeypatch.setattr(type(adapters.uplink), "follow", follow)
    monkeypatch.setattr(type(adapters.announcer), "announce", announce)
    monkeypatch.setattr(type(adapters.announcer), "tell", tell)
    membership.on_view(HostView(endpoints=(endpoint(A),), complete=True))

    async def come_and_go():
        working = {
            asyncio.create_task(membership.register()),
            asyncio.create_task(membership.follow_pinglist()),
        }
        await asyncio.wait_for(announced.wait(), 60)
        for each in working:
            each.cancel()
        await asyncio.wait(working)
        await membership.leave()

    asyncio.run(come_and_go())
    first, *_, last, goodbye = said
    assert [each.id for each in first.endpoints] == [A]
    assert told[0] == (peer,)
    assert membership.pinglist.version == 3
    assert (last.endpoints, last.generation) == ((), first.generation + 1)
    assert goodbye == (last.generation, (), (peer,), 1)


def test_announcements_that_come_together_are_acted_on_once(adapters, membership, monkeypatch):
    made = []
    monkeypatch.setattr(type(membership), "_activate", lambda _: made.append(True))

    async def hear():
        for host in ("h1", "h2"):
            theirs = (endpoint(B, host),)
            said = Announcement(host=host, instance="x", generation=1, endpoints=theirs)
            assert membership.hear(said).news
        await asyncio.sleep(2 * ACTIVATE_S)

    asyncio.run(hear())
    assert made == [True]


def test_changes_without_end_are_registered_once_a_second(membership, monkeypatch):
    clock, registered = [0.0], []

    async def register_once():
        registered.append(clock[0])
        here = (endpoint(A),) if len(registered) % 2 else ()
        membership.on_view(HostView(endpoints=here, complete=True))
        if len(registered) == 50:
            raise NotImplementedError

    async def sleep(seconds):
        clock[0] += max(0.0, seconds)

    monkeypatch.setattr(membership, "_register_once", register_once)
    monkeypatch.setattr("netagent.agent.membership.now_ns", lambda: round(clock[0] * 1e9))
    monkeypatch.setattr("netagent.agent.membership.asyncio.sleep", sleep)
    membership.on_view(HostView(complete=True))
    with pytest.raises(NotImplementedError):
        asyncio.run(membership.register())
    assert registered == pytest.approx([0.0] * 30 + list(range(20)))


def test_what_changes_nothing_that_others_may_probe_is_no_news(membership):
    membership.on_view(HostView(complete=True))
    first = membership._registration().generation
    odd = Finding(FindingKind.UNKNOWN_INPUT, Component(Kind.HOST, "h0"), "eth0 has 02:...", 1)
    membership.on_view(HostView(findings=(odd,), complete=True))
    membership.on_rdma()
    assert membership._registration().generation == first
    membership.on_view(HostView(endpoints=(endpoint(A),), findings=(odd,), complete=True))
    assert membership._registration().generation == first + 1


def test_news_that_do_not_come_keep_nobody_from_announcing(adapters, membership, monkeypatch):
    told = []
    monkeypatch.setattr("netagent.agent.membership.FOLLOWED_S", 0.01)

    async def register(_self, _registration):
        return Registered(sources=99)

    monkeypatch.setattr(type(adapters.uplink), "register", register)
    monkeypatch.setattr(type(adapters.announcer), "announce", lambda _, *said: told.append(said))
    membership.on_view(HostView(endpoints=(endpoint(A),), complete=True))
    asyncio.run(membership._register_once())
    ((said, peers),) = told
    assert ([each.id for each in said.endpoints], peers) == ([A], ())


def test_an_answer_that_says_again_what_is_here_is_not_asked_for_in_haste(
    adapters, membership, monkeypatch
):
    """The two differ in what a group's digest is: of later versions one may know a field more."""
    pauses, asked = [], []
    change = TaskChange(task="t", whole=True, put=encode(()), containers=())
    news = Update(version=3, rare_share=0.1, sources=(Source(A, "t"),), tasks=(change,))

    async def follow(_self, question):
        asked.append(question.version)
        return news

    async def sleep(seconds):
        pauses.append((len(asked), seconds))

    monkeypatch.setattr(type(adapters.uplink), "follow", follow)
    monkeypatch.setattr("netagent.agent.membership.asyncio.sleep", sleep)

    async def poll():
        for _ in range(3):
            await membership._poll_pinglist()

    asyncio.run(poll())
    assert asked == [0, 3, 3]
    assert pauses == [(2, RETRY_S[1]), (3, RETRY_S[1])]


def leaving_by(*kinds):
    uplinks = (
        Uplink(n, f"rnic{n}", f"172.30.{n}.1", "br", "t", (f"rnic{n}",), encapsulation=kind)
        for n, kind in enumerate(kinds)
    )
    return HostView(uplinks=tuple(uplinks), complete=True)


def test_tunnels_are_those_of_the_uplink(membership):
    assert membership.tunnel_of("") == membership.encapsulation("172.30.0.1") == VXLAN
    membership.on_view(leaving_by(GENEVE, VXLAN))
    assert membership.encapsulation("172.30.0.1") == membership.tunnel_of("rnic0") == GENEVE
    assert membership.encapsulation("172.30.1.1") == membership.tunnel_of("rnic1") == VXLAN
    membership.on_view(leaving_by(GENEVE, GENEVE))
    assert membership.tunnel_of("") == GENEVE


def test_tunnels_that_are_not_traced_are_refused(membership):
    """Else their packets would seem to vanish where nobody counts them."""
    membership.on_view(leaving_by(GENEVE, VXLAN))
    with pytest.raises(CapabilityMissing, match="several kinds"):
        membership.tunnel_of("")
    membership.on_view(leaving_by(Encapsulation("gre", 0)))
    with pytest.raises(CapabilityMissing, match="gre"):
        membership.tunnel_of("")
