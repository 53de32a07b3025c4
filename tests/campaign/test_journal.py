# SPDX-License-Identifier: Apache-2.0
import lzma

import pytest

from tests.campaign.episode import Outcome, Said, Truth
from tests.campaign.journal import Journal, JournalError, read
from tests.campaign.options import Options

TRUTH = Truth(1, "CRC error", "link a -- b", "link", ("x",), 1.0)
SAID = Said("i1", 5.2, None, "underlay", 0.9, ("link a -- b",), "open")
ONE = Outcome(1, (TRUTH,), (SAID,), 50.0, ("odd",), {"007": ("link a -- b",)}, 3)
OTHER = Outcome(2, (), (), 50.0)
WARMED = Outcome(1, (), (SAID,), 300.0, warming=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "campaign.jsonl"


def written(path, *outcomes, **kinds):
    book = Journal(path, Options(), **kinds)
    for each in outcomes:
        book.add(each)
    book.close()
    return book


def test_what_was_written_is_read_again(path):
    written(path, WARMED, ONE, OTHER)
    assert read(path) == (Options(), [WARMED, ONE, OTHER])


def test_a_run_goes_on_after_the_last_whole_line(path):
    written(path, ONE)
    with path.open("a") as file:
        file.write('{"seed": 2, "truths": [' + 1_000 * " ")
    assert written(path, OTHER, resume=True).outcomes == [ONE]
    assert path.read_bytes().endswith(b"}\n")
    assert read(path) == (Options(), [ONE, OTHER])


def test_there_need_be_nothing_to_go_on_with(path):
    assert written(path, ONE, resume=True).outcomes == []
    assert read(path)[1] == [ONE]


def test_without_resume_a_file_begins_anew(path):
    written(path, ONE)
    written(path, OTHER)
    assert read(path)[1] == [OTHER]


def test_other_options_are_refused_by_name_and_change_nothing(path):
    written(path, ONE)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="other options: hosts: 32 there, 64 here; loss: "):
        Journal(path, Options(hosts=64, loss=0.5), resume=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("body", [b"", b"{}\n", b'{"seed": 1}\n', b"no\n", b"[]\n"])
def test_another_file_is_refused_and_kept(path, body):
    path.parent.mkdir()
    path.write_bytes(body)
    with pytest.raises(JournalError, match="no campaign's output"):
        Journal(path, Options(), resume=True)
    assert path.read_bytes() == body


def test_a_file_that_is_not_there_cannot_be_scored(path):
    with pytest.raises(JournalError, match="No such file"):
        read(path)


def test_a_packed_file_is_read_and_never_written(path):
    written(path, ONE, OTHER)
    packed = path.with_suffix(".jsonl.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    before = packed.read_bytes()
    assert read(packed) == (Options(), [ONE, OTHER])
    with pytest.raises(JournalError, match="unpack it"):
        Journal(packed, Options(), resume=True)
    assert packed.read_bytes() == before
    packed.write_bytes(before[: len(before) // 2])
    with pytest.raises(JournalError, match="no campaign's output"):
        read(packed)
