# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.inventory import Aspect, parts_of
from analyzer.intake.windows import AHEAD_NS
from analyzer.roster.uniformity import (
    FORGET_NS,
    LEAST_OTHERS,
    MAJORITY_PERCENT,
    MOST_NAMED,
    MOST_REMARKS,
    MOST_VALUES,
    TURNED_NS,
    Odd,
    State,
    Uniformity,
    Value,
)
from netagent.model.path import Component, Kind, rnic
from netagent.wire.inventory import MOST_RNICS, Inventory, RnicInventory

NOW_NS = 1_800_000_000 * 10**9
MINUTE_NS = 60 * 10**9
OLD, NEW = "28.36.1010", "28.39.1002"
MODEL = "15b3:1021"
FIRMWARE = Aspect(Kind.RNIC, MODEL, "firmware")
KERNEL = Aspect(Kind.HOST, MODEL, "kernel")


def told(*firmware, model=MODEL, **host):
    """Return the inventory of a host with RNICs of such firmware."""
    rnics = (
        RnicInventory(netdev=f"rnic{number}", model=model, firmware=each)
        for number, each in enumerate(firmware)
    )
    return Inventory(rnics=tuple(rnics), **host)


def say(book, host, inventory, now_ns=NOW_NS):
    book.take(host, now_ns, parts_of(host, inventory), now_ns)


def book_of(inventories, now_ns=NOW_NS):
    book = Uniformity()
    for host, inventory in inventories.items():
        say(book, host, inventory, now_ns)
    return book


def cluster(hosts, *firmware):
    return {f"h{number:04d}": told(*(firmware or [OLD] * 8)) for number in range(hosts)}


def compared(book, aspect=FIRMWARE):
    return {each.aspect: each for each in book.compared()}[aspect]


def test_all_that_are_alike_are_nobodys_concern():
    book = book_of(cluster(20))
    found = compared(book)
    assert (found.state, found.hosts, found.parts) == (State.ALIKE, 20, 160)
    assert found.values == (Value(OLD, 20, 160, True),)
    assert book.remarks(rnic("h0003", "rnic1")) == ()


def test_an_rnic_that_differs_from_nearly_all_is_named():
    book = book_of(cluster(64) | {"h0007": told(*[OLD] * 7, NEW)})
    found = compared(book)
    assert (found.state, found.hosts, found.parts) == (State.DIFFERENT, 64, 512)
    assert found.odd == (Odd("h0007/rnic7", NEW),)
    assert found.values == (Value(OLD, 64, 511, True), Value(NEW, 0, 1, False))
    (said,) = book.remarks(rnic("h0007", "rnic7"))
    assert said == (
        f"its firmware {NEW} differs from 511 of 512 RNICs of the same model, which have {OLD}"
    )
    assert book.remarks(rnic("h0007", "rnic6")) == ()
    (of_host,) = book.remarks(Component(Kind.HOST, "h0007"))
    assert of_host.startswith(f"h0007/rnic7: firmware {NEW} differs from 511 of 512")


def test_a_host_that_differs_is_named_and_compared_with_hosts_of_the_same_rnics():
    hosts = {f"a{n}": told(OLD, kernel="6.1") for n in range(10)}
    hosts |= {f"b{n}": told("9", model="15b3:1019", kernel="5.15") for n in range(10)}
    book = book_of(hosts | {"a3": told(OLD, kernel="6.12")})
    assert compared(book, KERNEL).odd == (Odd("a3", "6.12"),)
    assert compared(book, KERNEL._replace(model="15b3:1019")).state is State.ALIKE
    (said,) = book.remarks(Component(Kind.HOST, "a3"))
    assert said == "its kernel 6.12 differs from 9 of 10 hosts with such RNICs, which have 6.1"
    assert book.remarks(rnic("a3", "rnic0")) == ()


