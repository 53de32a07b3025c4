# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster.ledger import SPARE, Ledger
from netagent.wire.codec import decode
from netagent.wire.roster import Member, digest_of, digest_of_all


def member(name, address="10.0.0.1"):
    return Member(name, "h0", address, "172.30.0.1")


def put(changes):
    return {each.container: each for each in decode(changes.put, tuple[Member, ...])}


def of(*members):
    """Return a ledger with `members`."""
    ledger = Ledger()
    for each in members:
        ledger.put(each.container, each)
    return ledger


def test_a_state_is_named_by_its_content_whatever_led_to_it():
    ledger = of(member("a"), member("b"))
    other = of(member("b"), member("c"), member("a", "10.0.0.9"))
    other.drop("c")
    assert ledger.digest != other.digest
    other.put("a", member("a"))
    assert ledger.digest == other.digest
    assert of().digest == digest_of_all(())
    assert of(member("a")).digest == digest_of_all([digest_of(member("a"))])


def test_who_has_an_earlier_state_is_told_what_changed_and_no_more():
    ledger = of(member("a"), member("b"), member("c"))
    held = ledger.digest
    ledger.put("a", member("a", "10.0.0.9"))
    ledger.drop("b")
    ledger.put("d", member("d"))
    found = ledger.since(held)
    assert not found.whole
    assert put(found) == {"a": member("a", "10.0.0.9"), "d": member("d")}
    assert found.gone == ("b",)
    now = ledger.since(ledger.digest)
    assert (now.whole, put(now), now.gone) == (False, {}, ())


def test_who_has_nothing_or_what_nobody_knows_is_told_everything():
    ledger = of(member("a"), member("b"))
    for held in (None, b"\1" * 16):
        found = ledger.since(held)
        assert found.whole
        assert set(put(found)) == {"a", "b"}


def test_what_is_put_again_and_what_is_not_there_change_nothing():
    ledger = of(member("a"))
    held = ledger.digest
    ledger.put("a", member("a"))
    ledger.drop("b")
    assert ledger.digest == held
    assert len(ledger._log) == 1


def test_what_is_remembered_is_bounded():
    ledger = of(member("a"))
    held = ledger.digest
    for n in range(10 * SPARE):
        ledger.put("a", member("a", f"10.0.1.{n % 256}"))
        assert ledger.digest
    assert len(ledger._log) == len(ledger) + SPARE
    assert len(ledger._numbers) <= len(ledger._log)
    assert ledger.since(held).whole


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "10.0.0.1", "10.0.0.2"])),
        max_size=60,
    ),
    st.integers(0, 59),
)
def test_changes_lead_from_any_state_to_the_present_one(steps, at):
    ledger, there, held = Ledger(), {}, (None, {})
    for n, (key, address) in enumerate(steps):
        if n == at:
            held = ledger.digest, dict(there)
        if address is None:
            ledger.drop(key)
            there.pop(key, None)
        else:
            ledger.put(key, member(key, address))
            there[key] = member(key, address)
    found = ledger.since(held[0])
    made = {} if found.whole else held[1]
    for key in found.gone:
        made.pop(key, None)  # it may have come and gone
    made.update(put(found))
    assert made == there
    assert ledger.digest == digest_of_all(sorted(map(digest_of, there.values())))


def test_states_that_nobody_asked_for_cost_no_memory_of_them():
    ledger = of(*(member(f"m{n}") for n in range(50)))
    assert ledger._numbers == {}
    held = ledger.digest
    ledger.drop("m7")
    assert not ledger.since(held).whole
    assert list(ledger._numbers) == [held]
