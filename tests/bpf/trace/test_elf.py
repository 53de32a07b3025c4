# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.elf import offsets
from tests.conftest import CC, require

SOURCE = """
int seven(void) { return 7; }
static int hidden(void) { return 8; }
int eight(void) { return hidden(); }
int data = 9;
int pseven(void) { return 9; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    require(CC)
    folder = tmp_path_factory.mktemp("elf")
    source, made = folder / "a.c", folder / "liba.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def reader(path):
    data = Path(path).read_bytes()
    return lambda at, size: data[at : at + size]


def test_an_exported_function_is_where_its_code_is(library):
    found = offsets(reader(library), ["seven", "eight", "hidden", "data", "none"])
    assert set(found) == {"seven", "eight"}
    loaded = ctypes.CDLL(str(library))
    code = ctypes.string_at(ctypes.cast(loaded.seven, ctypes.c_void_p).value, 8)
    at = found["seven"]
    assert library.read_bytes()[at : at + 8] == code


def test_what_is_no_library_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no ELF"):
        offsets(lambda _at, _size: b"#!/bin/sh\n" * 20, ["seven"])


@given(at=st.integers(0, 200), byte=st.integers(0, 255), end=st.integers(0, 20_000))
def test_a_damaged_library_is_read_or_refused(library, at, byte, end):
    data = bytearray(library.read_bytes())
    data[at % len(data)] = byte
    cut = bytes(data[: len(data) - end % len(data)])
    with contextlib.suppress(ValueError):
        offsets(lambda start, size: cut[start : start + size], ["seven"])
