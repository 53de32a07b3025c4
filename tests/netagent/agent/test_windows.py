# SPDX-License-Identifier: Apache-2.0
import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from netagent.adapters.clock import wall_ns
from netagent.agent import windows as module
from netagent.agent.windows import Windows
from netagent.host.facts import HostView
from netagent.host.shedding import Load
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import rnic, vswitch
from netagent.model.window import Window
from netagent.wire import frame
from netagent.wire.codec import decode
from netagent.wire.controller import ControllerState, Working
from netagent.wire.inventory import Inventory
from netagent.wire.messages import Summary

A = EndpointId("a", 0)
WIDTH_NS = 5_000_000_000
DEADLINE_S = 10


@pytest.fixture
def windows(config, adapters, membership):
    return Windows(config, "one", adapters, membership)


class Shipped:
    """What was handed to the shipper, and when the third summary was."""

    def __init__(self):
        self.summaries = []
        self.third = asyncio.Event()

    def submit(self, start_ns, body):
        self.summaries.append((start_ns, decode(body, Summary)))
        if len(self.summaries) == 3:
            self.third.set()


@pytest.fixture
def shipped(adapters, monkeypatch):
    made = Shipped()
    monkeypatch.setattr(type(adapters.shipper), "submit", lambda _, *what: made.submit(*what))
    return made


def test_a_window_is_shipped(windows, shipped):
    window = Window.covering(wall_ns(), width_ns=WIDTH_NS)
    windows._ship(window)
    ((start_ns, summary),) = shipped.summaries
    assert start_ns == windows.last_ns == window.start_ns
    assert (summary.host, summary.instance) == ("h0", "one")
    assert summary.health == windows.health
    assert summary.health.rss_kb > 0


def test_an_inventory_is_told_once_known_and_not_in_every_window(windows, membership, shipped):
    first = Window.covering(wall_ns(), width_ns=WIDTH_NS)
    windows._ship(first)
    told = Inventory(kernel="6.1.0")
    membership.on_view(HostView(inventory=told))
    for number in range(1, 14):  # from the first that tells it, a minute, in which another begins
        windows._ship(Window(first.start_ns + number * WIDTH_NS, WIDTH_NS))
    said = [summary.inventory for _, summary in shipped.summaries]
    assert said[:2] == [None, told]
    assert said.count(told) == 2
    assert set(said) == {None, told}


def test_a_part_of_a_controller_is_told_as_it_changes_and_once_a_minute(
    windows, membership, shipped
):
    start_ns = Window.covering(wall_ns(), width_ns=WIDTH_NS).start_ns
    old = ControllerState(source="ovn", working=Working.CONNECTED, generation=7)
    new = ControllerState(source="ovn", working=Working.STOPPED, generation=7)
    for number, state in enumerate([None, old, old, new, *[new] * 12]):
        membership.on_view(HostView(controller=state))
        windows._ship(Window(start_ns + number * WIDTH_NS, WIDTH_NS))
    said = [summary.controller for _, summary in shipped.summaries]
    assert (said[0], said[1], said[3]) == (None, old, new)
    assert said[4:].count(new) in {1, 2}
    assert membership.controller == new


def test_faults_are_told_before_what_is_not_understood(windows, membership, shipped):
    """The analyzer takes so many findings of a window, and no more."""
    odd = [
        Finding(FindingKind.UNKNOWN_INPUT, vswitch("h0"), "odd", 1, {"port": str(n)})
        for n in range(100)
    ]
    down = Finding(FindingKind.WRONG_MTU, rnic("h0", "rnic0"), "small", 1)
    membership.on_view(HostView(findings=(*odd, down)))
    windows._ship(Window.covering(wall_ns(), width_ns=WIDTH_NS))
    ((_, summary),) = shipped.summaries
    assert summary.findings == (down, *odd)


def test_an_endpoint_that_was_flooded_is_stated_for_the_window_in_which_it_was(
    windows, shipped, adapters
):
    first = Window.covering(wall_ns(), width_ns=WIDTH_NS)
    adapters.answering.join(A)
    probe = frame.Frame(7, 1, 50000)
    refused = 0
    while refused < 100:  # the budget fills meanwhile, and lets some through
        payload = frame.encode(probe)
        refused += not adapters.answering.may(A, payload, probe, arrived_ns=wall_ns())
    windows._ship(first)
    windows._ship(Window(first.end_ns, WIDTH_NS))
    (_, told), (_, quiet) = shipped.summaries
    (found,) = told.findings
    assert (found.kind, found.component.name) == (FindingKind.FLOODED, "a/rail0")
    assert told.health.unanswered == refused
    assert quiet.findings == ()
    assert quiet.health.unanswered == 0


