# SPDX-License-Identifier: Apache-2.0
"""The broker at work: agents and the disk are stand-ins, the clock is a number."""

import asyncio
from dataclasses import replace

import pytest
import structlog

from analyzer.actions.broker import CONFIRM_NS, HELP_NS, Limits, Mode, Step
from analyzer.actions.verbs import PortWay, Verb
from analyzer.fleet import Refused
from analyzer.roster.driven import DrivenHosts
from analyzer.server.acting import Acting, driven_bridge
from analyzer.store.trail import FILE, Trail
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon, Unreachable
from netagent.model.path import controller, rnic
from netagent.model.verdict import IncidentState
from netagent.wire.actions import ActionReply, HostVerb
from netagent.wire.controller import ControllerState
from tests.analyzer.actions.test_broker import incident
from tests.analyzer.cluster import SECOND, endpoint
from tests.waiting import until

ALL = Limits(Mode.ACT, frozenset(Verb), per_hour=100, share=1.0)
ADVISE = replace(ALL, mode=Mode.ADVISE)
DONE = ActionReply(host="h1", verb=HostVerb.RECOMPUTE, done=True)


class Agents:
    """Remembers what it is asked, and answers as it is told."""

    def __init__(self, answer=DONE):
        self.answer = answer
        self.asked = []
        self.going = asyncio.Event()
        self.going.set()

    async def act(self, host, request, *, deadline_s=50.0):
        assert deadline_s > 0
        self.asked.append((host, request))
        await self.going.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Broken:
    """A disk that refuses, until it does not."""

    def __init__(self, trail):
        self._trail, self.refuses = trail, True

    def read(self):
        return self._trail.read()

    def add(self, entries):
        if self.refuses:
            raise OSError(28, "No space left on device")
        self._trail.add(entries)


class World:
    """An acting analyzer that can be started again."""

    def __init__(self, folder, limits=ALL, answer=DONE, trail=None):
        self.agents, self.now_ns = Agents(answer), 10 * HELP_NS
        self.trail = trail or Trail(folder / FILE)
        self._limits = limits
        self._work = None

    async def __aenter__(self):
        self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    def start(self, *incidents):
        self.acting = Acting(
            self._limits, self.trail, self.agents, lambda: self.now_ns,
            bridge_of=lambda host: "br-int", hosts=lambda: 100,
        )  # fmt: skip
        self.acting.begin(incidents)
        self._work = asyncio.create_task(self.acting.run())

    async def stop(self):
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)

    async def told(self, **fields):
        """Tell of an incident that goes on for long enough."""
        self.acting.take(incident(**fields))
        self.pass_s(CONFIRM_NS // SECOND)

    def pass_s(self, seconds):
        self.now_ns += seconds * SECOND
        self.acting._wake.set()

    def steps(self):
        return [each.step for each in self.trail.read()]

    async def until_step(self, step):
        await until(lambda: step in self.steps(), step)


def on(story):
    async def main():
        async with asyncio.timeout(90):
            await story()

    asyncio.run(main())


def test_what_goes_on_is_done_once_and_helps(tmp_path):
    async def story():
        async with World(tmp_path) as world:
            await world.told()
            await world.until_step(Step.DONE)
            world.acting.take(incident(state=IncidentState.RECOVERED))
            await world.until_step(Step.HELPED)
            [(host, request)] = world.agents.asked
            assert (host, request.verb, request.bridge) == ("h1", HostVerb.RECOMPUTE, "br-int")
            assert not request.dry_run
            assert world.steps() == [Step.STARTED, Step.DONE, Step.HELPED]

    on(story)


def test_it_is_on_disk_before_it_is_asked_for(tmp_path):
    async def story():
        async with World(tmp_path) as world:
            world.agents.going.clear()
            await world.told()
            await until(lambda: world.agents.asked)
            assert world.steps() == [Step.STARTED]
            world.agents.going.set()
            await world.until_step(Step.DONE)

    on(story)


def test_after_a_kill_the_same_id_is_asked_for_again_and_no_other(tmp_path):
    async def story():
        async with World(tmp_path) as world:
            world.agents.going.clear()
            await world.told()
            await until(lambda: world.agents.asked)
            await world.stop()
            world.agents.going.set()
            world.start(incident())
            await world.until_step(Step.DONE)
            world.pass_s(60)
            world.pass_s(60)
            await asyncio.sleep(0)
            assert len({request.id for _, request in world.agents.asked}) == 1
            assert world.steps().count(Step.STARTED) == 1
            await world.stop()
            world.start(replace(incident(), state=IncidentState.RECOVERED))
            await world.until_step(Step.HELPED)

    on(story)


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        (ActionReply(host="h1", verb=HostVerb.RECOMPUTE, done=False,
                                      refused="not in actions.allow"), Step.REFUSED),
        (ActionReply(host="h1", verb=HostVerb.RECOMPUTE, done=False, problem="x"), Step.FAILED),
        (ActionReply(host="h1", verb=HostVerb.RECOMPUTE, done=False), Step.FAILED),
        (TooSoon("h1", "4 actions within an hour"), Step.REFUSED),
        (CapabilityMissing("acting", "no"), Step.REFUSED),
        (Refused("h1", 403, "may not ask"), Step.REFUSED),
        (Refused("h1", 404, "nothing at /v1/actions"), Step.REFUSED),
        (Refused("h1", 504, "no answer in time"), Step.FAILED),
        (Unreachable("h1", "refused"), Step.REFUSED),
        (Unreachable("h1", "timeout"), Step.FAILED),
        (RemoteProtocolError("h1 speaks of h2"), Step.FAILED),
    ],
)  # fmt: skip
def test_only_what_may_have_been_begun_is_a_failure(tmp_path, answer, step):
    """An owner's refusal opens no breaker; what nobody knows does."""

    async def story():
        async with World(tmp_path, answer=answer) as world:
            await world.told()
            await world.until_step(step)
            assert bool(world.acting.broker.opened) == (step is Step.FAILED)
            assert world.acting.counts["recompute", step] == 1

    on(story)


