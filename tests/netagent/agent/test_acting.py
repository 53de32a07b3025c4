# SPDX-License-Identifier: Apache-2.0
"""What a host does when it is asked to, in a real OVSDB; the other daemons are played."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import structlog
from msgspec import structs

from analyzer.fleet import Fleet, Refused
from netagent.adapters.host import protocols
from netagent.adapters.host.protocols import read_bridge
from netagent.agent import acting
from netagent.agent.acting import Acting
from netagent.concurrency import timeout
from netagent.config import (
    ActionsConfig,
    AgentConfig,
    AnalyzerConfig,
    OvsConfig,
    RpcConfig,
    TlsConfig,
)
from netagent.host.acting import HOUR_NS, detour
from netagent.model.errors import RemoteProtocolError, TooSoon
from netagent.server import Refusal, RpcServer
from netagent.wire.actions import ActionReply, ActionRequest, HostVerb
from netagent.wire.codec import ContentType, decode
from tests.analyzer.certificates import Authority
from tests.netagent.adapters.host.test_protocols import database as ovsdb
from tests.netagent.adapters.host.test_protocols import taking
from tests.netagent.adapters.host.test_vswitchd import FakeVswitchd
from tests.waiting import until

database = ovsdb
"""The fixture."""

RECOMPUTE = "inc-engine/recompute"
BEFORE = ("OpenFlow13", "OpenFlow15")


def config_in(folder, **fields):
    """Return the configuration of a host that permits everything."""
    values = {"allow": tuple(HostVerb)} | fields
    return AgentConfig(
        host="h0",
        analyzer=AnalyzerConfig(url="https://127.0.0.1:1"),
        tls=TlsConfig(ca="ca", cert="cert", key="key"),
        state_dir=str(folder / "state"),
        ovs=OvsConfig(rundir=str(folder), ovn_rundir=str(folder / "ovn")),
        actions=ActionsConfig(**values),
    )


def request(verb=HostVerb.REINSTALL, name="i1-aa", **fields):
    return ActionRequest(
        **({"id": name, "verb": verb, "bridge": "br-int", "dry_run": False, "by": "anna"} | fields)
    )


@asynccontextmanager
async def controller(folder, status="connected\n"):
    """Play an ovn-controller."""
    rundir = folder / "ovn"
    rundir.mkdir(exist_ok=True)
    answers = {"connection-status": status, RECOMPUTE: "\n"}
    async with FakeVswitchd(rundir / "ovn-controller.ctl", answers) as fake:
        yield fake


@asynccontextmanager
async def working(config, clock=time.time_ns):
    """Run what an agent runs of it."""
    made = Acting(config, clock)
    work = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await made.close()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def on(folder, story, *, status="connected\n", clock=time.time_ns, **actions):
    """Run `story(acting, ovn-controller)`."""

    async def main():
        config = config_in(folder, **actions)
        async with (
            timeout(60),
            controller(folder, status) as fake,
            working(config, clock) as made,
        ):
            return await story(made, fake)

    return asyncio.run(main())


async def ask(made, *args, peer="analyzer", **fields):
    return await made.act(request(*args, **fields), peer)


# --- what is done ---------------------------------------------------------------------------------


def test_a_controller_computes_anew_once_per_id_also_after_a_restart(tmp_path):
    async def twice(made, fake):
        first, second = await ask(made, HostVerb.RECOMPUTE), await ask(made, HostVerb.RECOMPUTE)
        assert first.done
        assert first == second
        return fake.asked.count(RECOMPUTE)

    with structlog.testing.capture_logs() as logs:
        assert on(tmp_path, twice) == 1
    (begun,) = (each for each in logs if each["event"] == "action_begun")
    assert (begun["by"], begun["of"], begun["verb"]) == ("analyzer", "anna", "recompute")
    assert on(tmp_path, twice) == 0


def test_a_bridge_gets_another_set_of_protocols_and_its_own_again(tmp_path, database):
    database.vsctl("set", "Bridge", "br-int", f"protocols={','.join(BEFORE)}")

    async def story(made, _):
        async with taking(database.socket) as vswitchd:
            reply = await ask(made)
            row = await read_bridge(database.socket, "br-int")
            return reply, row.protocols, vswitchd.seen

    reply, after, seen = on(tmp_path, story)
    assert (reply.done, reply.problem, after) == (True, "", BEFORE)
    assert detour(BEFORE) in seen
    assert json.loads((tmp_path / "state" / acting.FILE).read_text())["held"] is None


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(tmp_path, database):
    database.vsctl("set", "Bridge", "br-int", f"protocols={','.join(BEFORE)}")

    async def story(made, fake):
        reply = await ask(made, dry_run=True)
        row = await read_bridge(database.socket, "br-int")
        assert row.protocols == BEFORE
        assert RECOMPUTE not in fake.asked
        return reply

    reply = on(tmp_path, story)
    assert (reply.done, reply.refused) == (False, "")
    assert reply.command == (
        "ovs-vsctl set Bridge br-int protocols=OpenFlow12,OpenFlow13,OpenFlow15"
    )
    assert reply.undo == "ovs-vsctl set Bridge br-int protocols=OpenFlow13,OpenFlow15"
    assert reply.read == ("ovn-controller: connected", "protocols of br-int: OpenFlow13 OpenFlow15")
    assert not (tmp_path / "state" / acting.FILE).exists()


def test_who_hangs_up_leaves_nothing_half_done(tmp_path, database):
    async def story(made, _):
        asking = asyncio.create_task(ask(made))
        await until(lambda: made._held is not None)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        async with taking(database.socket):
            await until(lambda: made._work is None and made._held is None)
            assert (await ask(made)).done
        assert (await read_bridge(database.socket, "br-int")).protocols == ()

    on(tmp_path, story)


def test_who_hangs_up_before_the_work_begins_does_not_keep_others_from_theirs(
    tmp_path, database, monkeypatch
):
    """What is written down by then is worked at all the same."""

    async def story(made, _):
        may_write, writes = asyncio.Event(), asyncio.Event()
        save = made._save

        async def slowly():
            writes.set()
            await may_write.wait()
            await save()

        monkeypatch.setattr(made, "_save", slowly)
        asking = asyncio.create_task(ask(made))
        await writes.wait()
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        may_write.set()
        async with taking(database.socket):
            await until(lambda: made._work is None and made._held is None)
            assert (await ask(made)).done

    on(tmp_path, story)


def test_an_agent_that_stops_puts_back_first(tmp_path, database):
    async def story(made, _):
        asking = asyncio.create_task(ask(made))
        await until(lambda: made._held is not None)
        async with taking(database.socket):
            await made.close()
            await asking
            assert (await read_bridge(database.socket, "br-int")).protocols == ()

    on(tmp_path, story)


def test_a_vswitchd_that_takes_nothing_is_put_back_once_it_can_be(
    tmp_path,
    database,
    monkeypatch,
):
    monkeypatch.setattr(protocols, "TAKEN_S", 0.1)
    monkeypatch.setattr(acting, "PUT_BACK_S", (0.01, 0.05))

    async def story(made, _):
        reply = await ask(made)
        assert "took no change" in reply.problem
        await until(lambda: made._held is None)
        assert (await read_bridge(database.socket, "br-int")).protocols == ()
        assert not (await ask(made)).done

    on(tmp_path, story)


KILLED = """
import asyncio, pathlib, sys
from tests.netagent.agent.test_acting import config_in, request
from netagent.agent.acting import Acting
asyncio.run(Acting(config_in(pathlib.Path(sys.argv[1]))).act(request(), "analyzer"))
"""


def test_what_a_killed_agent_held_is_put_back_by_the_next(tmp_path, database):
    database.vsctl("set", "Bridge", "br-int", f"protocols={','.join(BEFORE)}")

    def protocols_now():
        return asyncio.run(read_bridge(database.socket, "br-int")).protocols

    async def until_killed():
        async with controller(tmp_path):
            agent = await asyncio.create_subprocess_exec(
                sys.executable, "-c", KILLED, str(tmp_path), env=os.environ | {"PYTHONPATH": "."}
            )
            try:
                await _until_protocols(database, detour(BEFORE))
            finally:
                agent.kill()
                await agent.wait()

    asyncio.run(until_killed())
    assert protocols_now() == detour(BEFORE)

    async def after(made, _):
        async with taking(database.socket):
            await until(lambda: made._is_read and made._held is None)
            return await ask(made)

    reply = on(tmp_path, after)
    assert (reply.done, reply.problem) == (
        False,
        "it was begun, and this agent ended meanwhile",
    )
    assert protocols_now() == BEFORE


def test_what_somebody_else_wrote_meanwhile_is_left(tmp_path, database):
    async def story(made, _):
        asking = asyncio.create_task(ask(made))
        await until(lambda: made._held is not None)
        await _until_protocols(database, detour(()))
        database.vsctl("set", "Bridge", "br-int", "protocols=OpenFlow15")
        async with taking(database.socket):
            await asking
            await until(lambda: made._held is None)
        assert (await read_bridge(database.socket, "br-int")).protocols == ("OpenFlow15",)

    on(tmp_path, story)


async def _until_protocols(database, wanted):
    async with timeout(60):
        while (await read_bridge(database.socket, "br-int")).protocols != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


# --- what is not done -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "actions", "why"),
    [
        ({}, {"allow": ()}, "not in actions.allow"),
        ({"verb": HostVerb.RECOMPUTE}, {"allow": (HostVerb.REINSTALL,)}, "not in actions.allow"),
        ({"bridge": "br-phy0"}, {}, "integration bridge is br-int"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_the_owner_did_not_permit_is_refused(tmp_path, fields, actions, why, dry_run):
    async def story(made, fake):
        reply = await ask(made, **fields, dry_run=dry_run)
        assert fake.asked == []
        return reply

    reply = on(tmp_path, story, **actions)
    assert not reply.done
    assert why in reply.refused


def test_nothing_is_permitted_by_default():
    assert ActionsConfig().allow == ()


def test_where_nobody_would_install_flows_again_none_are_taken(tmp_path, database):
    async def story(made, _):
        return await ask(made)

    assert "would install nothing" in on(tmp_path, story, status="not connected\n").refused
    database.vsctl("clear", "Bridge", "br-int", "external_ids")
    assert "does not say that br-int is its own" in on(tmp_path, story).refused
    database.vsctl("del-br", "br-int")
    assert "no bridge br-int" in on(tmp_path, story).refused


def test_more_than_so_many_in_an_hour_are_refused_whatever_is_asked(tmp_path):
    now_ns = [HOUR_NS]

    async def story(made, fake):
        for number in range(2):
            assert (await ask(made, HostVerb.RECOMPUTE, f"a{number}")).done
        for number in range(50):
            with pytest.raises(TooSoon, match="2 actions within an hour, 2 at most"):
                await ask(made, HostVerb.RECOMPUTE, f"b{number}")
        dry = await ask(made, HostVerb.RECOMPUTE, "b", dry_run=True)
        assert "2 at most" in dry.refused
        return fake.asked.count(RECOMPUTE)

    def again(count):
        return on(tmp_path, story, per_hour=2, clock=lambda: now_ns[0]) == count

    assert again(2)
    with pytest.raises(TooSoon):  # a restart is no way round
        on(
            tmp_path,
            lambda made, _: ask(made, HostVerb.RECOMPUTE, "c"),
            per_hour=2,
            clock=lambda: now_ns[0],
        )
    assert len(json.loads((tmp_path / "state" / acting.FILE).read_text())["begun"]) == 2


def test_one_thing_is_done_at_a_time(tmp_path, database):
    async def story(made, _):
        asking = asyncio.create_task(ask(made))
        await until(lambda: made._work is not None)
        with pytest.raises(TooSoon, match="another action is under way"):
            await ask(made, HostVerb.RECOMPUTE, "other")
        same = asyncio.create_task(ask(made))
        async with taking(database.socket):
            assert (await asking).done
            assert (await same).done

    on(tmp_path, story)


def test_an_id_stands_for_one_thing(tmp_path):
    async def story(made, _):
        await ask(made, HostVerb.RECOMPUTE)
        with pytest.raises(RemoteProtocolError, match="was another action"):
            await ask(made, HostVerb.REINSTALL)

    on(tmp_path, story)


def test_what_cannot_be_written_down_is_not_done(tmp_path):
    (tmp_path / "state").write_text("no folder")

    async def story(made, fake):
        with pytest.raises((RemoteProtocolError, OSError)):
            await ask(made, HostVerb.RECOMPUTE)
        assert RECOMPUTE not in fake.asked

    on(tmp_path, story)


def test_a_file_that_makes_no_sense_permits_nothing(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / acting.FILE).write_text("{")

    async def story(made, fake):
        with pytest.raises(RemoteProtocolError):
            await ask(made, HostVerb.RECOMPUTE)
        assert RECOMPUTE not in fake.asked

    on(tmp_path, story)


# --- who asks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", [None, "admin", "h0", "h1", "", "analyzer2"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_nobody_but_the_analyzer_may_ask(tmp_path, peer, dry_run):
    async def story(made, fake):
        with pytest.raises(Refusal, match="may not ask for actions"):
            await ask(made, HostVerb.RECOMPUTE, peer=peer, dry_run=dry_run)
        assert fake.asked == []

    with structlog.testing.capture_logs() as logs:
        on(tmp_path, story)
    assert [each["by"] for each in logs if each["event"] == "action_refused"] == [peer]


def test_an_agent_that_stops_begins_nothing(tmp_path):
    async def story(made, fake):
        await made.close()
        with pytest.raises(TooSoon, match="is stopping"):
            await ask(made, HostVerb.RECOMPUTE)
        assert RECOMPUTE not in fake.asked

    on(tmp_path, story)


class Service:
    """An agent's service, of which only this is asked."""

    def __init__(self, made):
        self.act = made.act