@pytest.mark.parametrize(
    ("hosts", "odd", "state"),
    [
        (LEAST_OTHERS, 1, State.FEW),
        (LEAST_OTHERS + 1, 1, State.DIFFERENT),
        (LEAST_OTHERS + 1, 2, State.SPLIT),
        (101, 11, State.DIFFERENT),
        (101, 12, State.SPLIT),
        (100, 50, State.SPLIT),
        (1, 0, State.FEW),
    ],
)
def test_where_too_few_agree_nobody_can_tell(hosts, odd, state):
    assert MAJORITY_PERCENT == 90
    inventories = cluster(hosts, OLD) | {f"h{n:04d}": told(NEW) for n in range(odd)}
    book = book_of(inventories)
    found = compared(book)
    assert found.state is state
    assert len(found.odd) == (odd if state is State.DIFFERENT else 0)
    assert bool(book.remarks(rnic("h0000", "rnic0"))) is (state is State.DIFFERENT)


def turning(hosts, turned, *, by_ns=MINUTE_NS):
    """Return a cluster of which some hosts turned to new firmware, one after the other."""
    book = book_of(cluster(hosts, OLD))
    for number in range(turned):
        say(book, f"h{number:04d}", told(NEW), NOW_NS + by_ns)
    return book


@pytest.mark.parametrize("turned", [6, 37, 256, 500, 511])
def test_hosts_that_turn_one_after_the_other_are_a_rollout_whoever_is_ahead(turned):
    book = turning(512, turned)
    found = compared(book)
    assert (found.state, found.turned, found.odd) == (State.ROLLOUT, turned, ())
    assert {(each.value, each.hosts, each.usual) for each in found.values} == {
        (NEW, turned, True), (OLD, 512 - turned, True)
    }  # fmt: skip
    first = "h0511" if turned > 256 else "h0000"
    (said,) = book.remarks(rnic(first, "rnic0"))
    assert said.endswith(f"; a rollout is under way ({turned} hosts turned within a day)")


def test_a_rollout_that_is_over_or_rests_for_days_is_none():
    assert compared(turning(512, 512)).state is State.ALIKE
    book, later_ns = turning(512, 37), NOW_NS + MINUTE_NS + TURNED_NS
    for number in range(512):
        say(book, f"h{number:04d}", told(NEW if number < 37 else OLD), later_ns)
    book.expire(later_ns - 1)
    assert (compared(book).state, compared(book).turned) == (State.ROLLOUT, 37)
    book.expire(later_ns)
    found = compared(book)
    assert (found.state, found.turned, len(found.odd)) == (State.DIFFERENT, 0, 37)


def test_an_rnic_that_a_rollout_left_behind_is_named():
    book = book_of(cluster(20, OLD, OLD, OLD))
    for number in range(20):
        say(book, f"h{number:04d}", told(NEW, NEW, OLD if number == 3 else NEW))
    found = compared(book)
    assert (found.state, found.odd) == (State.DIFFERENT, (Odd("h0003/rnic2", OLD),))


def test_hosts_that_turned_and_are_gone_tell_of_no_rollout():
    book = turning(20, 3)
    assert compared(book).turned == 3
    book.drop("h0000")
    say(book, "h0001", told("", kernel="6.1"), NOW_NS + 2 * MINUTE_NS)  # its firmware is not read
    assert (compared(book).turned, compared(book).odd) == (0, (Odd("h0002/rnic0", NEW),))


def test_a_host_that_turned_has_turned_also_where_one_of_its_rnics_is_exchanged():
    book = book_of(cluster(20, OLD, OLD, OLD))
    for host in ("h0000", "h0001"):
        for minute, firmware in ((1, (NEW, NEW, OLD)), (2, (NEW, NEW, NEW))):
            say(book, host, told(*firmware), NOW_NS + minute * MINUTE_NS)
    assert (compared(book).state, compared(book).turned) == (State.ROLLOUT, 2)


def test_one_host_that_changed_is_no_rollout():
    found = compared(turning(20, 1))
    assert (found.state, found.turned, found.odd) == (
        State.DIFFERENT,
        0,
        (Odd("h0000/rnic0", NEW),),
    )


def test_two_of_hundreds_that_fell_back_alike_are_named():
    found = compared(turning(512, 2))
    assert (found.state, found.turned, len(found.odd)) == (State.DIFFERENT, 0, 2)


