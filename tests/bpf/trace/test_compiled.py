# SPDX-License-Identifier: Apache-2.0
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.compiled import (
    ARRAY,
    HASH,
    Compiled,
    Function,
    Map,
    from_data,
    linked,
    to_data,
    unlinked,
)
from netagent.model.errors import RemoteProtocolError

MAPS = (Map("config", ARRAY, 4, 64, 1, 0), Map("drops", HASH, 32, 8, 2048, 1))
DESCRIPTORS = {"config": 5, "drops": 1_000_000}
LOAD_MAP, LOAD_NUMBER, EXIT = (0x18, 0x11), (0x18, 0x01), (0x95, 0)


def code(*rows: tuple[tuple[int, int], int]) -> bytes:
    """Return instructions of (opcode, registers) and immediates."""
    return b"".join(struct.pack("<BBhi", *what, 0, value) for what, value in rows)


def test_descriptors_are_taken_out_and_put_in_again():
    before = code((LOAD_MAP, 7), ((0, 0), 0), (LOAD_NUMBER, 7), ((0, 0), 0), (EXIT, 0))
    function = unlinked("on_drop", before, {7: "config"})
    assert function.uses == ((0, "config"),)
    assert function.instructions == before.replace(code((LOAD_MAP, 7)), code((LOAD_MAP, 0)))
    assert linked(function, {"config": 7}) == before
    assert linked(function, {"config": 9})[:8] == code((LOAD_MAP, 9))


def test_a_map_without_a_name_is_refused():
    with pytest.raises(RemoteProtocolError, match="on_drop uses a map"):
        unlinked("on_drop", code((LOAD_MAP, 7), ((0, 0), 0)), {8: "config"})


instructions = st.one_of(
    st.sampled_from(sorted(DESCRIPTORS.values())).map(lambda fd: (LOAD_MAP, fd)),
    st.tuples(st.tuples(st.integers(0, 255), st.integers(0, 15)), st.integers(-(2**31), 2**31 - 1)),
)


@given(st.lists(instructions, min_size=1, max_size=30))
def test_what_is_kept_loads_as_it_was(rows):
    before = code(*rows)
    names = {number: name for name, number in DESCRIPTORS.items()}
    compiled = Compiled(MAPS, (unlinked("on_drop", before, names),))
    again = from_data(json.loads(json.dumps(to_data(compiled))))
    assert again == compiled
    assert linked(again.functions[0], DESCRIPTORS) == before


GOOD = to_data(Compiled(MAPS, (Function("on_drop", code((LOAD_MAP, 0)), ((0, "drops"),)),)))


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {**GOOD, "maps": [["config", 2, 4, 64, 1]]},
        {**GOOD, "maps": [["config", 2, 4, 64, -1, 0]]},
        {**GOOD, "maps": [["config", 2, 4, 64, 1 << 30, 0]]},
        {**GOOD, "maps": [["a b", 2, 4, 64, 1, 0]]},
        {**GOOD, "maps": [[1, 2, 4, 64, 1, 0]]},
        {**GOOD, "maps": [["config", 99, 4, 64, 1, 0]]},
        {**GOOD, "functions": [[None, "", None]]},
        {**GOOD, "maps": []},
        {**GOOD, "functions": [["on_drop", "AAAA", []]]},
        {**GOOD, "functions": [["on_drop", "", []]]},
        {**GOOD, "functions": [["on_drop", "!", []]]},
        {**GOOD, "functions": [["on_drop", "AAAAAAAAAAA=", [[1, "drops"]]]]},
    ],
)
def test_another_form_is_refused(broken):
    with pytest.raises(RemoteProtocolError, match="another form"):
        from_data(broken)


leaves = st.none() | st.integers() | st.text() | st.just(GOOD["maps"])
plain = st.recursive(leaves, lambda x: st.lists(x) | st.dictionaries(st.text(), x))


@given(plain | st.fixed_dictionaries({"maps": plain, "functions": plain}))
def test_whatever_a_file_holds_is_refused_or_read(data):
    try:
        compiled = from_data(data)
    except RemoteProtocolError:
        return
    assert from_data(to_data(compiled)) == compiled
