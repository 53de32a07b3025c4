# SPDX-License-Identifier: Apache-2.0
import asyncio
from types import SimpleNamespace

from analyzer.intent.differences.contract import FRESH_NS
from analyzer.intent.differences.lasting import YOUNG_NS
from analyzer.replay import records
from analyzer.roster.driven import DrivenHosts
from analyzer.roster.registry import Registry
from analyzer.server import differing as room
from analyzer.server.differing import STEP_S, Differing
from netagent.model.finding import FindingKind
from netagent.wire.controller import Working
from netagent.wire.messages import Registration
from tests.analyzer.intent.differences.clusters import Cluster
from tests.waiting import until

STEP_NS = round(STEP_S * 1e9)


class Followed:
    """A cluster of which hosts say something only when it changed."""

    def __init__(self):
        self.cluster, self.registry, self.driven = Cluster(ports=2), Registry(), DrivenHosts()
        self.now_ns, self.said, self.given = 10**18, {}, []
        self.controller = SimpleNamespace(intents=(self.cluster.intent(),))
        for host in self.cluster.host.values():
            mine = tuple(e for e in self.cluster.endpoints() if e.host == host.name)
            self.registry.apply(
                Registration(
                    host=host.name, instance="i", generation=1, rpc_url="", endpoints=mine
                ),
                self.now_ns,
            )
        self.differing = Differing(
            lambda: {"ovn": self.controller.intents},
            self.driven,
            self.registry,
            self.given.append,
            lambda: self.now_ns,
        )

    def look(self, steps, *, silent=()):
        for _ in range(steps):
            self.now_ns += STEP_NS
            self.cluster.settle()
            self.controller.intents = (self.cluster.intent(),)
            for host in self.cluster.host.values():
                if host.name in silent:
                    continue
                state = self.cluster.state(host)
                self.registry.heard(host.name, self.now_ns, self.now_ns)
                if self.said.get(host.name) != state:
                    self.said[host.name] = state
                    self.driven.take(host.name, self.now_ns, state, self.now_ns)
            asyncio.run(self.differing.step())
        return [(f.finding.kind, f.finding.component.name) for f in self.differing.standing or ()]


def test_what_a_host_said_holds_while_its_summaries_come():
    """It says it when it changes; the rest of the minute it is no older for that."""
    followed = Followed()
    assert followed.look(30) == []
    assert STEP_NS * 30 > 2 * FRESH_NS
    followed.cluster.host["h1"].working = Working.CUT_OFF
    assert followed.look(30) == [(FindingKind.CONTROLLER_STALE, "h1")]
    young, begun, soon, told = followed.given
    assert isinstance(told, records.Differed)
    assert [each.is_young for each in followed.given] == [True, False, False, False]
    assert young.differences == begun.differences == ()
    assert [each.lasts for each in soon.differences] == [False]
    assert told.differences == followed.differing.standing


def test_a_host_that_falls_silent_is_not_accused():
    followed = Followed()
    followed.look(30)
    followed.cluster.host["h1"].working = Working.CUT_OFF
    followed.look(1)
    assert followed.look(30, silent={"h1"}) == []


def test_which_ports_are_plugged_in_is_what_hosts_say():
    followed = Followed()
    followed.look(1)
    told = followed.differing.plugged()
    assert {name for ports in told.values() for name in ports.values()} == {
        each.name for each in followed.cluster.plugs.values()
    }


def test_news_are_looked_at_at_once(monkeypatch):
    monkeypatch.setattr(room, "STEP_S", 3600)
    followed = Followed()
    followed.look(1)
    followed.now_ns += 2 * YOUNG_NS

    async def work():
        looking = asyncio.create_task(followed.differing.run())
        followed.differing.news()
        await until(lambda: followed.given)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(work())
    assert [type(each) for each in followed.given] == [records.Differed]
