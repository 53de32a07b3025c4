# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.webhooks.wanted import Wanted
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

OPEN, CONFIRMED, RECOVERED = IncidentState.OPEN, IncidentState.CONFIRMED, IncidentState.RECOVERED
LINK, RNIC = Component(Kind.LINK, "leaf-0 -- spine-0"), Component(Kind.RNIC, "h0/rnic0")


def incident(state, component=LINK):
    layer = component.layer if component else None
    return Incident("i1", state, Verdict(component, layer, Symptom.LOSS, 0.9, "s"), 1, 2, 3)


def wanted(wanted, *states):
    """Return which of an incident's changes are told."""
    befores = [None, *states]
    return [wanted.wants(now, before) for before, now in zip(befores, states, strict=False)]


def test_by_default_all_is():
    known = [incident(OPEN, None), incident(OPEN), incident(CONFIRMED), incident(RECOVERED)]
    assert wanted(Wanted(), *known) == [True] * 4


def test_who_wants_what_is_confirmed_hears_from_then_on_until_it_is_over():
    known = [incident(OPEN), incident(OPEN, RNIC), incident(CONFIRMED), incident(CONFIRMED)]
    confirmed = Wanted(confirmed=True)
    assert wanted(confirmed, *known, incident(RECOVERED)) == [False, False, True, True, True]
    assert wanted(confirmed, incident(OPEN), incident(RECOVERED)) == [False, False]
    assert wanted(confirmed, incident(RECOVERED)) == [False]


@pytest.mark.parametrize("before", [RNIC, None])
def test_who_wants_one_kind_hears_that_it_became_that_and_that_it_became_another(before):
    known = [
        incident(OPEN, before),
        incident(OPEN),
        incident(CONFIRMED, RNIC),
        incident(RECOVERED, RNIC),
    ]
    assert wanted(Wanted(kinds=frozenset({Kind.LINK})), *known) == [False, True, True, False]
