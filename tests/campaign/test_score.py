# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.campaign.episode import Outcome, Said, Truth
from tests.campaign.options import Options
from tests.campaign.report import lines, plain
from tests.campaign.score import UNCONNECTED, Bin, false_alarms, poisson, reliability, score, wilson

JUDGING = Options().seed
LINK = Truth(1, "CRC error", "link a -- b", "link", (), 1.0)
RNIC = Truth(5, "RNIC", "rnic h/x", "rnic", ("endpoint c/rail0",), 2.0)


def said(component, *alternatives, name="i", at_s=5.0, confidence=0.9, state="open"):
    return Said(name, at_s, component, None, confidence, alternatives, state)


def total(*outcomes):
    return score(outcomes).total


def test_a_failure_that_is_named_is_detected_and_localised():
    made = score([Outcome(1, (LINK,), (said("link a -- b"),), 30)])
    assert (made.total.detected, made.total.first, made.right, made.named) == (1, 1, 1, 1)
    assert made.total.seconds == [4.0]
    assert made.verdicts == [(0.9, True)]


def test_what_nothing_tells_from_the_truth_counts_as_it():
    assert total(Outcome(1, (RNIC,), (said("endpoint c/rail0"),), 30)).first == 1


def test_a_wrong_name_is_no_detection_and_costs_precision():
    made = score([Outcome(1, (LINK,), (said("link a -- c"),), 30)])
    assert (made.total.detected, made.total.first, made.right, made.named) == (0, 0, 0, 1)
    assert dict(made.wrong) == {"1 -> link a -- c": 1}


def test_an_incident_that_names_nobody_detects_and_its_alternatives_are_top_two():
    found = total(Outcome(1, (LINK,), (said(None, "link a -- c", "link a -- b"),), 30))
    assert (found.detected, found.first, found.second) == (1, 0, 1)


def test_the_last_word_of_an_incident_counts_but_not_that_it_is_over():
    told = (said(None), said("link a -- b"), said("link a -- b", state="recovered"))
    assert total(Outcome(1, (LINK,), told, 30)).first == 1


def test_of_two_failures_each_needs_its_own_name():
    found = total(Outcome(1, (LINK, RNIC), (said("rnic h/x"),), 30))
    assert (found.failures, found.detected, found.first) == (2, 1, 1)


def test_alarms_in_health_are_counted_per_rnic_and_day():
    healthy = [Outcome(1, (), (said("link a -- b"), said(None, name="j")), 43_200)]
    assert false_alarms(healthy, rnics=10) == (2, 1, 5.0)
    assert score(healthy).right == 0


def test_intervals_hold_what_is_known_of_them():
    low, high = wilson(100, 100)
    assert (round(low, 3), high) == (0.963, 1.0)
    assert wilson(0, 0) == (0.0, 1.0)
    assert poisson(0) == (0.0, pytest.approx(3.69, abs=0.1))
    assert poisson(10)[0] == pytest.approx(4.8, abs=0.1)


def test_reliability_is_by_bins():
    rows = reliability([(0.94, True), (0.94, False), (0.5, True)])
    assert rows == [Bin(0.5, 1, 1), Bin(0.94, 1, 2)]
    assert (rows[1].share, rows[1].interval) == (0.5, wilson(1, 2))


def test_an_episode_is_wholly_right_if_all_are_named_and_nobody_else():
    both, other = (said("link a -- b"), said("rnic h/x", name="j")), said("link c -- d", name="k")
    made = score(
        [
            Outcome(1, (LINK, RNIC), both, 30),
            Outcome(2, (LINK, RNIC), both[:1], 30),
            Outcome(3, (LINK, RNIC), (*both, other), 30),
            Outcome(4, (), (), 30),
        ]
    )
    assert (made.whole, made.episodes) == (1, 3)


def test_of_what_is_no_fault_nobody_may_be_named():
    step = Truth(22, "clock step", "host h", "host", (), 1.0, harmless=True)
    quiet, loud = Outcome(1, (step,), (said(None),), 30), Outcome(2, (step,), (said("host h"),), 30)
    made = score([quiet, loud, Outcome(3, (step, LINK), (said("link a -- b"),), 30)])
    assert dict(made.harmless) == {22: [True, False, True]}
    assert (made.total.failures, made.named, made.right) == (1, 2, 1)
    assert (made.whole, made.episodes, made.wrong_seeds) == (2, 3, [2])
    told = "\n".join(lines(made, [quiet, loud], rnics=256))
    assert "22 clock step: no part named       66.67 %" in told
    assert "seeds: 2" in told


def test_a_clock_that_is_wrong_may_be_told():
    step = Truth(22, "clock step", "host h", "host", ("host h",), 1.0, harmless=True)
    told, wrong = Outcome(1, (step,), (said("host h"),), 30), (said("host i"),)
    made = score([told, Outcome(2, (step,), wrong, 30)])
    assert (dict(made.harmless), made.right, made.wrong_seeds) == ({22: [True, False]}, 1, [2])


