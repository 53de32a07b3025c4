# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.intake.flows import MAX_SENT, FlowNumbers
from netagent.collect.windows import WindowTally
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.codec import decode, encode
from netagent.wire.columns import pack
from netagent.wire.messages import FlowColumns, Health, Summary
from tests.oracles.rows import rows_of

FLOWS = st.builds(
    FlowId,
    st.builds(EndpointId, st.sampled_from("abc"), st.integers(0, 1)),
    st.builds(EndpointId, st.sampled_from("def"), st.integers(0, 1)),
    st.integers(40000, 40003),
)
EVENTS = st.lists(
    st.one_of(
        st.builds(ProbeReplied, FLOWS, st.just(1), st.integers(0, 2)),
        st.builds(ProbeLost, FLOWS, st.just(1), st.integers(0, 2), st.integers(0, 10**9)),
        st.builds(ProbeMeasured, FLOWS, st.just(1), *[st.integers(1, 10**8)] * 3),
    ),
    max_size=50,
)


def summary_of(events):
    tally = WindowTally(large_class=2)
    for event in events:
        tally.add(event)
    made = tally.close(Window(0, 5), host="h", instance="i", paths=(), findings=(), health=Health())
    return decode(encode(made), Summary)


@given(EVENTS)
def test_columns_decode_to_what_row_by_row_decoding_gives(events):
    summary, numbers = summary_of(events), FlowNumbers()
    rows = numbers.decode(summary)
    decoded = [
        {
            "flow": numbers.flow(flow),
            **{k: getattr(rows, k)[i].item() for k in naive if k != "flow"},
        }
        for i, (flow, naive) in enumerate(zip(rows.flow.tolist(), rows_of(summary), strict=True))
    ]
    assert decoded == rows_of(summary)


@given(st.lists(EVENTS, max_size=4))
def test_a_flow_keeps_its_number(windows):
    numbers, seen = FlowNumbers(), {}
    for events in windows:
        for number in numbers.decode(summary_of(events)).flow.tolist():
            assert seen.setdefault(numbers.flow(number), number) == number
    assert len(numbers) == len(seen)


COLUMNS = list(FlowColumns.__struct_fields__)


@given(st.sampled_from([c for c in COLUMNS if not c.startswith("hist")]), st.binary(max_size=9))
def test_columns_of_another_length_are_refused(name, extra):
    summary = summary_of([ProbeReplied(FlowId(EndpointId("a", 0), EndpointId("d", 0), 1), 1, 0)])
    flows = replace(summary.flows, **{name: getattr(summary.flows, name) + b"\0" + extra})
    with pytest.raises(RemoteProtocolError):
        FlowNumbers().decode(replace(summary, flows=flows))


@given(st.dictionaries(st.sampled_from(COLUMNS), st.binary(max_size=8)))
def test_random_columns_give_rows_or_a_typed_error(columns):
    summary = Summary(
        host="h", instance="i", start_ns=0, width_ns=5, endpoints=(EndpointId("a", 0),),
        flows=FlowColumns(**columns),
    )  # fmt: skip
    try:
        rows = FlowNumbers().decode(summary)
    except RemoteProtocolError:
        return
    assert len(rows.sent) == len(rows.flow)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"lost": 5}, "more lost and refused"),
        ({"refused": 4, "lost": 1}, "more lost and refused"),
        ({"sent": MAX_SENT + 1}, "than an agent sends"),
        ({"sent_large": 5}, "more large probes"),
        ({"lost": 2, "sent_large": 3, "lost_large": 3}, "more large probes"),
    ],
    ids=str,
)
def test_counts_that_no_agent_makes_are_refused(lie, words):
    flow = FlowId(EndpointId("a", 0), EndpointId("d", 0), 1)
    summary = summary_of([ProbeReplied(flow, 1, 0)] * 4)
    packed = pack(FlowColumns, **{name: [value] for name, value in lie.items()})
    columns = {name: getattr(packed, name) for name in lie}
    with pytest.raises(RemoteProtocolError, match=words):
        FlowNumbers().decode(replace(summary, flows=replace(summary.flows, **columns)))


def test_a_row_beyond_the_table_and_a_flow_twice_are_refused():
    beyond = FlowColumns(source=b"\1\0", target=b"\0\0", source_port=b"\1\0")
    twice = FlowColumns(source=bytes(4), target=bytes(4), source_port=bytes(4))
    for flows, words in ((beyond, "beyond"), (twice, "two rows")):
        with pytest.raises(RemoteProtocolError, match=words):
            FlowNumbers().decode(
                Summary(host="h", instance="i", start_ns=0, width_ns=5,
                        endpoints=(EndpointId("a", 0),), flows=flows)
            )  # fmt: skip


def test_numbers_of_flows_long_unseen_are_given_anew():
    def window(start_ns, *ports):
        tally = WindowTally(large_class=2)
        for port in ports:
            flow = FlowId(EndpointId("a", 0), EndpointId("d", 0), port)
            tally.add(ProbeReplied(flow, 1, 0))
        return tally.close(
            Window(start_ns, 5), host="h", instance="i", paths=(), findings=(), health=Health()
        )

    numbers = FlowNumbers()
    old = numbers.decode(window(0, 1, 2)).flow.tolist()
    kept = numbers.decode(window(100, 2)).flow.tolist()
    freed = numbers.recycle(before_ns=100).tolist()
    assert sorted([*kept, *freed]) == sorted(old)
    again = numbers.decode(window(105, 2, 3)).flow.tolist()
    assert sorted(again) == sorted(old)
    assert {numbers.flow(n).source_port for n in again} == {2, 3}
    assert len(numbers) == 2