def test_where_the_trail_cannot_be_written_nothing_is_done(tmp_path):
    async def story():
        trail = Broken(Trail(tmp_path / FILE))
        async with World(tmp_path, trail=trail) as world:
            with structlog.testing.capture_logs() as logs:
                await world.told()
                await until(lambda: not world.acting.is_written)
                await until(lambda: world.acting.counts["recompute", "refused"])
            assert world.agents.asked == []
            assert [each["event"] for each in logs].count("trail_not_written") == 1
            trail.refuses = False
            world.pass_s(10)
            await until(lambda: world.acting.is_written)
            assert world.steps() == [Step.STARTED, Step.REFUSED]

    on(story)


def test_a_trail_that_cannot_be_read_is_for_a_person_to_look_at(tmp_path):
    async def story():
        (tmp_path / FILE).mkdir()
        async with World(tmp_path) as world:
            assert "cannot be read" in world.acting.broker.opened
            await world.told()
            await until(lambda: world.acting.counts["recompute", "held"])
            assert world.agents.asked == []

    on(story)


def test_a_person_does_and_undoes_what_the_hook_does(tmp_path):
    said = tmp_path / "said"
    path = tmp_path / "hook"
    path.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    path.chmod(0o755)

    async def story():
        async with World(tmp_path, replace(ADVISE, cordon=(str(path), "-q"))) as world:
            world.acting.take(incident(part=rnic("h1", "rnic0")))
            [(action, reply, problem)] = await world.acting.look("i0", "anna")
            assert (reply, problem) == (None, "")
            assert action.remedy.command == f"{path} -q cordon h1"
            assert await world.acting.do(action.id, "anna") == ""
            assert "begun before" in await world.acting.do(action.id, "anna")
            answers = await asyncio.gather(
                world.acting.undo(action.id, "bert"), world.acting.undo(action.id, "bert")
            )
            assert sorted(map(bool, answers)) == [False, True]
            assert said.read_text() == "-q cordon h1\n-q uncordon h1\n"
            assert [(e.step, e.by) for e in world.trail.read()] == [
                (Step.STARTED, "anna"), (Step.DONE, "netagent"), (Step.UNDONE, "bert")
            ]  # fmt: skip

    on(story)


def test_what_a_limit_would_hold_back_is_said_before_it_is_tried(tmp_path):
    async def story():
        async with World(tmp_path, replace(ADVISE, cordon=("/bin/true",), per_hour=1)) as world:
            for number, host in enumerate(("h1", "h2")):
                world.acting.take(incident(number=number, part=rnic(host, "rnic0")))
            [(first, _, problem)] = await world.acting.look("i0", "anna")
            assert problem == ""
            assert await world.acting.do(first.id, "anna") == ""
            [(second, _, problem)] = await world.acting.look("i1", "anna")
            assert "[actions] per_hour" in problem
            assert await world.acting.do(second.id, "anna") == problem

    on(story)


def test_a_port_is_disabled_by_a_person_alone_and_through_its_owner(tmp_path):
    said, path = tmp_path / "said", tmp_path / "hook"
    path.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    path.chmod(0o755)

    async def story():
        async with World(tmp_path, replace(ALL, port=PortWay((str(path),)))) as world:
            await world.told(part=controller("port p1-0"))
            await world.until_step(Step.ADVISED)
            [(action, _, problem)] = await world.acting.look("i0", "anna")
            assert (problem, said.exists()) == ("", False)
            assert await world.acting.do(action.id, "anna") == ""
            await world.stop()
            world.start(incident(part=controller("port p1-0")))
            world.now_ns += 2 * HELP_NS
            assert world.acting.broker.step(world.now_ns, hosts=100) == []
            assert world.acting.broker.opened == ""  # what isolates need not help
            assert await world.acting.undo(action.id, "anna") == ""
            assert said.read_text() == "disable p1-0\nenable p1-0\n"
            assert world.agents.asked == []
            assert world.steps() == [Step.ADVISED, Step.STARTED, Step.DONE, Step.UNDONE]

    on(story)


