# SPDX-License-Identifier: Apache-2.0
"""A recording replays to the same incidents, in another process, too."""

import io
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from analyzer.replay import records
from analyzer.replay.frames import DamagedRecording, frame
from analyzer.replay.player import play, read
from netagent.model.errors import RemoteProtocolError
from tests.analyzer.diagnosis.world import HOSTS
from tests.analyzer.replay.worlds import LINK, SPINE, Recorded, eventful

ROOT = Path(__file__).parents[3]


@cache
def recorded():
    world = eventful()
    return world.recording(), world.told


def played(data, **options):
    return play(read(io.BytesIO(data)), **options)


def test_the_same_incidents_are_told_byte_for_byte_twice():
    data, told = recorded()
    for _ in range(2):
        again = played(data)
        assert again.differences == []
        assert again.incidents == told
    named = [str(i.verdict.component) for i in again.incidents.values()]
    assert named == [str(LINK), str(SPINE), "agent h2"]
    assert again.seconds > 50


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_other_hashes_tells_the_same(tmp_path, seed):
    file = tmp_path / "a.recording"
    file.write_bytes(recorded()[0])
    done = subprocess.run(
        [sys.executable, "-m", "analyzer.cli", "replay", str(file)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same as then" in done.stdout


def test_what_the_analyzer_refused_is_refused_again():
    world = Recorded()
    world.live(3)
    world.silent = dict.fromkeys(HOSTS, "timeout")
    for trouble in (world.diagnosis.refused, world.diagnosis.stood_still):
        trouble(world.now_ns())
        world.live(3)
    data = world.recording()
    again = played(data)
    assert (again.differences, again.incidents, world.told) == ([], {}, {})
    kept = [r for r in read(io.BytesIO(data)) if not isinstance(r, records.Impaired)]
    assert play(iter(kept)).incidents != {}


def test_a_replay_may_end_early():
    data, _ = recorded()
    whole = played(data)
    middle_ns = whole.last_ns - 20 * 10**9
    half = played(data, until_ns=middle_ns)
    assert half.last_ns <= middle_ns
    assert half.differences == []
    assert 0 < half.told < whole.told


def test_what_was_told_otherwise_then_is_a_difference():
    data, _ = recorded()
    made = []
    for record in read(io.BytesIO(data)):
        if isinstance(record, records.Told) and not any(isinstance(r, records.Told) for r in made):
            continue  # the first thing told is missing
        made.append(record)
    made[-1] = records.End(records=len(made) - 1)
    again = played(b"".join(frame(records.pack(each)) for each in made))
    assert len(again.differences) == 1


def test_a_recording_of_two_runs_begins_anew_with_the_second():
    data, told = recorded()
    first = list(read(io.BytesIO(data)))[:-1]
    second = [r.__class__(**{**_fields(r), "run": 2}) if isinstance(r, records.Header) else r
              for r in first]  # fmt: skip
    both = [*first, *second, records.End(records=2 * len(first))]
    again = played(b"".join(frame(records.pack(each)) for each in both))
    assert again.differences == []
    assert again.incidents == told


def _fields(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_a_recording_without_its_end_or_beyond_it_is_damaged():
    data, _ = recorded()
    end = len(frame(records.pack(list(read(io.BytesIO(data)))[-1])))
    with pytest.raises(DamagedRecording, match="its end is missing"):
        played(data[:-end])
    with pytest.raises(DamagedRecording, match="goes on after its end"):
        played(data + frame(records.pack(records.Stepped(now_ns=1))))
    with pytest.raises(DamagedRecording, match="which counts 9"):
        played(data[:-end] + frame(records.pack(records.End(records=9))))
    with pytest.raises(DamagedRecording, match="does not begin with a header"):
        played(frame(records.pack(records.Stepped(now_ns=1))))
    with pytest.raises(RemoteProtocolError, match="no recording"):
        play(iter(()))
