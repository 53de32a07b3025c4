# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent_torch import form

HEAD = form.Head(64, 1024, 70, 12, 4711, 10**18, 10**12, 0)


def test_a_head_is_read_as_it_was_written():
    assert form.read_head(form.pack_head(HEAD)) == HEAD


def test_the_oldest_record_is_the_one_that_none_took_the_place_of():
    assert HEAD.first == 7
    assert HEAD.offset(7) == form.HEAD_BYTES + 1024 + 6 * form.RECORD_BYTES
    assert HEAD.offset(65) == HEAD.offset(1)


@pytest.mark.parametrize(
    "head",
    [
        HEAD._replace(capacity=0),
        HEAD._replace(capacity=form.MAX_CAPACITY + 1),
        HEAD._replace(lines_bytes=form.MAX_LINES_BYTES + 1),
        HEAD._replace(lines_used=1025),
    ],
)
def test_a_head_out_of_bounds_is_refused(head):
    with pytest.raises(ValueError, match="a ring"):
        form.read_head(form.pack_head(head))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data):
    try:
        head = form.read_head(data)
    except ValueError:
        return
    assert 0 < head.capacity <= form.MAX_CAPACITY


def test_another_version_is_refused():
    data = bytearray(form.pack_head(HEAD))
    data[8] = 2
    with pytest.raises(ValueError, match="version 2"):
        form.read_head(bytes(data))


def test_records_are_read_as_they_were_written_and_half_ones_passed_over():
    record = form.Record(3, 10, 11, 12, 4096, 7, 2, -1, 5, 1, form.COLLECTIVE, 9)
    data = form.RECORD.pack(*record)
    assert form.read_records(data + data[:40]) == [record]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_of_lines_only_objects_are_kept(lines):
    good = json.dumps({"op": 1}).encode()
    found = form.read_lines(b"\n".join([*lines, good]))
    assert found[-1] == {"op": 1}
    assert all(isinstance(each, dict) for each in found)


def test_who_writes_very_many_lines_has_the_first_read():
    data = b'{"op":0}\n' + b"\n" * form.MOST_LINES + b'{"op":1}\n'
    assert form.read_lines(data) == [{"op": 0}]
