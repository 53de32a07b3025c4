# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.intake import flows as flows_module
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
    made = tally.close(Window(0, 5), host="h", instance="i", findings=(), health=Health())
    return decode(encode(made), Summary)


@given(EVENTS)
def test_columns_decode_to_what_row_by_row_decoding_gives(events):
    summary, numbers = summary_of(events), FlowNumbers()
    rows = numbers.decode(summary)
    # Histograms are decoded where history reads them (`tests/analyzer/history`).
    plain = [{k: v for k, v in row.items() if k != "buckets"} for row in rows_of(summary)]
    decoded = [
        {
            "flow": numbers.flow(flow),
            **{k: getattr(rows, k)[i].item() for k in naive if k != "flow"},
        }
        for i, (flow, naive) in enumerate(zip(rows.flow.tolist(), plain, strict=True))
    ]
    assert decoded == plain


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
    # Five rows: no column of them has another width by chance.
    summary = summary_of(
        [ProbeReplied(FlowId(EndpointId("a", 0), EndpointId("d", 0), n), 1, 0) for n in range(5)]
    )
    assert len(FlowNumbers().decode(summary).flow) == 5
    odd = getattr(summary.flows, name) + b"\0" + extra
    flows = replace(summary.flows, **{name: odd + b"\0" if len(odd) % 5 == 0 else odd})
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
        ({"count": MAX_SENT + 1}, "than an agent sends"),
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


COUNTS = ("sent", "lost", "refused", "sent_large", "lost_large", "count")
FLOATS = [
    0.0,
    -0.0,
    9.5,
    22.19,
    22.3,
    99.99,
    100.0,
    -1.0,
    float("inf"),
    float("-inf"),
    float("nan"),
]
ROWS = st.lists(
    st.tuples(*[st.sampled_from([0, 0, 1, 2, 255, 256, MAX_SENT, MAX_SENT + 1])] * len(COUNTS))
    | st.tuples(*[st.integers(0, 3)] * len(COUNTS)),
    min_size=1, max_size=4,
)  # fmt: skip


@given(ROWS, st.lists(st.tuples(*[st.sampled_from(FLOATS)] * 2), min_size=4, max_size=4))
def test_rows_are_refused_that_are_refused_one_by_one(counts, moments):
    columns = dict(zip(COUNTS, zip(*counts, strict=True), strict=True))
    mean, var = zip(*moments[: len(counts)], strict=True)
    flows = pack(FlowColumns, **columns, source_port=range(len(counts)), mean_ln=mean, var_ln=var)
    summary = Summary(
        host="h", instance="i", start_ns=0, width_ns=5, endpoints=(EndpointId("a", 0),), flows=flows
    )
    fine = all(
        sent <= MAX_SENT and count <= MAX_SENT and lost + refused <= sent and large <= sent
        and lost_large <= min(lost, large)
        for sent, lost, refused, large, lost_large, count in counts
    ) and all(0 <= m <= 22.2 and 0 <= v < 100 for m, v in zip(mean, var, strict=True))  # fmt: skip
    if not fine:
        with pytest.raises(RemoteProtocolError):
            FlowNumbers().decode(summary)
    else:
        rows = FlowNumbers().decode(summary)
        assert [getattr(rows, name).tolist() for name in COUNTS] == list(
            map(list, columns.values())
        )


@given(st.lists(st.lists(FLOWS, unique=True, max_size=9), min_size=1, max_size=6))
def test_numbers_are_those_of_a_dictionary(windows):
    numbers = FlowNumbers()
    naive = dict[FlowId, int]()
    for flows in windows:
        rows = numbers.decode(summary_of([ProbeReplied(flow, 1, 0) for flow in flows]))
        said = sorted(flows, key=lambda flow: flow.source_port)
        assert rows.flow.tolist() == [naive.setdefault(flow, len(naive)) for flow in said]


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
            Window(start_ns, 5), host="h", instance="i", findings=(), health=Health()
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