@pytest.mark.parametrize(
    "inventories",
    [
        cluster(64, *[OLD] * 5, *[NEW] * 3),
        cluster(64, *[OLD] * 4, *[NEW] * 4),
        cluster(1000, *[OLD] * 4, *[NEW] * 4) | {f"u{n}": told(*[OLD] * 8) for n in range(9)},
    ],
)
def test_what_each_host_has_of_both_is_nobodys_fault(inventories):
    """Be it a rail's purpose, or two storage ports of the same model."""
    book = book_of(inventories)
    found = compared(book)
    assert (found.state, found.hosts, found.odd) == (State.SPLIT, len(inventories), ())
    assert book.remarks(rnic("h0007", "rnic7")) == ()


def test_who_differs_from_both_sides_of_a_rollout_is_named():
    book = turning(100, 37)
    say(book, "h0099", told("20.1"))
    found = compared(book)
    assert (found.state, found.odd) == (State.ROLLOUT, (Odd("h0099/rnic0", "20.1"),))
    (said,) = book.remarks(rnic("h0099", "rnic0"))
    assert "rollout" not in said


def test_a_host_that_reboots_for_its_firmware_is_seen_to_turn():
    book = book_of(cluster(20, OLD))
    after_ns = NOW_NS + 15 * MINUTE_NS
    book.expire(after_ns)
    for host in ("h0001", "h0002"):
        say(book, host, told(NEW), after_ns)
    assert compared(book).state is State.ROLLOUT


def test_a_host_that_lies_has_one_vote_and_takes_nobodys_place():
    honest = cluster(40) | {"h0007": told(*[OLD] * 7, NEW)}
    lies = told(*(f"!{number}" for number in range(MOST_RNICS)))
    book = book_of(honest | {"liar": lies})
    found = compared(book)
    assert (found.state, found.hosts) == (State.DIFFERENT, 41)
    assert sum(each.hosts for each in found.values) == 40  # what disagrees has no vote
    assert Odd("h0007/rnic7", NEW) in found.odd
    assert len(found.values) == MOST_VALUES
    assert len(found.odd) == MOST_RNICS + 1
    alike = book_of(cluster(10, OLD) | {"liar": told(*[NEW] * MOST_RNICS)})
    assert {each.name.split("/")[0] for each in compared(alike).odd} == {"liar"}


def test_a_host_that_invents_models_costs_others_nothing():
    models = tuple(
        RnicInventory(netdev=f"r{n}", model=f"m{n}", firmware="1") for n in range(MOST_RNICS)
    )
    book = book_of(cluster(20) | {"liar": Inventory(rnics=models)})
    few = [each for each in book.compared() if each.state is State.FEW]
    assert len(few) == MOST_RNICS
    assert compared(book).state is State.ALIKE
    book.drop("liar")
    assert [each.aspect for each in book.compared()] == [FIRMWARE]


def test_of_too_many_that_differ_each_host_has_its_first_named():
    hosts = {f"h{number:05d}": told(OLD) for number in range(9 * MOST_NAMED)}
    odd = {f"x{number:05d}": told(NEW, NEW) for number in range(MOST_NAMED - 6)}
    found = compared(book_of(hosts | odd))
    assert (len(found.odd), found.more_odd) == (MOST_NAMED, MOST_NAMED - 12)
    assert {each.name.split("/")[0] for each in found.odd} == odd.keys()


def test_remarks_are_bounded():
    rnics = (RnicInventory(netdev="r", model=MODEL, firmware=f"{n}", mtu=n) for n in range(12))
    hosts = {f"h{n}": Inventory(rnics=(each,)) for n, each in enumerate(rnics)}
    assert book_of(hosts).remarks(Component(Kind.HOST, "h1")) == ()
    odd = told(*(f"{n}" for n in range(12)))
    book = book_of(cluster(20) | {"odd": odd})
    assert len(book.remarks(Component(Kind.HOST, "odd"))) == MOST_REMARKS
    assert book.remarks(Component(Kind.SWITCH, "h0001")) == ()
    assert book.remarks(Component(Kind.HOST, "elsewhere")) == ()


