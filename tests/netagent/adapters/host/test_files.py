# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.adapters.host import files


def test_a_file_is_read_without_the_space_around_it(tmp_path):
    (tmp_path / "a").write_text(" 4: ACTIVE\n")
    assert files.read_text(f"{tmp_path}/a") == "4: ACTIVE"
    assert files.read_bytes(f"{tmp_path}/a") == b" 4: ACTIVE\n"


@pytest.mark.parametrize(("text", "value"), [("17\n", 17), ("-1\n", None), ("N/A\n", None)])
def test_a_number_is_decimal_or_none(tmp_path, text, value):
    (tmp_path / "n").write_text(text)
    assert files.number(f"{tmp_path}/n") == value


def test_what_is_not_there_is_absent(tmp_path):
    assert files.read_text(f"{tmp_path}/x") == ""
    assert files.number(f"{tmp_path}/x") is None
    assert files.link_at(tmp_path / "x") is None
    assert files.entries(tmp_path / "x") == []


def test_what_is_no_text_is_absent(tmp_path):
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    assert files.read_text(f"{tmp_path}/b") == ""


def test_links_and_entries_are_read(tmp_path):
    (tmp_path / "to").symlink_to("elsewhere")
    (tmp_path / "a").touch()
    assert str(files.link_at(tmp_path / "to")) == "elsewhere"
    assert [path.name for path in files.entries(tmp_path)] == ["a", "to"]