def test_many_flows_that_were_numbered_together_keep_their_numbers(monkeypatch):
    monkeypatch.setattr(flows_module, "MAX_ROWS", 3)
    ends, ports = (EndpointId("a", 0), EndpointId("d", 0)), np.array([9, 3, 7, 1], np.uint16)
    nowhere = np.zeros(4, np.uint8)
    numbers = FlowNumbers()
    assert numbers.traced(ends, (nowhere, nowhere + 1, ports), seen_ns=5).tolist() == [0, 1, 2, 3]

    def decoded(start_ns, *ports):
        events = [ProbeReplied(FlowId(*ends, port), 1, 0) for port in ports]
        rows = numbers.decode(replace(summary_of(events), start_ns=start_ns))
        found = [flow.source_port for flow in numbers.flows(rows.flow)]
        assert sorted(found) == sorted(ports)
        return dict(zip(found, rows.flow.tolist(), strict=True))

    assert decoded(10, 1, 9) == {1: 3, 9: 0}
    assert decoded(10, 3, 8) == {3: 1, 8: 4}  # one is new
    assert numbers.recycle(before_ns=10).tolist() == [2]
    assert decoded(15, 2) == {2: 2}
    assert decoded(20, 7) == {7: 5}  # another flow has the number that it had


@given(st.lists(st.tuples(st.lists(FLOWS, unique=True, max_size=8), st.booleans()), max_size=8))
def test_numbers_name_their_flows_and_ends_whatever_was_forgotten(windows):
    numbers, seen = FlowNumbers(), {}
    for now, (flows, forget) in enumerate(windows):
        summary = summary_of([ProbeReplied(flow, 1, 0) for flow in flows])
        rows = numbers.decode(replace(summary, start_ns=now))
        assert numbers.flows(rows.flow) == [row["flow"] for row in rows_of(summary)]
        seen |= dict.fromkeys(flows, now)
        if forget:
            numbers.recycle(before_ns=now)
            seen = {flow: at for flow, at in seen.items() if at >= now}
        known = numbers.items()
        assert {flow for _, flow in known} == seen.keys()
        assert len({number for number, _ in known}) == len(known) == len(numbers)
        for number, flow in known:
            assert numbers.known(flow) == numbers.number(flow) == number
            source, target = numbers.ends(np.array([number]))[:, 0]
            assert (numbers.endpoint(source), numbers.endpoint(target)) == (
                flow.source,
                flow.target,
            )
            assert (numbers.end(flow.source), numbers.end(flow.target)) == (source, target)
        ends = {end for flow in seen for end in (flow.source, flow.target)}
        assert not forget or numbers._end_at.keys() == {(e.container, e.rail) for e in ends}


def test_numbers_of_an_earlier_version_stay_as_they_were():
    a, b, c = (FlowId(EndpointId("a", 0), EndpointId("d", 0), port) for port in (7, 8, 9))
    old = {
        "_number": {a: 0, c: 2}, "_flows": [a, b, c], "_free": [1], "_blocks": {},
        "_seen_ns": np.arange(1024), "_endpoint": {}, "_endpoints": [],
        "_ends": np.full((2, 1024), -1),
    }  # fmt: skip
    numbers = FlowNumbers(**FlowNumbers.upgraded(old))
    assert numbers.items() == [(0, a), (2, c)]
    assert numbers.number(b) == 1
    assert numbers.recycle(before_ns=2).tolist() == [0, 1]
    same = FlowNumbers.upgraded({"_numbers": {}, "_endpoint": {a.source: 3}})
    assert same == {"_numbers": {}, "_end_at": {("a", 0): 3}}
    assert FlowNumbers.upgraded(same) == same


def test_endpoints_beyond_what_a_key_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(flows_module, "MAX_ENDS", 2)
    numbers, end = FlowNumbers(), EndpointId("a", 0)
    numbers.number(FlowId(end, EndpointId("b", 0), 1))
    with pytest.raises(RemoteProtocolError, match="more than 2 endpoints"):
        numbers.number(FlowId(end, EndpointId("c", 0), 1))


def test_endpoints_of_a_refused_summary_are_forgotten():
    twice = FlowColumns(source=bytes(4), target=bytes(4), source_port=bytes(4))
    summary = Summary(
        host="h", instance="i", start_ns=0, width_ns=5, endpoints=(EndpointId("a", 0),), flows=twice
    )
    numbers = FlowNumbers()
    with pytest.raises(RemoteProtocolError, match="two rows"):
        numbers.decode(summary)
    numbers.recycle(before_ns=0)
    assert numbers.end(EndpointId("a", 0)) is None


def test_a_histogram_is_no_larger_than_what_came_of_it():
    """Narrow columns of zeros are no bytes: a row could claim 65,535 entries for two of them."""
    summary = summary_of(
        [ProbeReplied(FlowId(EndpointId("a", 0), EndpointId("d", 0), n), 1, 0) for n in range(3)]
    )
    flows = replace(
        summary.flows, hist_len=b"\xff\xff" * 3, hist_bucket=b"", hist_count=b"", sent=b""
    )
    with pytest.raises(RemoteProtocolError, match="196605 entries"):
        FlowNumbers().decode(replace(summary, flows=flows))


