# SPDX-License-Identifier: Apache-2.0
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.host import namespaces as module
from netagent.adapters.host.namespaces import RETRY_NS, Namespaces, at_paths, leads_to, seek
from netagent.host.facts import Link, Namespace

GONE = Namespace("/run/netns/na-never-was", 1)


def test_what_was_found_is_not_looked_for_again():
    known = Namespaces()
    assert known.wanted({1, 2}, now_ns=0) == {1, 2}
    known.learn({1, 2}, {1: GONE}, now_ns=0)
    assert known.found == {1: GONE}
    assert known.wanted({1, 2}, now_ns=0) == frozenset()
    assert known.retry_ns() == RETRY_NS[0]
    assert known.wanted({1, 2}, now_ns=RETRY_NS[0]) == {2}


def test_the_wait_for_what_is_not_found_grows_to_a_limit():
    known, now_ns, waits = Namespaces(), 0, []
    for _ in range(10):
        known.learn({7}, {}, now_ns=now_ns)
        waits.append(known.retry_ns() - now_ns)
        now_ns = known.retry_ns()
    assert waits[0] == RETRY_NS[0]
    assert waits == sorted(waits)
    assert waits[-1] == RETRY_NS[1]


def test_what_nobody_wants_or_what_died_is_forgotten():
    known = Namespaces()
    known.learn({1, 2, 3}, {1: GONE, 2: GONE}, now_ns=0)
    known.wanted({1}, now_ns=0)
    assert known.found == {1: GONE}
    assert known.retry_ns() is None
    known.drop({1})
    assert known.found == {}


def test_a_path_that_leads_nowhere_is_lost():
    known = Namespaces()
    known.learn({1}, {1: GONE}, now_ns=0)
    assert not leads_to(GONE)
    assert known.drop_lost()
    assert not known.drop_lost()
    assert known.wanted({1}, now_ns=0) == {1}, "another path may lead to it"


@given(st.lists(st.tuples(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)))))
def test_an_id_is_either_found_or_looked_for_in_time(rounds):
    known, now_ns = Namespaces(), 0
    for wanted, there in rounds:
        asked = known.wanted(wanted, now_ns=now_ns)
        assert asked.isdisjoint(known.found)
        known.learn(asked, dict.fromkeys(asked & there, GONE), now_ns=now_ns)
        assert set(known.found) <= wanted
        now_ns += RETRY_NS[1]
        assert known.wanted(wanted, now_ns=now_ns) == wanted - set(known.found)


@pytest.mark.parametrize("order", [("/made", "/given"), ("/given", "/made")])
def test_hardware_comes_before_what_a_container_made_with_its_address(monkeypatch, order):
    mac = "02:00:00:00:00:0a"
    tables = {
        1: {7: Link(index=7, name="eth0", kind="macvlan", mac=mac)},
        2: {7: Link(index=7, name="eth0", mac=mac)},
    }
    nsids = {"/made": 1, "/given": 2}
    monkeypatch.setattr(module, "query_socket", contextlib.nullcontext)
    monkeypatch.setattr(module, "_candidates", lambda: iter(order))
    monkeypatch.setattr(module, "nsid_of", lambda _, path: (nsids[path], 4_000 + nsids[path]))
    monkeypatch.setattr(module, "dump", tables.__getitem__)
    assert seek({mac}) == {mac: (2, Namespace("/given", 4_002))}


def test_a_namespace_whose_path_is_said_gets_an_id(monkeypatch):
    nsids = {"/known": 3, "/new": -1}

    def nsid_of(_, path):
        if path not in nsids:
            raise FileNotFoundError(path)
        return nsids[path], 4_000

    monkeypatch.setattr(module, "query_socket", contextlib.nullcontext)
    monkeypatch.setattr(module, "nsid_of", nsid_of)
    monkeypatch.setattr(module, "assign_nsid", lambda _, path: 7 if path == "/new" else None)
    assert at_paths({"/known", "/new", "/gone"}) == {
        "/known": (3, Namespace("/known", 4_000)),
        "/new": (7, Namespace("/new", 4_000)),
    }
