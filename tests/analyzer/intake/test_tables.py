# SPDX-License-Identifier: Apache-2.0
from contextlib import nullcontext

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from analyzer.intake import tables as tables_module
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.tables import HEAD, MOST_BYTES, MOST_WAYS, Tables
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode, deflated, encode
from netagent.wire.columns import pack
from netagent.wire.messages import (
    MAX_NAMES,
    MAX_TABLE,
    CounterColumns,
    FlowColumns,
    PathColumns,
    Summary,
)

EMPTY = Summary(host="h", instance="i", start_ns=0, width_ns=5_000_000_000)
# Of some names HEAD is a part: the last two bytes of a letter, and what follows it.
NAMES = st.one_of(
    st.sampled_from(["a", "\u30a9container", "\u30a9container\u30a9container"]), st.text()
)
ENDPOINTS = st.builds(EndpointId, NAMES, st.integers(0, 300))


def summary_of(*ends):
    return replace(EMPTY, endpoints=tuple(ends))


@given(st.lists(st.lists(ENDPOINTS, max_size=20), max_size=5))
def test_a_summary_is_read_as_it_is_decoded(windows):
    tables = Tables()
    for ends in windows:
        for body in (encode(summary_of(*ends)), deflated(encode(summary_of(*ends)))):
            assert asdict(tables.read(body)) == asdict(decode(body, Summary))


def test_whoever_names_the_same_endpoint_gets_the_same_object():
    tables, ends = Tables(), [EndpointId("a", 0), EndpointId("b", 1)]
    first = tables.read(encode(summary_of(*ends))).endpoints
    again = tables.read(encode(summary_of(ends[1], EndpointId("c", 0), ends[0]))).endpoints
    assert (again[0] is first[1], again[2] is first[0]) == (True, True)


@pytest.mark.parametrize("change", [
    {"endpoints": (EndpointId("a", 0),)}, {"paths": PathColumns(routes=((),))},
    {"counters": CounterColumns(devices=("",))}, {"counters": CounterColumns(counters=("",))},
])  # fmt: skip
def test_a_table_longer_than_what_names_its_rows_is_refused(change):
    ((field, one),) = change.items()
    many = MAX_NAMES if field == "counters" else MAX_TABLE
    for length, refused in ((many, False), (many + 1, True)):
        if isinstance(one, tuple):
            longer = one * length
        else:
            longer = replace(one, **{n: t * length for n, t in asdict(one).items() if t})
        body = encode(replace(EMPTY, **{field: longer}))
        with pytest.raises(RemoteProtocolError) if refused else nullcontext():
            assert Tables().read(body).host == "h"


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_table_that_is_cut_or_changed_is_read_as_without_what_was_seen(noise, at):
    tables = Tables()
    body = encode(summary_of(*(EndpointId(name, n) for n, name in enumerate("abc"))))
    tables.read(body)
    odd = body[:at] + noise + body[at + len(noise) :]
    try:
        expected = asdict(decode(odd, Summary))
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            tables.read(odd)
    else:
        assert asdict(tables.read(odd)) == expected


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_any_number_of_endpoints_is_read_of_what_was_seen(count, monkeypatch):
    tables, end = Tables(), EndpointId("a", 0)
    tables.read(encode(summary_of(end)))
    body = encode(summary_of(*[end] * count))
    asked = []

    def one_decode(body, kind):
        asked.append(kind)
        return decode(body, kind)

    monkeypatch.setattr(tables_module, "decode", one_decode)
    assert tables.read(body).endpoints == (end,) * count
    assert len(asked) == 1  # the summary, and no table


def test_who_names_the_same_ones_again_has_the_same_table():
    tables, ends = Tables(), [EndpointId("a", 0), EndpointId("b", 1)]
    first = tables.read(encode(summary_of(*ends))).endpoints
    tables.read(encode(replace(summary_of(*ends[::-1]), host="other")))
    assert tables.read(encode(summary_of(*ends))).endpoints is first
    assert tables.read(encode(summary_of(*ends[::-1]))).endpoints == tuple(ends[::-1])
    assert tables.read(encode(summary_of(*ends))).endpoints == first


def test_tables_of_hosts_are_bounded(monkeypatch):
    monkeypatch.setattr(tables_module, "MOST_HOSTS", 2)
    tables = Tables()
    bodies = [encode(replace(summary_of(EndpointId("a", 0)), host=host)) for host in "hijh"]
    found = [tables.read(body).endpoints for body in bodies]
    assert found[3] is not found[0]
    assert tables.read(bodies[3]).endpoints is found[3]


def test_what_another_encoder_writes_is_read_and_not_remembered():
    tables, ends = Tables(), (EndpointId("a", 1),)
    told = msgpack.unpackb(encode(summary_of()))
    told["endpoints"] = [{"rail": 1, "container": "a"}]
    assert tables.read(msgpack.packb(told)).endpoints == ends
    wide = msgpack.packb("a").join([HEAD, b"\xa4rail\xd1\x00\x01"])  # the number in two bytes
    whole = encode(summary_of(*ends))
    odd = whole.replace(encode(ends[0]), wide)
    assert odd != whole
    found = tables.read(odd).endpoints
    assert found == ends
    tables.read(encode(summary_of()))  # it would be the host's newest table otherwise
    assert tables.read(odd).endpoints[0] is not found[0]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(tables_module, "MOST_KNOWN", 2)
    tables, long = Tables(), EndpointId("a" * MOST_BYTES, 0)
    body = encode(summary_of(long))
    first = tables.read(body).endpoints
    ends = [EndpointId(name, 0) for name in "abc"]
    others = tables.read(encode(summary_of(*ends))).endpoints
    assert others == tuple(ends)
    assert tables.read(body).endpoints[0] is not first[0]
    again = tables.read(encode(summary_of(*ends))).endpoints
    assert again == tuple(ends)
    assert again[0] is not others[0]