def test_a_host_that_keeps_probing_other_flows_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr("analyzer.intake.flows.MAX_ROWS", 5)
    numbers, oracle = FlowNumbers(), {}
    for window in range(20):
        flows = [FlowId(EndpointId("a", 0), EndpointId("d", 0), window + n) for n in (0, 9, 2)]
        rows = numbers.decode(summary_of([ProbeReplied(each, 1, 0) for each in flows]))
        for flow, number in zip(numbers.flows(rows.flow), rows.flow.tolist(), strict=True):
            assert oracle.setdefault(flow, number) == number
        known, of_known = numbers._of_host["h"]
        assert len(known) == len(of_known) <= 5
        assert (np.diff(known) > 0).all()


def test_more_flows_than_a_host_probes_are_refused(monkeypatch):
    monkeypatch.setattr("analyzer.intake.flows.MAX_ROWS", 2)
    flows = [FlowId(EndpointId("a", 0), EndpointId("d", 0), n) for n in range(3)]
    with pytest.raises(RemoteProtocolError, match="3 flows"):
        FlowNumbers().decode(summary_of([ProbeReplied(each, 1, 0) for each in flows]))


def test_a_copy_takes_no_endpoint_for_another_one_that_is_where_that_was():
    numbers = FlowNumbers()
    numbers.decode(summary_of([ProbeReplied(flow(n), 1, 0) for n in range(64)]))
    other = copy.deepcopy(numbers)
    del numbers
    for n in range(64, 512):  # some of them are where endpoints of the first one were
        other.decode(summary_of([ProbeReplied(flow(n), 1, 0)]))
        assert other.number(flow(n)) == n


def flow(n):
    return FlowId(EndpointId(f"c{n}", 0), EndpointId(f"d{n}", 0), 40_000)


@given(
    st.lists(FLOWS, unique=True, max_size=6),
    st.lists(FLOWS, max_size=12),
    st.lists(st.tuples(st.lists(FLOWS, unique=True, max_size=6), st.booleans()), max_size=5),
)
def test_flows_that_were_numbered_together_are_as_if_each_had_come(before, restored, windows):
    """The oracle keeps all of them in one table."""
    ends = tuple(dict.fromkeys(end for flow in restored for end in (flow.source, flow.target)))
    rows = tuple(
        np.array(column, np.int64)
        for column in (
            [ends.index(flow.source) for flow in restored],
            [ends.index(flow.target) for flow in restored],
            [flow.source_port for flow in restored],
        )
    )
    found = []
    for most in (2, 1 << 17):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flows_module, "MAX_ROWS", most)
            numbers = FlowNumbers()
            numbers.restore(before, seen_ns=0)
            said = [numbers.traced(ends, rows, seen_ns=0).tolist()]
            assert len(numbers._restored[0]) in {0, len({*before, *restored})}
            patch.setattr(flows_module, "MAX_ROWS", max(most, 6))
            for now, (flows, forget) in enumerate(windows, 1):
                summary = summary_of([ProbeReplied(flow, 1, 0) for flow in flows])
                said.append(numbers.decode(replace(summary, start_ns=now)).flow.tolist())
                gone = numbers.recycle(before_ns=now).tolist() if forget else []
                said += [gone, numbers.items(), numbers.items(2), len(numbers), numbers.known_parts]
                said.append([numbers.known(flow) for flow in (*before, *restored, *flows)])
            found.append(said)
    assert found[0] == found[1]


def test_more_flows_than_a_host_has_keep_their_numbers_where_none_is_new(monkeypatch):
    monkeypatch.setattr(flows_module, "MAX_ROWS", 2)
    numbers, ends = FlowNumbers(), tuple(map(EndpointId, "ad", (0, 0)))
    rows = tuple(np.array(column, np.int64) for column in ([0, 0, 0], [1, 1, 1], [7, 8, 7]))
    for _ in range(2):
        assert numbers.traced(ends, rows, seen_ns=0).tolist() == [0, 1, 0]


def columns_of(rows):
    """Return what was decoded of flows, by flow and column, and of histograms in order."""
    names = [each.name for each in fields(rows) if each.name not in {"host", "instance", "window"}]
    return {name: getattr(rows, name).tolist() for name in names}


