# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.rates import HOLD_NS, REDUCED, PortRate, RateWatch
from netagent.model.finding import FindingKind

G = 10**9
FULL, HALF = PortRate(400 * G, 4), PortRate(200 * G, 2)


def seen(*readings, every_ns=HOLD_NS):
    """Return what is found after these readings of one port, or of several."""
    watch, found = RateWatch("h0"), ()
    for number, each in enumerate(readings):
        read = each if isinstance(each, dict) else {"rnic0": each}
        found = watch.observe(read, now_ns=number * every_ns)
    return found


def test_a_port_that_trained_slower_than_it_ran_is_found_at_the_second_reading():
    assert seen(FULL, FULL, HALF) == ()
    (finding,) = seen(FULL, FULL, HALF, HALF)
    assert (finding.kind, str(finding.component)) == (FindingKind.RATE_REDUCED, "rnic h0/rnic0")
    assert finding.text == (
        "rnic0 runs at 200 Gb/s (2 lanes), and ran at 400 Gb/s (4 lanes) before: nothing is lost, "
        "but it carries 50% of what it should"
    )
    assert finding.evidence == {"rate": "200 Gb/s (2 lanes)", "usual": "400 Gb/s"}


def test_one_odd_reading_is_nothing_whichever_way():
    assert seen(FULL, FULL, HALF, FULL, HALF, FULL) == ()
    assert seen(HALF, HALF, FULL, HALF, HALF) == ()  # it never ran faster, as far as is known
    assert len(seen(FULL, FULL, HALF, HALF, FULL)) == 1
    assert seen(FULL, FULL, HALF, HALF, FULL, FULL) == ()


def test_readings_soon_after_each_other_are_one():
    often = {"every_ns": HOLD_NS // 3 + 1}
    assert seen(*4 * [FULL], *3 * [HALF], **often) == ()
    assert len(seen(*4 * [FULL], *4 * [HALF], **often)) == 1


def test_a_port_that_does_not_say_is_not_slow():
    assert seen(None, None) == ()
    assert seen(FULL, FULL, None, None) == ()
    assert len(seen(FULL, FULL, HALF, HALF, None)) == 1  # one reading without a word
    assert seen(FULL, FULL, HALF, HALF, None, None) == ()
    assert len(seen(FULL, FULL, None, None, HALF, HALF)) == 1  # it is remembered what it was


def test_what_is_nearly_as_fast_is_not_slow():
    assert seen(FULL, FULL, *2 * [PortRate(round(REDUCED * FULL.bps))]) == ()


def rails(*rates):
    return {f"rnic{n}": rate for n, rate in enumerate(rates)}


def test_a_port_slower_than_all_others_of_its_host_is_found_without_any_past():
    (finding,) = seen(*2 * [rails(FULL, HALF, FULL, FULL)])
    assert finding.component.name == "h0/rnic1"
    assert "and the host's 3 others at 400 Gb/s" in finding.text


def test_two_ports_or_ports_that_differ_by_design_say_nothing_of_each_other():
    assert seen(*2 * [rails(FULL, HALF)]) == ()
    assert seen(*2 * [rails(FULL, HALF, FULL)]) == ()
    assert seen(*2 * [rails(FULL, HALF, FULL, HALF)]) == ()
    assert seen(*2 * [rails(FULL, HALF, None)]) == ()


def test_a_port_that_is_gone_is_forgotten():
    assert seen(FULL, FULL, {}, HALF, HALF) == ()


@given(st.lists(st.sampled_from([None, FULL, HALF, PortRate(100 * G)]), max_size=20))
def test_a_port_is_slow_iff_what_was_read_twice_last_is_less_than_what_was_read_twice_ever(reads):
    steady, best = None, 0
    for before, now in zip([0, *reads], reads, strict=False):
        steady = now if now == before else steady
        best = max(best, steady.bps) if steady else best
    assert bool(seen(*reads)) == (steady is not None and steady.bps < REDUCED * best)
