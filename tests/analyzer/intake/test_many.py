# SPDX-License-Identifier: Apache-2.0
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.intake.columns import columns
from analyzer.intake.many import HISTOGRAM, as_one
from netagent.wire.columns import pack, typecodes
from netagent.wire.messages import FlowColumns

PLAIN = [name for name in typecodes(FlowColumns) if name not in HISTOGRAM]
FLOATS = {"mean_ln", "var_ln"}
NUMBERS = st.sampled_from([0, 0, 0, 1, 255, 256, 65_535])
ROW = st.fixed_dictionaries(
    {name: st.sampled_from([0.0, 9.5]) if name in FLOATS else NUMBERS for name in PLAIN}
    | {"hist_len": st.integers(0, 2)}
)
HOSTS = st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=5)


def flows_of(rows, number=1):
    entries = sum(row["hist_len"] for row in rows)
    values = {name: [row[name] for row in rows] for name in PLAIN}
    return pack(
        FlowColumns, **values, hist_bucket=[number * 200] * entries, hist_count=[number] * entries
    )


@given(HOSTS)
def test_columns_of_several_are_those_of_each_one_after_the_other(hosts):
    each = [flows_of(rows, n % 3 + 1) for n, rows in enumerate(hosts)]
    sizes = list(map(len, hosts))
    one, entries = as_one(each, sizes)
    assert entries == [sum(row["hist_len"] for row in rows) for rows in hosts]
    for names, of_host in ((tuple(PLAIN), sizes), (HISTOGRAM, entries)):
        joined = columns(one, names, sum(of_host))
        apart = [columns(flows, names, size) for flows, size in zip(each, of_host, strict=True)]
        for name in names:
            expected = np.concatenate([of[name] for of in apart])
            assert joined[name].tolist() == expected.tolist()


@given(HOSTS, st.data())
def test_a_column_that_lacks_items_or_has_more_is_seen(hosts, data):
    each = [flows_of([*rows, *rows]) for rows in hosts]  # one byte more is no other width
    place = data.draw(st.integers(0, len(each) - 1))
    name = data.draw(st.sampled_from(PLAIN))
    odd = replace(each[place], **{name: getattr(each[place], name) + b"\1"})
    flows = [*each[:place], odd, *each[place + 1 :]]
    assert as_one(flows, [2 * len(rows) for rows in hosts]) is None


def test_what_one_has_too_much_is_not_what_another_lacks():
    two, three = flows_of([dict.fromkeys(PLAIN, 1)] * 2), flows_of([dict.fromkeys(PLAIN, 1)] * 3)
    swapped = [replace(two, sent=three.sent), replace(three, sent=two.sent)]
    assert as_one([two, three], [2, 3]) is not None
    assert as_one(swapped, [2, 3]) is None


def test_entries_without_counts_are_seen_beside_those_that_have_them():
    row = dict.fromkeys(PLAIN, 1)
    fine, without = flows_of([row]), replace(flows_of([row]), hist_count=b"")
    assert as_one([fine, fine], [1, 1]) is not None
    assert as_one([fine, without], [1, 1]) is None
    assert as_one([without], [1]) is None


@pytest.mark.parametrize("width", [3, 5, 100_000])
def test_a_column_of_a_width_that_there_is_not_makes_nobody_elses_wider(width):
    quiet, odd = flows_of([dict.fromkeys(PLAIN, 0)] * 1000), flows_of([dict.fromkeys(PLAIN, 0)])
    tracemalloc.start()
    try:
        flows = [quiet] * 9 + [replace(odd, lost=bytes(width))]
        assert as_one(flows, [1000] * 9 + [1]) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_entries_that_nobody_counted_take_no_room():
    fine = flows_of([dict.fromkeys(PLAIN, 1)], number=2)
    odd = replace(flows_of([dict.fromkeys(PLAIN, 0)] * 500), hist_len=b"\xff\xff" * 500)
    tracemalloc.start()
    try:
        assert as_one([fine, odd], [1, 500]) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
