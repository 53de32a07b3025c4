# SPDX-License-Identifier: Apache-2.0
"""Handles are made when an address is resolved, replaced by new ones, and destroyed once."""

from types import SimpleNamespace

import pytest

from netagent.adapters.rdma import handles as module
from netagent.adapters.rdma.handles import MAX_PORTS, RETIRE_NS, Handles, Reach
from netagent.probing.rdma.steering import Steering

GID, OTHER = "::ffff:10.0.0.2", "::ffff:10.0.0.3"


class FakeHandle:
    def __init__(self, gid, port):
        self.gid, self.port, self.closed = gid, port, 0

    def close(self):
        self.closed += 1


class FakePort:
    place = "here"

    def __init__(self, steering):
        self.steering = steering
        self.made = []
        self.refuses = False

    def handle(self, gid, port):
        if self.refuses:
            raise OSError("silent")
        self.made.append(FakeHandle(gid, port))
        return self.made[-1]


class FakeResolver:
    def __init__(self):
        self.told = []
        self.listener = None

    def aim(self, place, gids, listener):
        self.told.append(("aim", sorted(gids)))
        self.listener = listener

    def __getattr__(self, name):
        return lambda *arguments: self.told.append((name, *arguments[1:]))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(module, "now_ns", lambda: now.ns)
    return now


def fresh(steering=Steering.QUEUE_PAIR, ports=(1, 2)):
    port, resolver = FakePort(steering), FakeResolver()
    handles = Handles(port, resolver, ports)
    handles.aim([GID, OTHER])
    return handles, port, resolver


def test_no_handle_is_made_before_its_address_is_resolved(clock):
    handles, port, resolver = fresh()
    assert handles.find(GID, 1) is None
    assert handles.reach(GID) is Reach.PENDING
    assert port.made == []
    resolver.listener(GID, True)
    assert handles.reach(GID) is Reach.READY
    assert handles.find(GID, 1) is handles.find(GID, 2) is port.made[0]
    assert handles.find(OTHER, 1) is None
    assert handles.reach("::1") is Reach.UNKNOWN


def test_flow_labels_need_a_handle_per_flow(clock):
    handles, port, resolver = fresh(Steering.FLOW_LABEL)
    resolver.listener(GID, True)
    assert [made.port for made in port.made] == [1, 2]
    assert handles.find(GID, 2) is port.made[1]
    assert handles.find(GID, 3).port == 3  # a prober's port that nobody knew before
    for number in range(4, 4 + 2 * MAX_PORTS):
        assert handles.find(GID, number) is not None
    assert len(port.made) == MAX_PORTS


def test_a_silent_neighbour_is_silent_only_if_it_never_answered(clock):
    handles, port, resolver = fresh()
    resolver.listener(GID, False)
    assert handles.reach(GID) is Reach.SILENT
    resolver.listener(GID, True)
    resolver.listener(GID, False)
    assert handles.reach(GID) is Reach.READY
    assert handles.find(GID, 1) is port.made[0]


def test_a_handle_that_is_replaced_is_destroyed_later_and_once(clock):
    handles, port, resolver = fresh()
    resolver.listener(GID, True)
    assert handles.find(GID, 1) is port.made[0]
    resolver.listener(GID, True)
    assert handles.find(GID, 1) is port.made[1]
    assert port.made[0].closed == 0
    clock.ns = RETIRE_NS
    resolver.listener(OTHER, True)
    assert [made.closed for made in port.made] == [1, 0, 0]
    handles.close()
    handles.close()
    assert [made.closed for made in port.made] == [1, 1, 1]
    assert resolver.told[-1] == ("leave",)


def test_targets_that_are_no_longer_aimed_at_are_let_go(clock):
    handles, port, resolver = fresh()
    resolver.listener(GID, True)
    assert handles.find(GID, 1) is not None
    handles.aim([OTHER])
    assert handles.find(GID, 1) is None
    resolver.listener(GID, True)  # an answer that was under way
    assert handles.reach(GID) is Reach.UNKNOWN
    assert len(port.made) == 1


def test_a_device_that_refuses_is_no_silent_target_and_is_asked_for_anew(clock):
    handles, port, resolver = fresh()
    port.refuses = True
    resolver.listener(GID, True)
    assert handles.reach(GID) is Reach.PENDING
    assert handles.find(GID, 1) is None
    assert resolver.told[-1] == ("hurry", GID)


def test_strangers_are_resolved_when_they_are_heard_of(clock):
    handles, _, resolver = fresh()
    handles.heard("::1")
    assert resolver.told[-1] == ("heard", "::1")
    resolver.listener("::1", True)
    count = len(resolver.told)
    handles.heard("::1")
    assert len(resolver.told) == count  # it is known
    assert handles.find("::1", 1) is not None
    handles.forget("::1")
    assert resolver.told[-1] == ("forget", "::1")
    assert handles.find("::1", 1) is None
    handles.lost(GID)
    assert resolver.told[-1] == ("hurry", GID)
