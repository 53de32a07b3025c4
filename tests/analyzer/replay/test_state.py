# SPDX-License-Identifier: Apache-2.0
import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.replay.state import freeze, thaw
from analyzer.roster.registry import Registry
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, encode
from tests.analyzer.diagnosis.world import World
from tests.analyzer.replay.worlds import LINK, SPINE


def lived(stop=None):
    """Return what a world tells; at window `stop` its diagnosis is written down and read again."""
    world = World(2)
    for window in range(12):
        world.fabric.loss = {LINK: 0.2} if 4 <= window < 7 else {SPINE: 1.0} if window > 8 else {}
        if window == stop:
            state = freeze(world.diagnosis)
            world.diagnosis = thaw(state, world.registry)
        world.live(1)
    return [msgspec.json.encode(incident) for incident in world.told.values()]


@pytest.mark.parametrize("stop", [0, 3, 5, 8, 10])
def test_a_diagnosis_that_was_written_down_goes_on_as_if_nothing_had_been(stop):
    assert lived(stop) == lived()


def test_nothing_is_written_down_while_a_window_is_judged():
    world = World(1)
    world.live(4)
    world.fabric.loss = {LINK: 0.3}
    for summary in world.summaries():
        world.diagnosis.ingest(summary, world.now_ns())
    assert world.diagnosis.step(world.now_ns())  # it asks for counts
    assert freeze(world.diagnosis) is None


def test_who_looks_on_is_not_written_down():
    class Observer:
        def saw(self, table, endpoints, topology):
            self.seen = table

        def expire(self, before_ns):
            pass

    world, watched = World(2), World(2)
    watched.diagnosis.observer = observer = Observer()
    for each in (world, watched):
        each.live(3)
    assert len(observer.seen.rows.flow)
    assert freeze(watched.diagnosis) == freeze(world.diagnosis)
    assert thaw(freeze(watched.diagnosis), watched.registry).observer is None


STATE = freeze(World(1).diagnosis)


@given(st.data())
def test_no_damaged_state_does_more_than_raise(data):
    damaged = bytearray(STATE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        assert thaw(bytes(damaged), Registry()) is not None


def test_the_state_of_another_version_is_refused_with_what_differs():
    nodes, root = decode(STATE, list)
    (top,) = root
    nodes[top][1] = [[key, value] for key, value in nodes[top][1] if key != "_book"]
    with pytest.raises(RemoteProtocolError, match="_book"):
        thaw(encode([nodes, root]), Registry())


@pytest.mark.parametrize(
    "node",
    [
        ["object", "subprocess:Popen", []],
        ["object", "analyzer.detect.latency.step:np", []],
        ["object", "analyzer.localize.case:Case", [["__class__", 1]]],
        ["enum", "netagent.model.path:Component", "switch"],
        ["array", "|O", [1], b"\0" * 8],
        ["defaultdict", "eval", []],
        ["lambda"],
    ],
    ids=lambda node: node[1] if len(node) > 1 else node[0],
)
def test_nothing_but_our_own_values_is_made(node):
    nodes, root = decode(STATE, list)
    nodes[root[0]] = ["dict", [["x", [len(nodes)]]]]
    with pytest.raises(RemoteProtocolError):
        thaw(encode([[*nodes, node], root]), Registry())


def without(state, name):
    nodes, root = decode(state, list)
    for node in nodes:
        if node[0] == "object":
            node[2] = [[key, value] for key, value in node[2] if key != name]
    return encode([nodes, root])


def test_what_an_earlier_version_did_not_know_of_begins_as_new():
    diagnosis = thaw(without(STATE, "_legs"), Registry())
    assert diagnosis.routes == 0


def test_what_an_earlier_version_lacks_and_nobody_can_make_up_is_named():
    world = World(1)
    world.live(3)
    with pytest.raises(RemoteProtocolError, match="without run_ms"):
        thaw(without(freeze(world.diagnosis), "run_ms"), world.registry)
