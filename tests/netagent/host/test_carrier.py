# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.carrier import FLAP_COUNT, FLAP_HOLD_NS, FLAP_SPAN_NS, RnicWatch
from netagent.host.facts import Link
from netagent.model.finding import FindingKind
from tests.netagent.host.small_host import S


def link(**facts) -> dict[str, Link]:
    return {"rnic0": Link(index=2, name="rnic0", **facts)}


UP, NO_CARRIER = link(), link(carrier=False, operstate="down")


def kinds(watch: RnicWatch) -> list[FindingKind]:
    return [each.kind for each in watch.findings(wall_ns=0)]


def watching(*sights, every_ns: int = S) -> RnicWatch:
    watch = RnicWatch("h0")
    for number, links in enumerate(sights):
        watch.observe(["rnic0"], links, now_ns=number * every_ns)
    return watch


@pytest.mark.parametrize(
    ("links", "text"),
    [
        (link(up=False), "rnic0 is administratively down"),
        (NO_CARRIER, "rnic0 has no carrier (operstate down)"),
        ({}, "rnic0 does not exist"),
    ],
)
def test_a_device_that_carries_nothing_is_down(links, text):
    (finding,) = watching(links).findings(wall_ns=7)
    assert (finding.kind, str(finding.component)) == (FindingKind.RNIC_DOWN, "rnic h0/rnic0")
    assert (finding.text, finding.wall_ns) == (text, 7)


def test_a_device_that_works_is_no_finding():
    assert kinds(watching(UP)) == []


def test_one_outage_and_its_repair_are_no_flapping():
    assert kinds(watching(UP, NO_CARRIER, UP)) == []


def test_three_transitions_within_the_span_are_flapping():
    watch = watching(UP, NO_CARRIER, UP, NO_CARRIER)
    assert kinds(watch) == [FindingKind.RNIC_DOWN, FindingKind.RNIC_FLAPPING]
    assert watch.deadline_ns() == 3 * S + FLAP_HOLD_NS


def test_the_kernel_s_counter_has_the_transitions_between_two_sights():
    watch = watching(link(carrier_changes=2), link(carrier_changes=5))
    assert kinds(watch) == [FindingKind.RNIC_FLAPPING]


def test_a_change_seen_first_and_counted_later_is_one_transition():
    """An administrative change: the flag goes first, the carrier's event follows."""
    watch = watching(
        link(carrier_changes=2),
        link(up=False, carrier=True, carrier_changes=2),
        link(up=False, carrier=False, carrier_changes=3),
        link(up=True, carrier=True, carrier_changes=4),
    )
    assert kinds(watch) == []


def test_transitions_further_apart_than_the_span_are_no_flapping():
    assert kinds(watching(*[UP, NO_CARRIER] * 4, UP, every_ns=FLAP_SPAN_NS // 2 + 1)) == []


def test_flapping_is_kept_until_the_device_was_quiet_for_long_enough():
    watch = watching(UP, NO_CARRIER, UP, NO_CARRIER, UP)
    last_ns = 4 * S
    watch.observe(["rnic0"], UP, now_ns=last_ns + FLAP_HOLD_NS - 1)
    assert kinds(watch) == [FindingKind.RNIC_FLAPPING]
    watch.observe(["rnic0"], UP, now_ns=last_ns + FLAP_HOLD_NS)
    assert kinds(watch) == []
    assert watch.deadline_ns() is None


def test_a_device_made_anew_starts_counting_from_nought():
    watch = watching(link(carrier_changes=9), {}, link(carrier_changes=1))
    assert kinds(watch) == []
    watch.observe(["rnic0"], link(carrier_changes=2), now_ns=3 * S)
    assert FindingKind.RNIC_FLAPPING in kinds(watch)


def test_a_device_nobody_names_any_more_is_forgotten():
    watch = watching(NO_CARRIER)
    watch.observe([], NO_CARRIER, now_ns=S)
    assert kinds(watch) == []


@given(st.lists(st.tuples(st.integers(0, 20 * S), st.booleans()), max_size=40))
def test_flapping_needs_three_transitions_within_the_span(steps):
    watch, now_ns, was, times = RnicWatch("h0"), 0, True, []
    watch.observe(["rnic0"], UP, now_ns=0)
    for after_ns, up in steps:
        now_ns += after_ns
        if up != was:
            times.append(now_ns)
        was = up
        watch.observe(["rnic0"], UP if up else NO_CARRIER, now_ns=now_ns)
        found = kinds(watch)
        assert (FindingKind.RNIC_DOWN in found) == (not up)
        recent = any(
            third - first <= FLAP_SPAN_NS
            for first, third in zip(times, times[FLAP_COUNT - 1 :], strict=False)
        )
        if FindingKind.RNIC_FLAPPING in found:
            assert recent
            assert now_ns - times[-1] < FLAP_HOLD_NS
        elif len(times) >= FLAP_COUNT and now_ns - times[-1] < FLAP_HOLD_NS:
            assert (
                times[-1] - times[-FLAP_COUNT] > FLAP_SPAN_NS or now_ns - times[-3] > FLAP_SPAN_NS
            )