def of_host(host, events, start_ns=0):
    return replace(summary_of(events), host=host, start_ns=start_ns)


def moved(flow, host):
    """Return the flow as another host has it: one has no flow of another's."""
    return FlowId(EndpointId(f"{flow.source.container}{host}", 0), flow.target, flow.source_port)


HOST_EVENTS = st.lists(st.lists(EVENTS, min_size=3, max_size=3), min_size=1, max_size=3)


@given(HOST_EVENTS)
def test_hosts_decoded_together_are_what_each_is_alone(windows):
    together, alone, tables = FlowNumbers(), FlowNumbers(), {}
    for now, of_hosts in enumerate(windows):
        every = []
        for host, events in enumerate(of_hosts):
            mine = [each._replace(flow=moved(each.flow, host)) for each in events]
            summary = of_host(f"h{host}", mine, start_ns=5 * now)
            # As `Tables` does: the same endpoints are the same objects.
            ends = tuple(tables.setdefault(end, end) for end in summary.endpoints)
            every.append(replace(summary, endpoints=ends))
        found = together.decode_all(every)
        for summary, rows in zip(every, found, strict=True):
            expected = alone.decode(summary)
            same = rows or together.decode(summary)
            assert columns_of(same) == columns_of(expected)
            assert (same.host, same.window) == (expected.host, expected.window)
        assert together.items() == alone.items()
        assert together._seen_ns.tolist() == alone._seen_ns.tolist()


def well_known(hosts=3, ports=(7, 8)):
    """Return numbers that know the flows of some hosts, and these hosts' summaries."""
    numbers, every = FlowNumbers(), []
    for host in range(hosts):
        events = [
            ProbeReplied(FlowId(EndpointId(f"a{host}", 0), EndpointId("d", 0), port), 1, 0)
            for port in ports
        ]
        every.append(of_host(f"h{host}", events))
        numbers.decode(every[-1])
    return numbers, every


def test_all_that_is_known_is_decoded_together():
    numbers, every = well_known()
    expected = [columns_of(numbers.decode(each)) for each in every]
    assert [columns_of(rows) for rows in numbers.decode_all(every)] == expected
    assert numbers.decode_all([]) == []


@pytest.mark.parametrize("who", [0, 1, 2])
def test_who_names_a_new_flow_is_decoded_alone(who):
    numbers, every = well_known()
    new = [ProbeReplied(FlowId(EndpointId(f"a{who}", 0), EndpointId("d", 0), 9), 1, 0)]
    every[who] = replace(of_host(f"h{who}", new), endpoints=every[who].endpoints)
    found = numbers.decode_all(every)
    assert [rows is None for rows in found] == [n == who for n in range(3)]
    assert len(numbers) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"lost": b"\5\5"},
        {"source": b"\0\0\2\0"},
        {"source_port": b"\7\0\7\0"},
        {"sent": b"\1"},
        {"hist_len": b"\1\1"},
        {"hist_len": b"\1\0", "hist_bucket": b"\xff\xff", "hist_count": b"\1"},
    ],
    ids=str,
)
def test_where_one_makes_no_sense_each_is_decoded_alone(change):
    numbers, every = well_known()
    every[1] = replace(every[1], flows=replace(every[1].flows, **change))
    assert numbers.decode_all(every) == [None] * 3
    with pytest.raises(RemoteProtocolError):
        numbers.decode(every[1])


def test_a_host_that_names_the_flows_of_another_one_changes_nothing_for_it():
    numbers, every = well_known()
    every[2] = replace(every[0], host="h2")
    expected = [columns_of(numbers.decode(each)) for each in every]
    assert [columns_of(rows) for rows in numbers.decode_all(every)] == expected


def test_of_a_host_that_stands_there_twice_one_is_decoded_with_others():
    numbers, every = well_known()
    later = replace(every[0], instance="j")
    assert [rows is None for rows in numbers.decode_all([*every, later])] == [False] * 3 + [True]


def test_of_a_host_that_was_passed_over_no_later_window_goes_ahead():
    numbers, every = well_known()
    new = [ProbeReplied(FlowId(EndpointId("e", 0), EndpointId("d", 0), 9), 1, 0)]
    found = numbers.decode_all([of_host("h0", new), *every])
    assert [rows is None for rows in found] == [True, True, False, False]


def test_whose_clock_is_wrong_is_decoded_alone():
    numbers, every = well_known()
    every[0] = replace(every[0], start_ns=55)
    assert [rows is None for rows in numbers.decode_all(every)] == [True, False, False]