def test_what_is_old_or_of_a_clock_far_ahead_is_passed_over():
    book = book_of(cluster(12, OLD))
    for start_ns in (NOW_NS - 1, NOW_NS + AHEAD_NS + 1):
        book.take("h0001", start_ns, parts_of("h0001", told(NEW)), NOW_NS)
    book.take("late", NOW_NS - FORGET_NS, parts_of("late", told(NEW)), NOW_NS)
    assert (compared(book).state, book.hosts) == (State.ALIKE, 12)
    # A clock that was ahead, within what is taken, and was set right since.
    book.take("h0001", NOW_NS + AHEAD_NS, parts_of("h0001", told(NEW)), NOW_NS)
    book.take("h0001", NOW_NS, parts_of("h0001", told(OLD)), NOW_NS)
    assert compared(book).state is State.ALIKE


def test_a_silent_host_is_dropped_after_an_hour():
    book = book_of(cluster(12, OLD) | {"gone": told(NEW)})
    for number in range(12):
        say(book, f"h{number:04d}", told(OLD), NOW_NS + FORGET_NS)
    book.expire(NOW_NS + FORGET_NS - 1)
    assert book.hosts == 13
    book.expire(NOW_NS + FORGET_NS)
    assert (compared(book).state, book.hosts) == (State.ALIKE, 12)


# --- the same, literally ------------------------------------------------------------------------


def naive(inventories):
    """Return the state of each aspect and the names of who differs, all counted anew."""
    aspects = {}
    for host, inventory in inventories.items():
        for aspect, values in parts_of(host, inventory).items():
            aspects.setdefault(aspect, {})[host] = values
    return {aspect: _naive(of) for aspect, of in aspects.items()}


def _naive(hosts):
    votes, parts = Counter(), Counter()
    for values in hosts.values():
        flat = Counter({value: len(names) for value, names in values.items()})
        parts += flat
        value, most = flat.most_common(1)[0]
        votes[value] += 2 * most > flat.total()
    top = min(parts, key=lambda value: (-votes[value], -parts[value], value))
    named = {n: v for values in hosts.values() for v, names in values.items() for n in names}
    odd = {name for name, value in named.items() if value != top}
    others = len(hosts) - 1
    if others < LEAST_OTHERS:
        return State.FEW, set()
    if not odd:
        return State.ALIKE, set()
    agree = sum(values.keys() == {top} for values in hosts.values())
    enough = agree >= LEAST_OTHERS and 10 * agree >= 9 * others
    return (State.DIFFERENT, odd) if enough else (State.SPLIT, set())


FIRMWARES = st.sampled_from([OLD] * 8 + [NEW, "1"])
INVENTORIES = st.builds(
    lambda firmware, model, kernel: told(*firmware, model=model, kernel=kernel),
    st.lists(FIRMWARES, max_size=4),
    st.sampled_from([MODEL] * 6 + ["other"]),
    st.sampled_from(["6.1"] * 6 + ["6.12", ""]),
)
CLUSTERS = st.integers(0, 14).flatmap(
    lambda hosts: st.fixed_dictionaries({f"h{n}": INVENTORIES for n in range(hosts)})
)


@given(CLUSTERS, st.randoms(use_true_random=False))
def test_whatever_order_hosts_come_in_the_answer_is_the_same(inventories, random):
    names = list(inventories)
    random.shuffle(names)
    book = book_of({name: inventories[name] for name in names})
    assert book.compared() == book_of(inventories).compared()
    found = {e.aspect: (e.state, {odd.name for odd in e.odd}) for e in book.compared()}
    assert found == naive(inventories)


@given(CLUSTERS, CLUSTERS, st.data())
def test_what_is_left_of_a_host_that_changes_or_is_forgotten_is_nothing(first, second, data):
    book = book_of(first)
    for host, inventory in second.items():
        say(book, host, inventory, NOW_NS + MINUTE_NS)
    kept = dict(first | second)
    for host in data.draw(st.sets(st.sampled_from(sorted(kept))) if kept else st.just(set())):
        book.drop(host)
        del kept[host]
    book.drop("nobody")
    later_ns = NOW_NS + MINUTE_NS + TURNED_NS  # when no turn counts any more
    for host, inventory in kept.items():
        say(book, host, inventory, later_ns)
    book.expire(later_ns)
    fresh = book_of(kept, later_ns)
    assert book.compared() == fresh.compared()
    assert book.hosts == fresh.hosts
