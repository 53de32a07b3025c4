# SPDX-License-Identifier: Apache-2.0
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom, fisher_exact, norm

from analyzer.detect.chance import at_most, chances, deviations, gathered


def test_the_well_known_deviations():
    assert deviations(0.025) == pytest.approx(1.96, abs=0.001)
    assert deviations(1e-6) == pytest.approx(4.753, abs=0.001)


@given(st.integers(1, 40), st.data(), st.floats(0.001, 0.5))
def test_chances_are_the_sum_of_the_terms(of, data, rate):
    hits = data.draw(st.integers(0, of))
    terms = [comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(hits, of + 1)]
    assert chances(np.array([hits]), np.array([of]), rate)[0] == pytest.approx(sum(terms))


def test_of_none_in_many_less_than_three_in_as_many_with_95_percent():
    assert at_most(0, 1_000, 0.95) == pytest.approx(3 / 1_000, rel=0.01)
    assert at_most(5, 5, 0.95) == at_most(0, 0, 0.95) == 1.0


@given(
    st.lists(st.integers(0, 100_000), min_size=1), st.data(), st.floats(1e-6, 0.5),
    st.floats(0.01, 0.999),
)  # fmt: skip
def test_the_distributions_are_those_of_scipy(sent, data, rate, sure):
    lost = [data.draw(st.integers(0, of)) for of in sent]
    expected = binom.sf(np.array(lost) - 1, sent, rate)
    assert chances(np.array(lost), np.array(sent), rate) == pytest.approx(expected, rel=1e-9)
    if lost[0] < sent[0]:
        share = beta.ppf(sure, lost[0] + 1, sent[0] - lost[0])
        assert at_most(lost[0], sent[0], sure) == pytest.approx(share)
    assert deviations(rate) == pytest.approx(norm.isf(rate))


@given(st.integers(0, 60), st.integers(0, 60), st.data())
def test_hits_that_lie_at_random_are_gathered_as_fishers_test_has_it(of, others_of, data):
    hits = data.draw(st.integers(0, of))
    others = data.draw(st.integers(0, others_of))
    table = [[hits, of - hits], [others, others_of - others]]
    expected = fisher_exact(table, alternative="greater").pvalue
    assert gathered(hits, of, others, others_of) == pytest.approx(expected, abs=1e-9)


def test_four_of_a_few_flows_may_well_be_on_one_of_four_hosts():
    assert gathered(4, 32, 0, 32) > 0.05
    assert gathered(4, 32, 0, 3200) < 1e-7
