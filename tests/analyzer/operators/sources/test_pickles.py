# SPDX-License-Identifier: Apache-2.0
import collections
import os
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.sources import pickles
from netagent.model.errors import RemoteProtocolError

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(max_size=300)
)  # fmt: skip
KEYS = (
    st.text(max_size=9)
    | st.integers(1 - pickles.MAX_KEY, pickles.MAX_KEY - 1)
    | st.booleans()
    | st.none()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES, st.integers(3, 5))  # protocol 2 makes bytes by a call
def test_plain_values_are_read_as_python_reads_them(value, protocol):
    content = pickle.dumps(value, protocol)
    assert pickles.is_pickle(content)
    assert pickles.plain(content) == value


class Evil:
    def __reduce__(self):
        return os.system, ("touch /nonexistent/evil",)


class Point:
    def __init__(self):
        self.x = 1


@pytest.mark.parametrize(
    "value",
    [
        Evil(), Point(), os.system, collections.OrderedDict(a=1), {1, 2}, complex(1, 2), Ellipsis,
        bytearray(b"x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_what_is_no_plain_value_is_refused_and_not_run(value, protocol):
    with pytest.raises(RemoteProtocolError):
        pickles.plain(pickle.dumps([value], protocol))


def test_the_error_names_the_operation_and_its_place():
    with pytest.raises(RemoteProtocolError, match=r"GLOBAL at byte 2: it would run code"):
        pickles.plain(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(RemoteProtocolError, match="operation 0xff at byte 2"):
        pickles.plain(b"\x80\x02\xff.")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02", b"\x80\x02.", b"\x80\x02N", b"\x80\x02NN.", b"\x80\x02(.", b"\x80\x02]e.",
        b"\x80\x02Na.", b"\x80\x02h\x05.", b"\x80\x02(N}u.", b"\x80\x02(NNNt}s.", b"\x80\x020.",
        b"\x80\x02(\x85.", b"\x80\x02X\xff\xff\xff\xffab.", b"\x80\x02I12", b"\x80\x02Ix\n.",
        b"\x80\x02\x8b\xff\xff\xff\xff.", b"\x80\x02X\x01\x00\x00\x00\xff.", b"\x80\x02(q\x00.",
        b"\x80\x02}(Nu.", b"\x80\x02I" + b"9" * 5000 + b"\n.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
    ],
)  # fmt: skip
def test_damage_is_an_error_of_ours(content):
    with pytest.raises(RemoteProtocolError, match="pickle: "):
        pickles.plain(content)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error_of_ours(content):
    try:
        pickles.plain(b"\x80\x04" + content)
    except RemoteProtocolError:
        return


@given(VALUES, st.data())
def test_a_pickle_that_was_cut_or_overwritten_is_a_value_or_an_error_of_ours(value, data):
    content = bytearray(pickle.dumps(value, 4))
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        pickles.plain(bytes(content[: data.draw(st.integers(0, len(content)))]))
    except RemoteProtocolError:
        return


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nothing_nests_deeper_than_the_limit():
    assert pickles.plain(pickle.dumps(nested(pickles.MAX_DEPTH))) == nested(pickles.MAX_DEPTH)
    for depth in (pickles.MAX_DEPTH + 1, 400):
        with pytest.raises(RemoteProtocolError, match="deep"):
            pickles.plain(pickle.dumps(nested(depth)))
    million = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    with pytest.raises(RemoteProtocolError, match="deep"):
        pickles.plain(million)


def test_a_value_that_holds_itself_is_refused():
    whole = []
    whole.append({"a": (whole,)})
    with pytest.raises(RemoteProtocolError, match="deep"):
        pickles.plain(pickle.dumps(whole))


def test_what_is_shared_is_walked_once():
    value = ["x"]
    for _ in range(6):
        value = [value] * 10
    read = pickles.plain(pickle.dumps(value))
    assert read[0] is read[9]


def test_what_is_shared_again_and_again_is_counted_as_often_as_it_is_used():
    body = b"\x80\x04]q\x000"
    for level in range(30):
        here = bytes([level])
        body += b"](h" + here + b"h" + here + b"eq" + bytes([level + 1]) + b"0"
    with pytest.raises(RemoteProtocolError, match="each counted as often as it is used"):
        pickles.plain(body + b"h\x1e.")


def test_keys_that_may_all_have_one_hash_are_refused():
    one = (1 << 61) - 1
    assert hash(2 * one) == hash(one)
    with pytest.raises(RemoteProtocolError, match="a key that is too large"):
        pickles.plain(pickle.dumps({one: 1, 2 * one: 2}, 4))
    with pytest.raises(RemoteProtocolError, match="a float as a key"):
        pickles.plain(pickle.dumps({0.5: 1}, 4))


def test_a_key_is_a_scalar():
    with pytest.raises(RemoteProtocolError, match="a tuple as a key"):
        pickles.plain(pickle.dumps({(1, 2): 3}))


def test_there_are_limits(monkeypatch):
    monkeypatch.setattr(pickles, "MAX_CONTAINERS", 10)
    with pytest.raises(RemoteProtocolError, match="more than 10 lists"):
        pickles.plain(pickle.dumps([[] for _ in range(11)]))
    monkeypatch.setattr(pickles, "MAX_OPERATIONS", 5)
    with pytest.raises(RemoteProtocolError, match="more than 5 operations"):
        pickles.plain(b"\x80\x02" + b"N" * 9 + b".")


def test_old_ways_of_writing_numbers_and_words_are_read():
    numbers = b"I01\nI00\nI7\nL12345678901L\nF1.5\n"
    words = b"U\x02abT\x02\x00\x00\x00cdB\x01\x00\x00\x00x"
    content = b"\x80\x02(" + numbers + words + b"lp5\n0g5\n."
    assert pickles.plain(content) == [True, False, 7, 12345678901, 1.5, "ab", "cd", b"x"]
    assert pickles.plain(b"\x80\x02(NN1(K\x01K\x02d.") == {1: 2}
    assert pickles.plain(b"\x80\x02}K\x01K\x02sr\x09\x00\x00\x00j\x09\x00\x00\x000.") == {1: 2}


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x01.", b"\x80\x06.", b"(dp0\n."])
def test_other_bytes_are_no_pickle(content):
    assert not pickles.is_pickle(content)
