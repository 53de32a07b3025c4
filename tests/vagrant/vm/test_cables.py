# SPDX-License-Identifier: Apache-2.0
import tempfile

import pytest

from vagrant.vm import cables
from vagrant.vm.errors import VmError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return cables.folder()


def test_the_two_ends_meet_and_leave_nothing(folder):
    with cables.plugged("wire", 0) as left, cables.plugged("wire", 1) as right:
        assert (left.here, left.there) == (right.there, right.here)
        left.here.touch()
    assert not folder.exists()


def test_the_first_end_to_go_leaves_the_other_in_place(folder):
    with cables.plugged("wire", 1) as right:
        with cables.plugged("wire", 0):
            right.here.touch()
        assert right.here.exists()


@pytest.mark.parametrize(("name", "index"), [("a/b", 0), ("", 0), ("x" * 33, 0), ("wire", 2)])
def test_what_cannot_be_a_cable_is_refused(folder, name, index):
    with pytest.raises(VmError), cables.plugged(name, index):
        pass
