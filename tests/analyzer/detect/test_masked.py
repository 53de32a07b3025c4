# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.masked import Masked
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.windows import WindowState
from netagent.collect.windows import WindowTally
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import controller, rnic
from netagent.model.verdict import Symptom
from netagent.model.window import Window
from netagent.wire.messages import Health
from tests.analyzer.detect.seen import nothing

WINDOW = Window(0, 5_000_000_000)
A, B = rnic("h0", "rnic0"), rnic("h1", "rnic0")


def stated(component, kind=FindingKind.RATE_REDUCED):
    return Finding(kind, component, "slow", 1)


def seen(findings, *, expected=("h0", "h1")):
    """Return a window with the findings of the hosts that sent their summary."""
    numbers, rows = FlowNumbers(), {}
    for host in findings:
        summary = WindowTally(large_class=0).close(
            WINDOW, host=host, instance="i", findings=(), health=Health()
        )
        rows[host] = numbers.decode(summary)
    state = WindowState(WINDOW, rows, findings={h: tuple(f) for h, f in findings.items()})
    nobody = frozenset()
    return Seen(state, *nothing(state), {}, frozenset(expected), nobody, nobody)


def test_each_part_that_a_host_states_as_masked_deviates_once():
    both = [stated(A), stated(A, FindingKind.RAIL_ON_SPARE)]
    what = seen({"h0": both, "h1": [stated(B, FindingKind.RNIC_DOWN)]})
    with pytest.raises(StopIteration) as done:
        next(Masked().detect(what))
    (anomaly,) = done.value.value
    assert (anomaly.subject, anomaly.symptom) == (A, Symptom.MASKED)


@pytest.mark.parametrize(
    ("part", "over"), [("h0", False), ("tunnel h0", False), ("h1", True), ("northd", True)]
)
def test_a_part_of_a_controller_is_not_over_while_its_host_is_silent(part, over):
    assert Masked().over({controller(part)}, seen({"h1": []})) is over


@pytest.mark.parametrize(
    ("findings", "expected", "over"),
    [
        ({"h0": [], "h1": []}, ("h0", "h1"), True),
        ({"h0": [stated(A)], "h1": []}, ("h0", "h1"), False),
        ({"h0": [stated(A, FindingKind.RNIC_DOWN)]}, ("h0",), True),  # worse, and another's
        ({"h1": []}, ("h0", "h1"), False),  # the host is silent, which mends nothing
        ({"h1": []}, ("h1",), True),  # the host is gone
    ],
)
def test_it_is_over_when_its_host_no_longer_says_so(findings, expected, over):
    assert Masked().over({A}, seen(findings, expected=expected)) is over
