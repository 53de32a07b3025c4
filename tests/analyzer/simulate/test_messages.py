# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from analyzer.intake.paths import paths_of
from analyzer.simulate import messages
from analyzer.simulate.agents import Agents
from analyzer.simulate.churn import Churn
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.spray import Spray
from netagent.collect.paths import WHOLE_NS, PathNews, TracedPath
from netagent.model.path import switch
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Summary
from tests.campaign.apart import beside

SHAPE = Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2)


def paths(made):
    """Return all that hosts have traced by the next window."""
    tables = [
        paths_of(decode(encode(structs.replace(each, paths=shown_of(made, each))), Summary))
        for each in made.window()
    ]
    return [row for table in tables for row in table.rows(np.arange(len(table)))]


def shown_of(made, summary):
    return made._messages._shown(int(summary.host[1:]))


def test_each_host_tells_the_ways_of_its_probes_and_of_its_replies():
    made = Agents(Clos(SHAPE, seed=1), seed=1)
    clos, told = made.clos, {(each.flow, each.reply): each.hops for each in paths(made)}
    assert len(told) == 2 * clos.flows
    for flow in range(0, clos.flows, 13):
        assert told[clos.flow(flow), False] == clos.routes[int(clos.there[flow])]
        assert told[clos.flow(flow), True] == clos.routes[int(clos.back[flow])]


def test_where_packets_are_sprayed_traces_change_by_themselves():
    made = Agents(Clos(SHAPE, seed=1), seed=1, spray=True)
    assert isinstance(made.routing.spray, Spray)
    one, other = (sorted((e.flow, e.reply, e.hops) for e in paths(made)) for _ in "12")
    assert [each[:2] for each in one] == [each[:2] for each in other]
    assert one != other


def test_tables_follow_the_tasks_that_come():
    churn = Churn(16, 1, 20_000)
    made = Agents(Clos(SHAPE, seed=1), seed=1, churn=churn)
    seen = set()
    for _ in range(40):
        for summary in made.window():
            decode(encode(summary), Summary)
            own = {
                end for end in summary.endpoints if end.container.endswith(f"-c{summary.host[1:]}")
            }
            seen |= {end.container.partition("-c")[0] for end in own}
    assert len(seen) > 3
    assert switch(made.clos.switches[0])


@pytest.mark.parametrize("rotate", [0, 6])
def test_paths_are_said_as_agents_say_them(rotate):
    """Against the agent's own rule, over a failure that turns routes."""
    assert messages.WHOLE_NS == WHOLE_NS
    made = Agents(Clos(SHAPE, seed=1), seed=1, rotate=rotate)
    rules = {f"h{n}": PathNews(f"h{n}") for n in range(made.clos.shape.hosts)}
    for window in range(30):
        if window == 15:
            failure = beside([], 2, made.clos, np.random.default_rng(1))
            made.fail([replace(failure, start_ns=0)], now_ns=made.now_ns)
        for summary in made.window():
            shown = paths_of(structs.replace(summary, paths=shown_of(made, summary)))
            traced = [
                TracedPath(row.flow, row.reply, row.outer_port, row.hops)
                for row in shown.rows(np.arange(len(shown)))
            ]
            said = rules[summary.host].of(traced, start_ns=summary.start_ns)
            table = paths_of(summary)
            rows = table.rows(np.arange(len(table)))
            assert summary.paths.whole_ns == said.whole_ns
            assert [(row.flow, row.reply, row.hops) for row in rows] == [
                (each.flow, each.reply, each.hops) for each in said.rows
            ]
