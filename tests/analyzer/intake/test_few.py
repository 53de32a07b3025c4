# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.few import filled
from analyzer.intake.flows import FlowNumbers
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.digest import Digest
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.histogram import bucket_of
from netagent.wire.messages import Health
from netagent.wire.rounding import FEW, PER_LN, rounded_ns

ROUND_TRIPS = st.lists(st.lists(st.integers(1, 2**31), max_size=4), max_size=5)


def rows_of(flows):
    """Return the rows that an agent's window becomes."""
    tally = WindowTally(large_class=2)
    for port, round_trips in enumerate(flows):
        flow = FlowId(EndpointId("a", 0), EndpointId("b", 0), port)
        tally.add(ProbeLost(flow, 0, 0, 0))
        for seq, rtt_ns in enumerate(round_trips, start=1):
            tally.add(ProbeReplied(flow, seq, 0))
            tally.add(ProbeMeasured(flow, seq, rtt_ns, 0, 0))
    window = Window(0, 5)
    summary = tally.close(window, host="h0", instance="1", findings=(), health=Health())
    return FlowNumbers().decode(summary)


def digested(round_trips):
    digest = Digest()
    for rtt_ns in round_trips:
        digest.add(rtt_ns)
    return digest


@given(ROUND_TRIPS)
def test_every_flow_has_the_moments_and_the_histogram_of_its_round_trips(flows):
    flows.sort(key=lambda each: len(each) > FEW)  # in this order an agent says them
    rows = filled(rows_of(flows))
    begins = np.cumsum(rows.hist_len) - rows.hist_len
    for n, round_trips in enumerate(flows):
        few = 0 < len(round_trips) <= FEW
        digest = digested(map(rounded_ns, round_trips) if few else round_trips)
        assert abs(rows.mean_ln[n] - digest.mean_ln) <= 0.5 / PER_LN + 1e-5
        assert abs(rows.var_ln[n] - digest.var_ln) <= digest.var_ln / 16 + 1e-5
        entries = slice(begins[n], begins[n] + rows.hist_len[n])
        told = dict(zip(rows.hist_bucket[entries], rows.hist_count[entries], strict=True))
        assert told == digest.buckets
        assert list(told) == sorted(told)


@given(ROUND_TRIPS)
def test_what_an_earlier_version_sent_stays_as_it_is(flows):
    rows = filled(rows_of(flows))
    assert filled(rows) is rows
    nothing = np.zeros(0, np.uint16)
    without = replace(rows, hist_len=nothing, hist_bucket=nothing, hist_count=nothing)
    assert filled(without) is without


def test_a_round_trip_below_the_clocks_step_is_in_the_first_bucket():
    rows = filled(rows_of([[1], [1, 2]]))
    assert rows.hist_bucket.tolist() == [bucket_of(1), bucket_of(1), bucket_of(2)]