def test_numbers_of_objects_are_those_of_their_names():
    """Who reads with tables, and who does not, by turns: flows keep their numbers."""
    numbers, tables = FlowNumbers(), Tables()
    ends = [EndpointId(name, 0) for name in "abcd"]
    flows = pack(
        FlowColumns,
        source=[0, 1], target=[2, 3], source_port=[1, 2], sent=[1, 1], lost=[0, 0], refused=[0, 0],
        sent_large=[0, 0], lost_large=[0, 0], run=[0, 0], run_ms=[0, 0], count=[0, 0],
        min_ns=[0, 0], max_ns=[0, 0], mean_ln=[0, 0], var_ln=[0, 0], prober_ns=[0, 0],
        responder_ns=[0, 0], hist_len=[0, 0], hist_bucket=[], hist_count=[],
    )  # fmt: skip
    body = encode(replace(summary_of(*ends), flows=flows))
    found = [
        numbers.decode(read(body)).flow.tolist()
        for read in (tables.read, lambda body: decode(body, Summary), Tables().read, tables.read)
    ]
    assert found == [[0, 1]] * 4
    assert numbers.decode(tables.read(body)).flow.tolist() == [0, 1]  # by its table
    gone = numbers.recycle(before_ns=1)
    assert sorted(gone.tolist()) == [0, 1]
    other = encode(replace(summary_of(*ends[::-1]), flows=flows))
    again = numbers.decode(tables.read(other)).flow
    assert [str(each.source) for each in numbers.flows(again)] == ["d/rail0", "c/rail0"]
    again = numbers.decode(tables.read(body)).flow
    assert [str(each.source) for each in numbers.flows(again)] == ["a/rail0", "b/rail0"]


def with_routes(*routes):
    return encode(replace(EMPTY, paths=PathColumns(routes=routes)))


@given(st.lists(st.lists(st.lists(NAMES, max_size=5).map(tuple), max_size=5), max_size=3))
def test_routes_are_read_as_they_are_decoded(windows):
    tables = Tables()
    for routes in windows:
        body = with_routes(*routes)
        assert asdict(tables.read(body)) == asdict(decode(body, Summary))


@pytest.mark.parametrize(("paths", "kept"), [
    (PathColumns(routes=(("leaf", ""), ())), True),
    (PathColumns(routes=(("leaf", ""), ()), whole_ns=1), False),
    (PathColumns(routes=(("r" * (MOST_BYTES + 1),),)), False),
    (PathColumns(routes=(("leaf",),) * (MOST_WAYS + 1)), False),
])  # fmt: skip
def test_routes_that_a_host_says_again_are_the_same_object(paths, kept):
    tables, other = Tables(), PathColumns(routes=(("other",),), whole_ns=1)
    once, _, again = (
        tables.read(encode(replace(EMPTY, paths=each))).paths.routes
        for each in (paths, other, paths)
    )
    assert once == again == paths.routes
    assert (once is again) == kept


def test_what_differs_is_read_once_until_it_is_something_else():
    tables = Tables()
    whole, news, others = (
        PathColumns(routes=(routes,), whole_ns=at)
        for routes, at in ((("a",), 0), (("b",), 1), (("c",), 1))
    )
    seen = [
        tables.read(encode(replace(EMPTY, paths=each))).paths.routes
        for each in (whole, news, news, whole, news, others, news)
    ]
    assert seen[1] is seen[2] is seen[4]
    assert seen[0] is seen[3]
    assert seen[6] == seen[1]
    assert seen[6] is not seen[1]


def test_no_more_hosts_have_their_routes_remembered_than_may(monkeypatch):
    monkeypatch.setattr(tables_module, "MOST_HOSTS", 2)
    tables, seen = Tables(), []
    for host in ("a", "b", "a", "c", "a"):
        one = replace(EMPTY, host=host, paths=PathColumns(routes=((host,),)))
        seen.append(tables.read(encode(one)).paths.routes)
    assert seen[2] is seen[0]
    assert seen[4] is not seen[2]


def test_a_router_has_one_name_however_many_hosts_say_it(monkeypatch):
    monkeypatch.setattr(tables_module, "MOST_ROUTERS", 4)
    tables, long = Tables(), "r" * (MOST_BYTES + 1)
    [[leaf, spine], [_, far]] = tables.read(
        with_routes(("leaf", "spine"), ("x", long))
    ).paths.routes
    [[again, same, farther]] = tables.read(with_routes(("leaf", "spine", long))).paths.routes
    assert (again is leaf, same is spine) == (True, True)
    assert farther == far
    assert farther is not far  # nobody keeps what may be a megabyte
    tables.read(with_routes(("y",), ("leaf", "spine")))
    [[later]] = tables.read(with_routes(("leaf",))).paths.routes
    assert later is leaf  # there is room, and names that are known need none
    tables.read(with_routes(("z",)))  # all are forgotten
    [[later]] = tables.read(with_routes(("leaf",))).paths.routes
    assert later == leaf
    assert later is not leaf
