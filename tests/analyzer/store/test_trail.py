# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.actions.broker import Action, Entry, Step
from analyzer.actions.verbs import Remedy, Verb
from analyzer.store.trail import FILE, Trail

REMEDY = Remedy(Verb.CORDON, "h1", "h1", "hook cordon h1", "hook uncordon h1")
ACTION = Action("i1-00000000", "i1", REMEDY, "rnic h1/rnic0 loses")


def entry(number, step=Step.STARTED, action=ACTION):
    return Entry(number, action, step, f"text {number}", "anna")


def test_what_was_added_is_read_in_its_order(tmp_path):
    made = Trail(tmp_path / FILE)
    assert made.read() == []
    told = [entry(n) for n in range(5)] + [entry(5, Step.CLOSED, None)]
    made.add(told[:2])
    made.add([])
    made.add(told[2:])
    assert Trail(tmp_path / FILE).read() == told
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@given(cut=st.integers(0, 400))
def test_a_line_that_was_cut_off_costs_that_line_alone(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("trail") / FILE
    Trail(path).add([entry(0), entry(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    Trail(path).add([entry(2)])
    read = Trail(path).read()
    assert read[-1] == entry(2)
    assert read[:-1] == [entry(0), entry(1)][: len(read) - 1]
    assert cut > 1 or len(read) == 3


def test_two_files_bound_the_space(tmp_path):
    made = Trail(tmp_path / FILE, most_bytes=2_000)
    for number in range(200):
        made.add([entry(number)])
    numbers = [each.wall_ns for each in made.read()]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 5
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 6_000
    assert len(list(tmp_path.iterdir())) == 2


def test_what_makes_no_sense_is_passed_over(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(b'{"wall_ns": 1}\n\xff\xfe\nnull\n' + b"x" * (1 << 17) + b"\n")
    Trail(path).add([entry(1)])
    assert Trail(path).read() == [entry(1)]


def test_who_is_killed_at_once_has_written_it(tmp_path):
    code = (
        "import os, pathlib, signal, sys\n"
        "from tests.analyzer.store.test_trail import entry\n"
        "from analyzer.store.trail import Trail\n"
        "Trail(pathlib.Path(sys.argv[1])).add([entry(7)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / FILE)], check=False)
    assert ended.returncode == -9
    assert Trail(tmp_path / FILE).read() == [entry(7)]


def test_a_disk_that_refuses_is_told(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        Trail(tmp_path / FILE).add([entry(1)])


@pytest.mark.parametrize("step", [Step.OPENED, Step.CLOSED])
def test_the_breaker_stays_as_it_is_however_much_is_told_after_it(tmp_path, step):
    trail = Trail(tmp_path / FILE, most_bytes=1_000)
    trail.add([entry(0, Step.OPENED, None), entry(1, step, None)])
    for n in range(2, 100):
        trail.add([entry(n, Step.ADVISED)])
    read = trail.read()
    assert [each for each in read if each.action is None][-1] == entry(1, step, None)
    assert read[-1] == entry(99, Step.ADVISED)
    assert len(read) < 20