class Northbound:
    """Ports that somebody owns, until told otherwise."""

    def __init__(self):
        self.asked, self.answer = [], ("", "it is somebody's")

    async def disable(self, name, action, *, dry_run=False):
        self.asked.append(("disable", name, action, dry_run))
        return self.answer

    async def enable(self, name, action):
        self.asked.append(("enable", name, action))
        return ""


def test_a_port_that_is_nobodys_is_disabled_in_the_database(tmp_path):
    async def story():
        async with World(tmp_path, replace(ALL, port=PortWay())) as world:
            world.acting._ports = ports = Northbound()
            world.acting.take(incident(part=controller("port p1-0")))
            [(action, _, problem)] = await world.acting.look("i0", "anna")
            assert problem == "it is somebody's"
            assert await world.acting.do(action.id, "anna") == "it is somebody's"
            assert world.acting.broker.opened == ""
            ports.answer = "", ""
            assert await world.acting.do(action.id, "anna") == ""
            assert await world.acting.undo(action.id, "anna") == ""
            assert ports.asked == [
                ("disable", "p1-0", action.id, True),
                ("disable", "p1-0", action.id, False),
                ("disable", "p1-0", action.id, False),
                ("enable", "p1-0", action.id),
            ]

    on(story)


def test_a_hook_that_fails_opens_the_breaker_until_a_person_closes_it(tmp_path):
    async def story():
        limits = replace(ALL, cordon=("/bin/false",))
        async with World(tmp_path, limits) as world:
            await world.told(part=rnic("h1", "rnic0"))
            await world.until_step(Step.OPENED)
            await world.stop()
            world.start()
            assert "exit status 1" in world.acting.broker.opened
            await world.acting.close("anna", "the token was old")
            await world.stop()
            world.start()
            assert world.acting.broker.opened == ""
            [closed] = [e for e in world.trail.read() if e.step is Step.CLOSED]
            assert (closed.by, closed.text) == ("anna", "the token was old")

    on(story)


def test_a_cordon_that_was_cut_off_is_not_done_again_by_itself(tmp_path):
    async def story():
        path = tmp_path / "hook"
        path.write_text(f"#!/bin/sh\necho x >> {tmp_path}/count; exec sleep 60\n")
        path.chmod(0o755)
        async with World(tmp_path, replace(ALL, cordon=(str(path),))) as world:
            await world.told(part=rnic("h1", "rnic0"))
            await until((tmp_path / "count").exists)
            await world.stop()
            world.start(incident(part=rnic("h1", "rnic0")))
            await world.until_step(Step.OPENED)
            assert (tmp_path / "count").read_text() == "x\n"

    on(story)


def test_a_dry_run_says_what_the_host_says_and_leaves_no_trace(tmp_path):
    async def story():
        would = ActionReply(host="h1", verb=HostVerb.RECOMPUTE, done=False, read=("connected",))
        async with World(tmp_path, ADVISE, answer=would) as world:
            world.acting.take(incident())
            [(_, reply, problem)] = await world.acting.look("i0", "anna")
            assert (reply, problem) == (would, "")
            [(_, request)] = world.agents.asked
            assert (request.dry_run, request.by) == (True, "anna")
            world.agents.answer = Unreachable("h1", "timeout")
            [(_, reply, problem)] = await world.acting.look("i0", "anna")
            assert (reply, problem) == (None, "h1: timeout")
            assert world.steps() == []

    on(story)


def test_where_a_mode_only_observes_nothing_is_kept_of_incidents(tmp_path):
    async def story():
        async with World(tmp_path, Limits()) as world:
            await world.told()
            assert world.acting.broker.offers("i0") == ()
            assert world.steps() == []

    on(story)


def test_the_bridge_is_that_of_endpoints_where_a_controller_drives_the_host():
    class Registry:
        def endpoints_of(self, host):
            return [Record(b) for b in bridges.get(host, ())]

    class Record:
        def __init__(self, bridge):
            self.endpoint = replace(endpoint("h1", "a0"), bridge=bridge)

    bridges = {
        "h1": ("br-int", "", "br-x", "br-int"),
        "h2": ("br-int",),
        "h3": ("",),
        "h5": ("br-int",),
    }
    driven = DrivenHosts()
    for host in ("h1", "h3", "h4"):
        driven.take(host, 5, ControllerState(source="ovn"), 5)
    driven.take("h2", 5, ControllerState(source="acme"), 5)  # no verb is of another's
    found = {h: driven_bridge(Registry(), driven, h) for h in ("h1", "h2", "h3", "h4", "h5")}
    assert found == {"h1": "br-int", "h2": "", "h3": "", "h4": "", "h5": ""}
