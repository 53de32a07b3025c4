# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnosis.engine import Diagnosis
from analyzer.history.blocks import block_of
from analyzer.history.ledger import LATE_NS, MINUTE_NS, Ledger
from analyzer.history.spread import SHARES
from analyzer.intake.flows import FlowNumbers
from analyzer.localize.topology import LearnedTopology
from analyzer.roster.registry import Registry
from analyzer.simulate.agents import WIDTH_NS, Agents, Noise
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import draw
from netagent.model.topology import DeclaredTopology
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Summary
from tests.analyzer.history.tables import ENDPOINTS, table_of
from tests.oracles.history_naive import Naive, of_components, of_pairs

SHAPE = Shape(hosts=8, rails=2, hosts_per_segment=2, spines=3, replicas=2, stages=2)
PER_MINUTE = MINUTE_NS // WIDTH_NS


class Life:
    """A fabric, its diagnosis, and what both ways of adding up make of it."""

    def __init__(self, seed=1, **options):
        self.clos = Clos(SHAPE, seed)
        self.agents = Agents(self.clos, seed, start_ns=1_000 * MINUTE_NS, **options)
        self.roster = Registry()
        for message in self.agents.registrations():
            self.roster.apply(message, 0)
        self.diagnosis = Diagnosis(self.roster, DeclaredTopology())
        self.diagnosis.observer = self
        self.ledger, self.naive = Ledger(), Naive()
        self.sealed, self.window, self.shown = [], {}, 0
        self.endpoints = {each.id: each for each in self.clos.endpoints}

    def wants(self, start_ns):
        return self.ledger.wants(start_ns)

    def saw(self, table, endpoints, topology):
        assert set(endpoints) == set(self.endpoints)
        self.shown += 1
        mine = [self.window[host] for host in table.hosts]
        self.naive.add(mine, self.endpoints, topology)
        self.sealed += self.ledger.saw(table, endpoints, topology)

    def expire(self, before_ns):
        self.sealed += self.ledger.expire(before_ns)

    def live(self, windows):
        for _ in range(windows):
            self.window = {s.host: decode(encode(s), Summary) for s in self.agents.window()}
            for summary in self.window.values():
                self.diagnosis.ingest(summary, self.agents.now_ns)
            self.step()

    def step(self):
        now_ns = self.agents.now_ns + 1
        questions = self.diagnosis.step(now_ns)
        while questions:
            for each in questions:
                reply = self.agents.reply(each.host, each.request, now_ns=now_ns)
                self.diagnosis.answer(each.id, reply, now_ns)
            questions = self.diagnosis.step(now_ns)


def quantiles(sums, *, has_extremes):
    return tuple(sums.quantile(share, has_extremes=has_extremes) for share in SHARES.values())


def same(block, naive):
    pairs = naive.pairs[block.start_ns]
    found = of_pairs(block)
    assert list(found) == sorted(pairs)
    for key, sums in pairs.items():
        expected = sums.sent, sums.lost, sums.refused, sums.count, sums.least, sums.mean, sums.most
        assert found[key][:7] == pytest.approx(expected, abs=1)
        assert found[key][:5] == expected[:5]
        assert found[key][7:] == quantiles(sums, has_extremes=True)
    components = naive.components[block.start_ns]
    found = of_components(block)
    assert list(found) == sorted(components)
    for name, sums in components.items():
        expected = sums.sent, sums.lost, sums.refused, sums.count, sums.mean
        assert found[name][:4] == expected[:4]
        assert found[name][4] == pytest.approx(sums.mean, abs=1)
        assert found[name][5:] == quantiles(sums, has_extremes=False)


@pytest.mark.parametrize("kinds", [(), (1,), (2,), (4,)], ids=["well", "lossy", "dead", "spine"])
def test_a_minute_is_what_its_rows_add_up_to_one_by_one(kinds):
    life = Life(noise=Noise(loss=0.001))
    life.live(PER_MINUTE + 5)
    rng = np.random.default_rng(3)
    life.agents.fail([draw(n, life.clos, rng) for n in kinds], now_ns=life.agents.now_ns)
    life.live(2 * PER_MINUTE)
    assert len(life.sealed) == 3
    if kinds == (4,):
        assert any(len(each.parts) > 1 for each in life.sealed[1:])  # ways turned
    for minute in life.sealed:
        block = block_of(minute)
        assert block.windows == PER_MINUTE
        assert any(name.startswith("link ") for name in of_components(block))
        same(block, life.naive)


def test_what_comes_late_counts_while_its_minute_is_open_and_is_counted_as_late_after_that():
    life = Life()
    life.live(PER_MINUTE - 1)
    window = {s.host: s for s in life.agents.window()}
    late = {host: window.pop(host) for host in ("h3", "h5")}
    life.window = window
    for summary in window.values():
        life.diagnosis.ingest(summary, life.agents.now_ns)
    life.diagnosis.step(life.agents.now_ns + 3 * 10**9)
    life.step()
    assert not life.sealed
    life.window, shown = late, life.shown
    for summary in late.values():
        life.diagnosis.ingest(summary, life.agents.now_ns + 4 * 10**9)
    life.step()
    assert life.shown == shown + 1  # both at once
    life.live(LATE_NS // WIDTH_NS)
    (minute,) = life.sealed
    assert minute.windows == PER_MINUTE
    same(block_of(minute), life.naive)
    before, shown = life.ledger.late, life.shown
    life.diagnosis.ingest(late["h3"], life.agents.now_ns)
    life.step()
    assert life.ledger.late == before + 1
    assert life.shown == shown  # what nobody wants is not put together


def test_ways_are_cut_off_where_routes_are_forgotten_and_numbered_anew():
    life = Life()
    life.live(6)
    topology = life.diagnosis._topology
    topology._traced.keep(topology._traced.in_use())
    life.live(9)
    (minute,) = life.sealed
    assert len({id(part.incidence) for part in minute.parts}) > 1
    same(block_of(minute), life.naive)


def test_after_a_restart_only_minutes_that_were_not_written_are_taken():
    life = Life()
    life.ledger = Ledger(life.agents.now_ns + MINUTE_NS)
    life.live(2 * PER_MINUTE + 3)
    assert [each.start_ns for each in life.sealed] == [1_001 * MINUTE_NS]
    assert life.ledger.late == 0


def test_minutes_of_flows_that_may_be_forgotten_are_sealed_at_once():
    life = Life()
    life.live(3)
    life.expire(life.agents.now_ns)
    (minute,) = life.sealed
    assert minute.windows == 3
    same(block_of(minute), life.naive)


# --- whatever is seen ---------------------------------------------------------------------------

ROWS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.lists(st.integers(1, 10**6), max_size=3)),
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(0, 40), ROWS), max_size=12))
def test_each_window_is_in_one_minute_or_late(script):
    """Windows come in any order, and each at most once."""
    ledger, numbers, topology = Ledger(), FlowNumbers(), LearnedTopology()
    naive, sealed, late = Naive(), [], 0
    for number, rows in dict(script).items():
        start_ns = number * WIDTH_NS
        summary, table = table_of(rows, start_ns, numbers)
        if start_ns // MINUTE_NS * MINUTE_NS < ledger._sealed_ns:
            late += 1
        else:
            naive.add([summary], ENDPOINTS, topology)
        sealed += ledger.saw(table, ENDPOINTS, topology)
    sealed += ledger.expire(10**18)
    assert ledger.late == late
    assert len({each.start_ns for each in sealed}) == len(sealed)
    assert {each.start_ns for each in sealed} == naive.pairs.keys()
    for minute in sealed:
        same(block_of(minute), naive)