def test_near_its_limits_an_agent_does_less_and_says_so(windows, shipped, adapters, monkeypatch):
    loads = [Load(0.9, 0.0), *[Load(0.1, 0.0)] * 3]
    monkeypatch.setattr(windows, "_limits", SimpleNamespace(load=lambda: loads.pop(0)))
    window, skipped = Window.covering(wall_ns(), width_ns=WIDTH_NS), []
    monkeypatch.setattr(adapters.prober, "skip_rare", lambda *, skips: skipped.append(skips))
    while loads:
        windows._ship(window)
        window = Window(window.end_ns, WIDTH_NS)
    assert [summary.health.shed for _, summary in shipped.summaries] == [3, 2, 1, 0]
    assert skipped == [True, False, False, False]


class Clock:
    """A wall clock that each look moves on by a second."""

    def __init__(self, at_ns):
        self.at_ns = at_ns

    def __call__(self):
        self.at_ns += 1_000_000_000
        return self.at_ns


async def _until_the_third(windows, shipped):
    work = asyncio.create_task(windows.run())
    try:
        await asyncio.wait_for(shipped.third.wait(), DEADLINE_S)
    finally:
        work.cancel()
        await asyncio.wait({work})


def test_where_the_clock_went_back_windows_are_counted_as_those_of_another_life(windows, shipped):
    first = Window.covering(wall_ns(), width_ns=WIDTH_NS)
    earlier = Window(first.start_ns - 36 * WIDTH_NS, WIDTH_NS)
    for window in (first, earlier, Window(earlier.end_ns, WIDTH_NS), earlier):
        windows._ship(window)
    summaries = [summary for _, summary in shipped.summaries]
    assert [each.instance for each in summaries] == ["one", "one.2", "one.2", "one.3"]
    assert len({each.key for each in summaries}) == 4
    assert windows.last_ns == earlier.start_ns


def test_windows_follow_each_other(windows, membership, shipped, monkeypatch):
    monkeypatch.setattr(module, "wall_ns", Clock(1000 * WIDTH_NS))
    nap = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda _: nap(0))
    membership.on_view(HostView(complete=True))
    asyncio.run(_until_the_third(windows, shipped))
    starts = [start_ns for start_ns, _ in shipped.summaries]
    assert all(later > earlier for earlier, later in pairwise(starts))
    assert all(start_ns % WIDTH_NS == 0 for start_ns in starts)


@pytest.mark.parametrize(("back_s", "lives"), [(3, 1), (180, 2)])
def test_a_clock_that_goes_back_silences_nobody(
    windows, membership, shipped, monkeypatch, back_s, lives
):
    clock = Clock(1000 * WIDTH_NS)
    monkeypatch.setattr(module, "wall_ns", clock)
    nap = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda _: nap(0))
    membership.on_view(HostView(complete=True))
    note = shipped.submit

    def submit(start_ns, body):
        note(start_ns, body)
        if len(shipped.summaries) == 1:
            clock.at_ns -= back_s * 1_000_000_000

    monkeypatch.setattr(shipped, "submit", submit)
    asyncio.run(_until_the_third(windows, shipped))
    first, *after = shipped.summaries
    assert len({summary.key for _, summary in shipped.summaries}) == len(shipped.summaries)
    assert len({summary.instance for _, summary in shipped.summaries}) == lives
    gone_s = (after[0][0] - first[0]) / 1e9
    assert gone_s == 5 if back_s == 3 else -back_s <= gone_s <= -back_s + 10


def test_nothing_is_shipped_before_the_host_was_looked_at(windows, shipped, monkeypatch):
    monkeypatch.setattr(module, "wall_ns", Clock(1000 * WIDTH_NS))
    nap = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda _: nap(0))

    async def look():
        work = asyncio.create_task(windows.run())
        for _ in range(100):
            await nap(0)
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(look())
    assert shipped.summaries == []
