# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import time

from analyzer.server.page import events
from analyzer.server.page.events import stream
from analyzer.server.page.page import Page
from analyzer.server.sight import Sight
from netagent.model.verdict import IncidentState
from tests.analyzer.server.page.looking import incident, on


def parsed(chunk):
    """Return the kind, number and data of an event; None of what is none."""
    fields = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if ": " in line)
    if "event" not in fields:
        return None
    number = int(fields["id"]) if "id" in fields else None
    return fields["event"], number, json.loads(fields["data"])


class Listener:
    """Reads a stream in the background."""

    def __init__(self, page, sees=None, after=None, holds=lambda: True):
        self.heard, self.raw = [], []
        self._stream = stream(page, sees or Sight(), after, holds)
        self._news = asyncio.Event()
        self._work = asyncio.create_task(self._read())

    async def _read(self):
        async for chunk in self._stream:
            self.raw.append(chunk)
            event = parsed(chunk)
            if event is not None:
                self.heard.append(event)
            self._news.set()
        self._news.set()

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition(self):
                self._news.clear()
                await self._news.wait()

    async def incidents(self, count):
        await self.until(lambda it: len(it.told("incident")) >= count)
        return [data for _, _, data in self.told("incident")]

    def told(self, kind):
        return [each for each in self.heard if each[0] == kind]

    async def ended(self):
        async with asyncio.timeout(60):
            await self._work

    async def close(self):
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)


def test_changes_come_once_and_in_order_and_who_comes_again_goes_on_behind_them(tmp_path):
    async def work(looked):
        page = Page(looked.analyzer)
        first = Listener(page)
        await first.until(lambda it: it.told("tick"))
        await looked.tell(incident("i1", "t0"))
        await looked.tell(incident("i2", "t1"), incident("i1", "t0", state=IncidentState.CONFIRMED))
        heard = await first.incidents(3)
        assert [(each["event"], each["incident"]["id"]) for each in heard] == [
            ("opened", "i1"), ("opened", "i2"), ("confirmed", "i1"),
        ]  # fmt: skip
        numbers = [number for _, number, _ in first.told("incident")]
        assert numbers == sorted(set(numbers)) == [each["seq"] for each in heard]
        await first.close()
        await looked.tell(incident("i1", "t0", state=IncidentState.RECOVERED, recovered_ns=1))
        again = Listener(page, after=numbers[1])
        resumed = await again.incidents(2)
        assert [each["event"] for each in resumed] == ["confirmed", "recovered"]
        await again.close()
        fresh = Listener(page)
        await fresh.until(lambda it: it.told("tick"))
        assert fresh.told("incident") == []
        await fresh.close()

    on(tmp_path, work)


def test_a_tenant_hears_of_its_own_incidents_alone(tmp_path):
    async def work(looked):
        mine = Listener(Page(looked.analyzer), Sight(("t0",)))
        await mine.until(lambda it: it.told("tick"))
        await looked.tell(incident("i2", "t1"), incident("i3", "t0", "t1"))
        [event] = await mine.incidents(1)
        assert event["incident"]["id"] == "i3"
        assert event["incident"]["tasks"] == ["t0"]
        assert b"t1" not in b"".join(mine.raw)
        await mine.close()

    on(tmp_path, work)


def test_ticks_say_how_it_stands_each_window(tmp_path):
    async def work(looked):
        looked.show(start_ns=time.time_ns())
        listener = Listener(Page(looked.analyzer))
        await listener.until(lambda it: len(it.told("tick")) >= 2)
        ticks = [data for _, _, data in listener.told("tick")]
        assert {each["state"] for each in ticks} == {"well"}
        apart_ns = ticks[1]["at_ns"] - ticks[0]["at_ns"]
        assert apart_ns >= 0.9e9
        assert all(number is None for _, number, _ in listener.told("tick"))
        await listener.close()

    on(tmp_path, work, window_s=1)


def test_a_line_without_a_meaning_shows_that_the_connection_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "QUIET_S", 0.01)

    async def work(looked):
        listener = Listener(Page(looked.analyzer))
        await listener.until(lambda it: b":\n\n" in it.raw)
        await listener.close()

    on(tmp_path, work)


def test_a_stream_ends_with_its_session_and_with_the_server(tmp_path):
    async def work(looked):
        may = {"look": True}
        listener = Listener(Page(looked.analyzer), holds=lambda: may["look"])
        other = Listener(Page(looked.analyzer))
        for each in (listener, other):
            await each.until(lambda it: it.told("tick"))
        may["look"] = False
        await looked.tell(incident("i1", "t0"))
        await listener.ended()
        assert listener.told("incident") == []
        await other.incidents(1)
        looked.analyzer.waiters.stop()
        await other.ended()

    on(tmp_path, work)
