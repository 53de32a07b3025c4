# SPDX-License-Identifier: Apache-2.0
import asyncio

from netagent.agent.membership import ACTIVATE_S
from netagent.host.facts import HostView, Namespace
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList
from netagent.wire.messages import Announcement, Peer, Registered

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


def test_a_finding_that_lasts_is_held_for_every_window(membership, tmp_path):
    membership.on_view(unopenable(A, tmp_path))
    assert len(membership.take_held()) == len(membership.take_held()) == 1


def test_who_leaves_registers_without_endpoints_and_says_so_to_its_peers(
    adapters, membership, monkeypatch
):
    said, registered, peers = [], asyncio.Event(), (Peer(host="h1", rpc_url="http://127.0.0.1:2"),)

    async def register(_self, registration):
        said.append(registration)
        return Registered(pinglist=PingList(0), peers=peers)

    def announce(_self, _announcement, _peers):
        registered.set()

    async def tell(_self, announcement, told, tries):
        said.append((announcement.generation, announcement.endpoints, told, tries))

    monkeypatch.setattr(type(adapters.uplink), "register", register)
    monkeypatch.setattr(type(adapters.announcer), "announce", announce)
    monkeypatch.setattr(type(adapters.announcer), "tell", tell)
    membership.on_view(HostView(endpoints=(endpoint(A),), complete=True))

    async def come_and_go():
        coming = asyncio.create_task(membership.register())
        await asyncio.wait_for(registered.wait(), 10)
        coming.cancel()
        await asyncio.wait({coming})
        await membership.leave()

    asyncio.run(come_and_go())
    first, *_, last, told = said
    assert [each.id for each in first.endpoints] == [A]
    assert (last.endpoints, last.generation) == ((), first.generation + 1)
    assert told == (last.generation, (), peers, 1)


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
