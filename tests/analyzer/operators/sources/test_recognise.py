# SPDX-License-Identifier: Apache-2.0
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.sources import recognise
from analyzer.operators.sources.recognise import read
from netagent.model.errors import RemoteProtocolError
from tests.analyzer.operators.sources import test_inspector, test_ras
from tests.analyzer.operators.sources.jobs import Job

DUMPS = Path(__file__).parent / "dumps"
CHAIN = {path.name: path.read_bytes() for path in sorted((DUMPS / "gloo-chain").iterdir())}


def test_each_source_is_recognised_by_what_is_in_it():
    dumps = {name: json.dumps(each).encode() for name, each in Job(2, 1, 1).run().dumps().items()}
    lines = test_inspector.text(test_inspector.header(0) | test_inspector.coll())
    assert read(CHAIN).source == "flight-recorder"
    assert read(dumps).source == "flight-recorder"
    assert read({"x.log": lines}).source == "nccl-inspector"
    assert read({"ras": test_ras.MISMATCH.encode()}).source == "nccl-ras"
    assert read({"ras": json.dumps(test_ras.status([1, 2])).encode()}).source == "nccl-ras"


def test_a_file_may_be_compressed():
    packed = {f"{name}.gz": gzip.compress(each) for name, each in CHAIN.items()}
    assert len(read(packed)) == len(read(CHAIN)) > 0


def test_files_of_something_else_are_left_out_and_named():
    made = read(CHAIN | {"README": b"hello", "ras": test_ras.MISMATCH.encode()})
    assert len(made) == len(read(CHAIN))
    assert any(note.startswith("README was left out: neither") for note in made.notes)
    assert "1 files of other sources were left out: ras" in made.notes
    many = read(CHAIN | {f"x{number}": b"" for number in range(9)})
    assert "6 more files were left out" in many.notes


def test_where_nothing_is_known_the_first_reason_is_given():
    with pytest.raises(RemoteProtocolError, match=r"2 files, none of a format.*a: neither"):
        read({"a": b"?", "b": b""})
    with pytest.raises(RemoteProtocolError, match="no file in it"):
        read({})


def test_gzip_is_bounded_and_whole(monkeypatch):
    whole = gzip.compress(b"x" * 100)
    monkeypatch.setattr(recognise.dump, "MAX_BYTES", 99)
    for content, reason in (
        (whole, "more than 99"),
        (whole[:-12], "too early"),
        (b"\x1f\x8bx", "gzip"),
    ):
        with pytest.raises(RemoteProtocolError, match=reason):
            recognise.unpacked(content)


@given(st.binary(max_size=80), st.sampled_from([b"", b"\x80\x02", b"{", b"[{", b"\x1f\x8b\x08"]))
def test_any_bytes_are_a_log_or_an_error_of_ours(content, begin):
    try:
        read({"rank_0": begin + content})
    except RemoteProtocolError:
        return