def test_links_and_switches_are_counted_by_themselves_as_well():
    made = score([Outcome(1, (LINK, RNIC), (said("rnic h/x"),), 30)])
    assert (made.places.failures, made.places.first) == (1, 0)
    assert (made.total.failures, made.total.first) == (2, 1)


def test_unconnectivity_is_counted_by_itself_as_well():
    down = Truth(2, "switch port down", "link c -- d", "link", (), 1.0)
    outcomes = [Outcome(1, (LINK, down), (said("link c -- d", at_s=4.0),), 30)]
    made = score(outcomes)
    assert (made.of(UNCONNECTED).failures, made.of(UNCONNECTED).seconds) == (1, [3.0])
    told = lines(made, outcomes, rnics=256)
    assert any(line.startswith("those that are unconnectivity       1  100.0%") for line in told)
    assert not any("unconnectivity" in line for line in lines(score([]), [], rnics=256))


def test_the_confidence_that_counts_is_the_one_that_was_stated_first():
    told = (said("link a -- b", confidence=0.6), said("link a -- b", confidence=0.9))
    assert score([Outcome(1, (LINK,), told, 30)]).verdicts == [(0.6, True)]


def test_the_report_holds_confidence_against_what_was_right():
    outcomes = [Outcome(1, (LINK,), (said("link a -- b"),), 30)]
    told = "\n".join(lines(score(outcomes), outcomes, rnics=256))
    assert "0.900  1.000 (1 of 1, 0.207 to 1.000)" in told
    assert "+0.100" in told
    assert "episodes wholly right       100.00 %" in told


def test_a_file_of_several_versions_says_so():
    outcomes = [Outcome(n, (LINK,), (), 30, version=each) for n, each in enumerate("aabb")]
    assert lines(score(outcomes), outcomes, rnics=9)[-1].endswith(": 2 by a, 2 by b")
    assert not any("versions" in line for line in lines(score([]), outcomes[:2], rnics=9))


def test_what_was_said_while_it_warmed_up_counts_apart_and_an_accusation_in_precision():
    told = (said("link a -- b"), said(None, name="j"))
    warmed = Outcome(JUDGING, (), told, 300, ("odd",), warming=True)
    outcomes = [warmed, Outcome(JUDGING, (), (), 50)]
    made = score(outcomes)
    assert (made.named, made.right, made.broken) == (1, 0, 1)
    assert dict(made.wrong) == {"warming up -> link a -- b": 1}
    text = "\n".join(lines(made, outcomes, rnics=864))
    assert "0 false alarms in 0.5 RNIC-days" in text
    assert "2 alarms while the fabric warmed up, 1 name nobody" in text
    assert "0 of 10 windows of health" in text
    assert plain(made, outcomes, rnics=864)["warming"] == {"alarms": 2, "named": 1}
    assert "warmed" not in "\n".join(lines(score(outcomes[1:]), outcomes[1:], rnics=864))


def test_episodes_that_rules_were_made_of_say_so():
    tuning, judging = Outcome(7_000_000, (LINK,), (), 30), Outcome(JUDGING, (LINK,), (), 30)
    told = lines(score([tuning, judging]), [tuning, judging], rnics=256)
    assert told[-1] == "1 episodes are of tuning seeds, which rules were made of"
    assert "tuning" not in "\n".join(lines(score([judging]), [judging], rnics=256))


def test_the_report_fits_a_terminal():
    outcomes = [Outcome(1, (LINK, RNIC), (said("rnic h/x"), said("link a -- c", name="j")), 30)]
    outcomes.append(Outcome(2, (), (), 30))
    told = lines(score(outcomes), outcomes, rnics=256)
    assert all(len(line) <= 80 for line in told)
    assert any("named wrongly" in line for line in told)


def test_one_nameless_incident_stands_for_one_failure():
    both = ("rnic h/x", "link a -- b")
    made = score([Outcome(1, (LINK, RNIC), (said(None, *both),), 30)])
    assert (made.total.failures, made.total.detected, made.aside) == (2, 1, 0)
    other = score(
        [Outcome(1, (LINK, RNIC), (said(None, "switch s"), said("rnic h/x", name="j")), 30)]
    )
    assert (other.total.detected, other.aside) == (1, 1)


def test_what_was_named_wrongly_for_a_moment_counts():
    told = (said("link a -- c"), said("link a -- b", at_s=9.0))
    made = score([Outcome(1, (LINK,), told, 30)])
    assert (made.named, made.right, made.total.first, made.whole) == (2, 1, 1, 0)
    over = (said("link a -- c"), said("link a -- c", state="recovered"))
    assert score([Outcome(1, (LINK,), over, 30)]).wrong == {"1 -> link a -- c": 1}


def test_of_a_wrong_name_the_first_alternative_counts_and_none_of_a_right_one():
    third = total(Outcome(1, (LINK,), (said("link a -- c", "link a -- d", "link a -- b"),), 30))
    assert third.second == 0
    second = total(Outcome(1, (LINK,), (said("link a -- c", "link a -- b"),), 30))
    assert second.second == 1
    other = total(Outcome(1, (LINK, RNIC), (said("rnic h/x", "link a -- b"),), 30))
    assert other.second == 1
