# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.ids import EndpointId
from netagent.probing import seals
from netagent.probing.seals import Seals
from netagent.wire import frame

C0, C1 = EndpointId("c0", 0), EndpointId("c1", 0)
KEY = b"k" * 16
NOW_NS = 480_000 * frame.EPOCH_NS
"""Beginning of an epoch; tests count seconds from here."""


def held(kept, seq, *, endpoint=C0, key=KEY, session=7, port=50000, target=None, sent_s=0, at_s=0):
    probe = frame.Frame(session, seq, port)
    sent_ns, at_ns = (NOW_NS + second * 10**9 for second in (sent_s, at_s))
    payload = frame.sealed(probe, key, str(target or endpoint), size=64, wall_ns=sent_ns)
    return kept.holds(endpoint, payload, frame.decode(payload), wall_ns=at_ns)


def made():
    kept = Seals()
    kept.keys = {C0: KEY, C1: KEY}
    return kept


def test_what_has_the_seal_of_its_group_holds():
    assert held(made(), 1)
    assert not held(made(), 1, key=b"o" * 16)
    assert not held(Seals(), 1)
    probe = frame.Frame(7, 1, 50000)
    plain = frame.encode(probe, size=64)
    assert not made().holds(C0, plain, probe, wall_ns=NOW_NS)


def test_what_was_sent_to_one_endpoint_does_not_hold_at_another():
    assert not held(made(), 1, endpoint=C0, target=C1)


@given(st.lists(st.integers(0, 20), max_size=40), st.sampled_from([0, (1 << 32) - 10]))
def test_what_is_sent_again_or_late_does_not_hold(seqs, base):
    kept, newest = made(), None
    for seq in seqs:
        assert held(kept, (base + seq) & 0xFFFFFFFF) == (newest is None or seq > newest)
        newest = max(seq, newest if newest is not None else seq)


@given(st.integers(0, 59))
def test_what_was_heard_is_worth_nothing_after_two_minutes_to_who_has_forgotten_all(sent_s):
    assert not held(made(), 1, sent_s=sent_s, at_s=sent_s + 120)


@given(st.integers(0, 120), st.integers(-60, 60))
def test_clocks_that_differ_by_less_than_a_minute_take_nothing_from_a_seal(sent_s, off_s):
    assert held(made(), 1, sent_s=sent_s, at_s=sent_s + off_s)


def test_who_numbers_a_flow_far_ahead_takes_its_seals_only_until_the_next_minute():
    kept = made()
    assert held(kept, 5)
    assert held(kept, 1 << 30)
    assert not held(kept, 6, sent_s=59, at_s=59)
    assert held(kept, 7, sent_s=60, at_s=60)
    assert held(kept, 8, sent_s=61, at_s=61)
    assert not held(kept, 1 << 30, at_s=61)  # nor does what was heard before hold once more


def test_clocks_that_were_an_hour_ahead_take_no_seal_once_they_are_right():
    kept = made()
    assert held(kept, 5, sent_s=3600, at_s=3600)
    assert held(kept, 6)
    assert not held(kept, 6)


def test_flows_are_told_apart_and_those_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(seals, "MAX_FLOWS", 4)
    kept = made()
    for port in (1, 2, 3):
        assert held(kept, 5, port=port)
    assert not held(kept, 5, port=3)
    assert held(kept, 5, session=8, port=1)
    assert held(kept, 5, session=8, port=2)
    assert held(kept, 4, port=1)  # the first flow is forgotten
    assert not held(kept, 5, session=8, port=2)


def test_flows_that_end_do_not_add_up():
    """A container that ends each minute for a day."""
    kept = made()
    for minute in range(24 * 60):
        for port in range(4):
            assert held(kept, 1, session=minute, port=port, sent_s=60 * minute, at_s=60 * minute)
    assert len(kept._newest) <= 4 * 6


@given(st.integers(0, 120), st.integers(-60, 60), st.integers(0, 300), st.integers(0, 40))
def test_what_has_a_seal_still_is_not_taken_twice_however_much_came_since(
    sent_s, off_s, later_s, others
):
    """What another endpoint's flows make forgotten is worth nothing any more."""
    kept, took_s = made(), sent_s + off_s
    assert held(kept, 1, sent_s=sent_s, at_s=took_s)
    for n in range(others):
        at_s = took_s + n * later_s // others
        held(kept, 1, endpoint=C1, session=n, sent_s=at_s, at_s=at_s)
    assert not held(kept, 1, sent_s=sent_s, at_s=took_s + later_s)
