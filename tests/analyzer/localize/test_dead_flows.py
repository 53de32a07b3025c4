# SPDX-License-Identifier: Apache-2.0
"""Dead flows of pairs that still talk, walked over the lab's own flow tables."""

from dataclasses import replace
from itertools import pairwise, permutations

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.case import Case
from analyzer.localize.contract import Context
from analyzer.localize.dead_flows import MAX_FLOWS, MOST_REST_NS, DeadFlows, partly_dead
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.tracing.doubts import Doubts
from netagent.model.ids import FlowId
from netagent.model.window import Window
from tests.analyzer.asking import drive
from tests.analyzer.localize.test_walks import ENDPOINTS, TO_B, A, Agents, B, C, registry
from tests.ovs_checks.hosts import adding

PORTS = (40_000, 40_001, 40_002, 40_003)
WINDOW_NS = 5_000_000_000
DROPS = adding(f"table=30,priority=210,{TO_B},udp,tp_src=40002,actions=drop")
"""At h0."""
DROPS_REPLIES = adding("table=30,priority=210,udp,tp_dst=40002,actions=drop")
"""At the host of the target."""


def flows(dead=(), pairs=((A, B),)):
    return tuple(
        FlowView(FlowId(*pair, port), 6, 6 * lost, 0, 2, 0, 6 * lost, 1000)
        for pair in pairs
        for port in PORTS
        for lost in [(pair, port) in dead]
    )


def localizer():
    return DeadFlows(Context(registry(), LearnedTopology(), Doubts(18515), 18515))


def judged(agents, seen, made=None, *, now_ns=0):
    case = Case(Window(now_ns, now_ns + WINDOW_NS), ENDPOINTS, Flows.of(seen), now_ns=now_ns)
    return case, drive((made or localizer()).explain(case), agents.reply)


def test_an_entry_that_drops_one_port_is_named_for_that_port_alone():
    case, (explained,) = judged(Agents({0: DROPS}), flows({((A, B), 40_002)}))
    assert str(explained.verdict.component) == "flow h0/br-int/table=30"
    assert [view.flow.source_port for view in explained.flows] == [40_002]
    assert "tp_src=40002" in explained.verdict.evidence[0].values["text"]
    assert case.missing == []


def test_an_entry_that_drops_the_replies_is_named():
    _, (explained,) = judged(Agents({2: DROPS_REPLIES}), flows({((A, B), 40_002)}))
    assert str(explained.verdict.component) == "flow h2/br-int/table=30"


def test_a_flow_that_the_tables_deliver_is_left_to_the_vote():
    agents = Agents()
    _, explained = judged(agents, flows({((A, B), 40_001)}))
    assert explained == []
    assert sorted(set(agents.asked)) == ["h0", "h2"]


def test_a_pair_that_is_dead_as_a_whole_is_not_walked_twice():
    every = flows({((A, B), port) for port in PORTS})
    assert partly_dead(Flows.of(every)) == []
    agents = Agents()
    judged(agents, every)
    assert agents.asked == []


def test_tables_that_cannot_be_read_are_missing():
    case, explained = judged(Agents(dead=("h0",)), flows({((A, B), 40_002)}))
    assert explained == []
    assert case.missing == ["flow tables of h0: timeout"]


def test_what_the_underlay_kills_is_walked_ever_more_rarely_and_each_time_others():
    """A spine that died: a port of every pair."""
    pairs = tuple(
        (a, b) for a, b in permutations(sorted(ENDPOINTS), 2)
        if a.rail == b.rail and ENDPOINTS[a].task == ENDPOINTS[b].task
    )  # fmt: skip
    seen = flows({(pair, 40_001) for pair in pairs}, pairs)
    made, agents, asked = localizer(), Agents(), []
    for n in range(60):
        before = len(agents.asked)
        judged(agents, seen, made, now_ns=n * WINDOW_NS)
        asked += [n] if len(agents.asked) > before else []
    rests = [after - before for before, after in pairwise(asked)]
    assert rests == sorted(rests)
    assert rests[-1] * WINDOW_NS == MOST_REST_NS
    assert len({f for f, at_ns in made._walked_ns.items() if at_ns}) > MAX_FLOWS
    judged(agents, flows(), made, now_ns=60 * WINDOW_NS)
    assert made._walked_ns == {}


def test_one_of_many_dead_flows_that_a_table_drops_is_found_within_its_turns():
    pairs = ((A, B), (A, C), (B, A), (C, A), (B, C), (C, B))
    dead = {(pair, port) for pair in pairs for port in (40_001, 40_002)}
    made, named = localizer(), set()
    agents = Agents({0: DROPS})
    for n in range(20):
        _, explained = judged(agents, flows(dead, pairs), made, now_ns=n * WINDOW_NS)
        named |= {str(each.verdict.component) for each in explained}
    assert named == {"flow h0/br-int/table=30"}


def test_what_dies_anew_is_walked_while_the_rest_is_left_alone():
    lasting = {((B, C), 40_001)}
    pairs = ((A, B), (B, C))
    made, agents = localizer(), Agents({0: DROPS})
    for n in range(5):
        judged(agents, flows(lasting, pairs), made, now_ns=n * WINDOW_NS)
    asked = len(agents.asked)
    assert judged(agents, flows(lasting, pairs), made, now_ns=5 * WINDOW_NS)[1] == []
    assert len(agents.asked) == asked
    _, (explained,) = judged(
        agents, flows({*lasting, ((A, B), 40_002)}, pairs), made, now_ns=6 * WINDOW_NS
    )
    assert str(explained.verdict.component) == "flow h0/br-int/table=30"


def test_a_flow_that_no_switch_carries_is_not_walked():
    agents, seen = Agents(), flows({((A, B), 40_002)})
    bare = {**ENDPOINTS, B: replace(ENDPOINTS[B], bridge="")}
    case = Case(Window(0, WINDOW_NS), bare, Flows.of(seen))
    assert drive(localizer().explain(case), agents.reply) == []
    assert agents.asked == []
