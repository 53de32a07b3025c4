# SPDX-License-Identifier: Apache-2.0
"""What holds of whatever fails, at whatever rate: of messages, of counts, of healthy evidence."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from analyzer.localize.tomography.likelihood import MIN_CONFIDENCE, rank
from analyzer.localize.tomography.observations import Builder
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import link, rnic, switch
from tests.analyzer.diagnosis.world import World
from tests.length import some

PARTS = (
    link("leaf-s0-r0", "spine-0"), link("leaf-s1-r1", "spine-1"), switch("leaf-s1-r0"),
    switch("spine-1"), rnic("h1", "rnic0"), rnic("h2", "rnic1"),
)  # fmt: skip
SEEDS = some(range(8), 3)


def broken(seed):
    """Return a world in which one or two parts lose some or all of what crosses them."""
    rng = random.Random(seed)
    world = World(seed)
    world.live(3)
    world.fabric.loss = {
        part: rng.choice([0.05, 0.3, 1.0]) for part in rng.sample(PARTS, 1 + seed % 2)
    }
    return world, rng


def plain(world):
    """Return what was told, without what is counted later: that is drawn in another order."""
    return {
        (str(each.verdict.component), each.verdict.symptom, each.state, each.detected_ns,
         each.localized_ns, each.verdict.failing, each.tasks)
        for each in world.told.values()
    }  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_duplicates_of_messages_change_no_verdict(seed):
    (once, _), (often, rng) = broken(seed), broken(seed)
    for _ in range(4):
        once.live(1)
        summaries = list(often.summaries())
        summaries += rng.choices(summaries, k=3)
        rng.shuffle(summaries)
        for summary in summaries:
            often.diagnosis.ingest(summary, often.now_ns())
        often.turn()
        often.window += 1
    assert plain(once)
    assert plain(often) == plain(once)


@pytest.mark.parametrize("seed", some(range(16), 4))
def test_a_verdict_is_never_contradicted_by_its_own_counts(seed):
    """Neither by the probes that it quotes, nor by the packets that were counted per router."""
    world, _ = broken(seed)
    world.live(4)
    named = [each.verdict for each in world.told.values() if each.verdict.component]
    assert named
    for verdict in named:
        facts = [each for each in verdict.evidence if isinstance(each, Evidence)]
        (tally,) = [each.values for each in facts if each.kind is EvidenceKind.TALLY]
        assert tally["component"] == str(verdict.component)
        assert 4 <= tally["lost"] <= tally["crossed"]
        rate = tally["lost"] / tally["crossed"] / 4  # of one direction; a count sees half of both
        arrived = sent = 0
        for each in facts:
            if each.kind is EvidenceKind.COUNTED:
                before, after = _beside(verdict.component, each.values)
                sent, arrived = sent + before, arrived + after
        assert binom.cdf(sent - arrived, sent, rate) > 1e-4


def _beside(component, counted):
    """Return the packets that reached the part of a count before a component, and those after."""
    reached = [counted["sent"], *(n for _, n in counted["routers"])]
    names = ["", *(name for name, _ in counted["routers"])]
    ends = component.name.split(" -- ")
    after = [n for n, name in enumerate(names) if name in ends]
    inside = len(ends) == 1 and after and after[0] + 1 < len(names)
    if len(ends) == 2 and len(after) == 2:
        return reached[after[0]], reached[after[1]]
    return (reached[after[0] - 1], reached[after[0] + 1]) if inside else (0, 0)


FLOW = st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(1, 40), st.floats(0, 1))


def named(flows, suspect, healthy):
    """Tell whether a component is named, if so many more probes across it alone arrived."""
    seen = Builder[str]()
    for way, sent, share in flows:
        seen.flow([seen.leg([sorted(way)])], sent, round(share * sent))
    seen.flow([seen.leg([[suspect]])], healthy, 0)
    built = seen.build()
    ranked = rank(built, [0.0] * len(built.components)).ranked
    return any(each.component == suspect and each.confidence >= MIN_CONFIDENCE for each in ranked)


@given(st.lists(FLOW, min_size=1, max_size=6), st.sampled_from("abcd"), st.integers(1, 200))
def test_more_healthy_evidence_never_names_a_suspect(flows, suspect, healthy):
    if not named(flows, suspect, healthy):
        assert not named(flows, suspect, 2 * healthy)