def test_over_tls_other_hosts_and_unknown_verbs_are_refused(tmp_path):
    authority = Authority(tmp_path)
    cert, key = map(str, authority.sign("h0"))
    body = {"id": "i1", "verb": "recompute", "bridge": "br-int", "dry_run": False}

    async def main():
        config = structs.replace(
            config_in(tmp_path),
            rpc=RpcConfig(listen="127.0.0.1:0", peers=("analyzer", "admin")),
            tls=TlsConfig(ca=str(authority.ca), cert=cert, key=key),
        )
        async with controller(tmp_path) as fake, working(config) as made:
            server = RpcServer(config, Service(made))
            await server.start()
            url = f"https://127.0.0.1:{server.port}/v1/actions"

            async def post(name, content):
                async with httpx.AsyncClient(verify=authority.client(name)) as client:
                    headers = {"content-type": "application/json"}
                    return await client.post(url, content=json.dumps(content), headers=headers)

            async def asked_by(name):
                fleet = Fleet(lambda _: url.removesuffix("/v1/actions"), authority.client(name))
                try:
                    return await fleet.act("h0", request(HostVerb.RECOMPUTE, "i1"))
                finally:
                    await fleet.close()

            try:
                for name in ("h1", "admin", "h0"):
                    assert (await post(name, body)).status_code == 403
                for verb in ("delete", "cordon", "exit", ""):
                    assert (await post("analyzer", body | {"verb": verb})).status_code == 400
                assert fake.asked == []
                answer = await post("analyzer", body)
                assert answer.status_code == 200
                reply = decode(answer.content, ActionReply, ContentType.JSON)
                assert reply.done
                again = await asked_by("analyzer")
                assert again == reply
                assert fake.asked.count(RECOMPUTE) == 1
                with pytest.raises(Refused, match="'h1' may not ask") as caught:
                    await asked_by("h1")
                assert caught.value.status == 403
            finally:
                await server.stop()

    asyncio.run(main())
