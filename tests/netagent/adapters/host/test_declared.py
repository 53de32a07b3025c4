# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from netagent.adapters.host.declared import DeclaredFolder
from netagent.host.declared import MAX_BYTES, MAX_FILES
from netagent.host.facts import DeclaredFile


@pytest.fixture
def place(tmp_path) -> Path:
    made = tmp_path / "endpoints"
    made.mkdir(mode=0o755)
    return made


def folder(place: Path) -> DeclaredFolder:
    return DeclaredFolder(str(place), owner=os.geteuid())


def put(place: Path, name: str, text: str = "{}", mode: int = 0o644) -> None:
    new = place / f".{name}.new"
    new.write_text(text)
    new.chmod(mode)
    new.rename(place / name)


def test_files_are_read_once_they_have_their_name_and_again_when_they_change(place):
    watched = folder(place)
    assert not watched.look()
    put(place, "b.json", "1")
    put(place, "a.json", "2")
    (place / "note.txt").write_text("3")
    assert watched.look()
    assert watched.files == (DeclaredFile("a.json", b"2"), DeclaredFile("b.json", b"1"))
    assert not watched.look()
    put(place, "a.json", "4")
    (place / "b.json").unlink()
    assert watched.look()
    assert watched.files == (DeclaredFile("a.json", b"4"),)


def test_a_folder_need_not_be_there_yet(tmp_path):
    watched = folder(tmp_path / "endpoints")
    assert not watched.look()
    (tmp_path / "endpoints").mkdir(mode=0o755)
    put(tmp_path / "endpoints", "a.json")
    assert watched.look()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused_until_they_may_not(place, mode):
    watched = folder(place)
    put(place, "a.json", mode=mode)
    watched.look()
    assert watched.files == (DeclaredFile("a.json", problem="others than its owner may write it"),)
    (place / "a.json").chmod(0o600)
    assert watched.look()
    assert watched.files == (DeclaredFile("a.json", b"{}"),)


def test_a_folder_that_others_may_write_is_refused_whole(place):
    put(place, "a.json")
    place.chmod(0o777)
    watched = folder(place)
    watched.look()
    assert watched.files == (
        DeclaredFile(str(place), problem="others than its owner may write it"),
    )


def test_what_belongs_to_others_is_refused(place):
    put(place, "a.json")
    other = os.geteuid() + 1
    watched = DeclaredFolder(str(place), owner=other)
    watched.look()
    (found,) = watched.files
    assert found.problem == f"belongs to user {os.geteuid()}, not {other}"


def test_what_is_no_file_is_refused_and_holds_up_nobody(place):
    os.mkfifo(place / "pipe.json", 0o600)
    (place / "link.json").symlink_to("/etc/hostname")
    (place / "folder.json").mkdir(mode=0o700)
    watched = folder(place)
    watched.look()
    problems = {file.name: file.problem for file in watched.files}
    assert problems["pipe.json"] == problems["folder.json"] == "is no file"
    assert problems["link.json"].startswith("cannot be read: ")
    place.rename(place.parent / "other")
    place.write_text("")
    assert watched.look()
    assert [file.problem for file in watched.files] == ["is no folder"]


def test_no_more_is_read_than_is_of_use(place):
    put(place, "0.json", "x" * (MAX_BYTES + 100))
    for number in range(MAX_FILES):
        (place / f"a{number}.json").write_text("")
    watched = folder(place)
    watched.look()
    assert len(watched.files) == MAX_FILES + 1
    assert len(watched.files[0].text) == MAX_BYTES + 1
    assert watched.files[-1].problem == f"has {MAX_FILES + 1} files, and {MAX_FILES} are read"


def test_a_name_that_is_no_text_is_kept_as_the_kernel_has_it(place):
    Path(os.fsdecode(os.fsencode(place) + b"/\xff.json")).write_text("")
    watched = folder(place)
    watched.look()
    assert watched.files == (DeclaredFile("\udcff.json"),)
    assert not watched.look()


def test_a_file_that_went_since_the_folder_was_listed_is_none(place, monkeypatch):
    put(place, "a.json")
    listed = [place / "a.json", place / "gone.json"]
    monkeypatch.setattr("netagent.adapters.host.declared.entries", lambda _: listed)
    watched = folder(place)
    watched.look()
    assert watched.files == (DeclaredFile("a.json", b"{}"),)
