# SPDX-License-Identifier: Apache-2.0
import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from netagent.adapters.host.rings import (
    IDLE_S,
    KEEP_S,
    LINES_AT_ONCE,
    MOST_AT_ONCE,
    STAY_S,
    Rings,
    _netns_of_writer,
)
from netagent.config import OperatorsConfig
from netagent.host.facts import Namespace
from netagent.model.ids import EndpointId
from netagent.wire.columns import unpack
from netagent.wire.operators import OperatorsRequest
from netagent_torch import form
from netagent_torch.ring import Ring

RECORD = form.Record(0, 10, 10, 2_000_010, 64, 1, 0, -1, 0, 0, form.COLLECTIVE, 0)


class Clock:
    def __init__(self):
        self.now_ns = 10**18

    def __call__(self):
        return self.now_ns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rings(tmp_path, clock):
    return Rings(OperatorsConfig(enabled=True, folder=str(tmp_path)), clock)


@pytest.fixture
def ring(tmp_path):
    made = Ring(tmp_path / "1.ring", capacity=128)
    made.say({"op": 0, "name": "all_reduce"})
    made.say({"job": "train-a", "rank": 2, "world": 4})
    return made


def look(rings, tmp_path):
    for name in rings._names(tmp_path):
        rings._look(tmp_path, name)


def test_what_is_new_is_read_once(rings, ring, tmp_path):
    ring.add(RECORD)
    look(rings, tmp_path)
    look(rings, tmp_path)
    ring.add(RECORD._replace(sequence=2))
    look(rings, tmp_path)
    assert rings.read == 2
    said = rings.close_window()
    assert (said.processes[0].job, said.processes[0].rank) == ("train-a", 2)
    assert list(said.count) == [2]


def test_a_process_is_in_the_container_whose_namespace_it_names(rings, ring, tmp_path):
    ring.say({"job": "train-a", "rank": 2, "world": 4, "netns": 77})
    rings.place({EndpointId("a-2", 0): Namespace("/proc/7/ns/net", 77)})
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == "a-2"
    rings.place({})
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == "a-2"


def test_a_process_cannot_claim_the_namespace_of_another_container(
    rings, ring, tmp_path, monkeypatch
):
    monkeypatch.setattr("netagent.adapters.host.rings._netns_of_writer", lambda file: 78)
    ring.say({"job": "train-a", "rank": 2, "world": 4, "netns": 77})
    rings.place(
        {
            EndpointId("a-2", 0): Namespace("/proc/7/ns/net", 77),
            EndpointId("b-0", 0): Namespace("/proc/8/ns/net", 78),
        }
    )
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == "b-0"


def test_another_user_of_the_host_cannot_claim_the_namespace_of_a_container(
    rings, ring, tmp_path, monkeypatch
):
    """Only the worker that watches libraries may: it has the agent's own user."""
    ring.say({"job": "train-a", "rank": 2, "world": 4, "netns": 77})
    rings.place({EndpointId("a-2", 0): Namespace("/proc/7/ns/net", 77)})
    monkeypatch.setattr("netagent.adapters.host.rings.os.geteuid", lambda: os.getuid() + 1)
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == ""


def test_of_a_ring_whose_writer_is_not_known_the_container_is_not_either(rings, ring, tmp_path):
    ring.say({"job": "train-a", "rank": 2, "world": 4, "netns": 77})
    rings.place({EndpointId("a-2", 0): Namespace("/proc/7/ns/net", 77)})
    fcntl.flock(ring._file, fcntl.LOCK_UN)
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == ""


def test_who_writes_a_ring_is_known_from_its_lock(ring):
    with ring.path.open("rb") as file:
        assert _netns_of_writer(file.fileno()) == Path("/proc/self/ns/net").stat().st_ino
        fcntl.flock(ring._file, fcntl.LOCK_UN)
        assert _netns_of_writer(file.fileno()) == 0


def test_very_many_files_hide_no_ring_that_is_known(rings, ring, tmp_path, monkeypatch):
    look(rings, tmp_path)
    monkeypatch.setattr("netagent.adapters.host.rings.MOST_FILES", 0)
    look(rings, tmp_path)
    assert set(rings.tally.processes) == {ring.path.name}


def test_no_more_lines_are_read_than_any_writer_of_ours_has(rings, tmp_path):
    line = b'{"job":"late","rank":1,"world":2}\n'
    size = 1 << 20
    head = form.Head(64, size, 0, size, 1, 0, 0, 0)
    body = form.pack_head(head).ljust(form.HEAD_BYTES, b"\0") + b" " * (size - len(line)) + line
    (tmp_path / "9.ring").write_bytes(body)
    look(rings, tmp_path)
    assert rings.close_window().processes[0].job == "job"


def test_who_says_much_anew_in_each_look_keeps_neither_the_agent_busy_nor_others_waiting(
    rings, ring, tmp_path, monkeypatch
):
    noisy = [Ring(tmp_path / f"{number}-noisy.ring", capacity=8) for number in range(12)]
    for each in noisy:
        os.pwrite(each._file, form.LINES_USED.pack(form.LINES_BYTES), form.LINES_USED_AT)
    read: list[int] = []
    read_lines = form.read_lines

    def counted(data):
        read.append(len(data))
        return read_lines(data)

    monkeypatch.setattr(form, "read_lines", counted)
    looks = 26
    for number in range(looks):
        for each in noisy:
            said = form.LINES_BYTES - number % 2
            os.pwrite(each._file, form.LINES_USED.pack(said), form.LINES_USED_AT)
        read.clear()
        look(rings, tmp_path)
        assert 0 < sum(read) <= LINES_AT_ONCE
    assert rings.tally.processes["1.ring"].said.job == "train-a"
    assert len(rings.tally.processes) == 13


def test_an_end_that_came_later_is_read_too(rings, ring, clock, tmp_path):
    number = ring.add(RECORD._replace(ended_ns=0, waited_ns=0))
    look(rings, tmp_path)
    clock.now_ns *= 2
    (open_ms,) = unpack_u(rings.close_window(), "open_ms")
    assert open_ms > 0
    at = ring.word_of(number) + form.WAITED_AT // 8
    ring.words[at], ring.words[at + 1] = 10, 5_000_010
    look(rings, tmp_path)
    said = rings.close_window()
    assert unpack_u(said, "max_us") == [5000]


def unpack_u(said, name):
    data = getattr(said, name)
    return [int.from_bytes(data, "little")]


def test_what_was_overwritten_before_it_was_read_is_counted(rings, ring, tmp_path):
    ring.add(RECORD)
    look(rings, tmp_path)
    for _ in range(200):
        ring.add(RECORD)
    look(rings, tmp_path)
    rings.close_window()
    assert rings.missed == 200 - 128


def test_a_flood_is_passed_over_and_counted(rings, tmp_path):
    big = Ring(tmp_path / "2.ring", capacity=2 * MOST_AT_ONCE)
    big.add(RECORD)
    look(rings, tmp_path)
    for _ in range(MOST_AT_ONCE + 50):
        big.add(RECORD)
    look(rings, tmp_path)
    assert rings.read == MOST_AT_ONCE + 1
    rings.close_window()
    assert rings.missed == 50


def test_who_ended_is_gone_and_its_ring_goes_later(rings, ring, clock, tmp_path):
    ring.add(RECORD)
    look(rings, tmp_path)
    assert not rings.close_window().processes[0].gone
    ring.close()
    look(rings, tmp_path)
    assert rings.close_window().processes[0].gone
    clock.now_ns += int(KEEP_S * 1e9) + 1
    look(rings, tmp_path)
    assert not ring.path.exists()
    look(rings, tmp_path)
    assert rings.close_window() is None


@pytest.mark.parametrize("kind", ["link", "fifo", "text", "short", "sparse"])
def test_what_is_no_ring_is_counted_and_read_no_further(rings, tmp_path, kind):
    path = tmp_path / "x.ring"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes({"text": b"hello", "short": form.MAGIC, "sparse": bytes(4096)}[kind])
    look(rings, tmp_path)
    assert rings.tally.unread == 1
    assert rings.close_window().unread == 1


def test_a_ring_that_goes_back_or_is_cut_short_is_left(rings, ring, tmp_path):
    ring.add(RECORD)
    look(rings, tmp_path)
    ring.words[form.WRITTEN_AT // 8] = 0
    look(rings, tmp_path)
    assert not rings.tally.processes
    ring.words[form.WRITTEN_AT // 8] = 1 << 62
    os.truncate(ring.path, form.HEAD_BYTES)
    look(rings, tmp_path)
    assert rings.read == 1


def test_more_rings_than_are_taken_do_not_crowd_out_those_that_are_known(tmp_path, clock):
    few = Rings(OperatorsConfig(enabled=True, folder=str(tmp_path), most_processes=1), clock)
    first = Ring(tmp_path / "5.ring", capacity=64)
    look(few, tmp_path)
    Ring(tmp_path / "1.ring", capacity=64)
    look(few, tmp_path)
    assert set(few.tally.processes) == {first.path.name}
    assert few.tally.unread == 1


def test_rings_of_who_ended_give_way_to_those_of_a_job_that_began_anew(tmp_path, clock):
    few = Rings(OperatorsConfig(enabled=True, folder=str(tmp_path), most_processes=2), clock)
    former = [Ring(tmp_path / f"{name}.ring", capacity=64) for name in "45"]
    look(few, tmp_path)
    for each in former:
        each.close()
        clock.now_ns += 10**9
        look(few, tmp_path)
    now = Ring(tmp_path / "6.ring", capacity=64)
    look(few, tmp_path)
    assert now.path.name not in few.tally.processes  # they may be asked for still
    clock.now_ns += int(STAY_S * 1e9)
    look(few, tmp_path)
    assert set(few.tally.processes) == {"5.ring", "6.ring"}
    assert [each.path.exists() for each in former] == [False, True]


def test_a_question_is_answered_from_the_ring(rings, ring, tmp_path):
    for number in range(1, 4):
        ring.add(RECORD._replace(sequence=number))
    look(rings, tmp_path)
    reply = rings.answer(OperatorsRequest(job="train-a", most=2))
    assert list(unpack(reply, "sequence")) == [2, 3]
    assert rings.answer(OperatorsRequest(job="train-b")).processes == ()


def test_of_a_time_that_is_past_the_newest_records_are_answered(rings, ring, tmp_path):
    for number in range(1, 101):
        ring.add(RECORD._replace(sequence=number, begun_ns=number, waited_ns=number))
    look(rings, tmp_path)
    (process,) = rings.tally.processes.values()
    until_ns = process.wall_ns(51)
    reply = rings.answer(OperatorsRequest(job="train-a", most=60, until_ns=until_ns))
    assert list(unpack(reply, "sequence")) == list(range(41, 51))
    since_ns = process.wall_ns(48)
    asked = OperatorsRequest(job="train-a", most=100, since_ns=since_ns, until_ns=until_ns)
    assert list(unpack(rings.answer(asked), "sequence")) == [48, 49, 50]


def test_without_leave_it_does_nothing(tmp_path, clock):
    silent = Rings(OperatorsConfig(folder=str(tmp_path / "none")), clock)
    asyncio.run(silent.run())
    assert silent.close_window() is None
    assert not (tmp_path / "none").exists()


def test_a_container_with_a_folder_of_its_own_crowds_out_no_other(tmp_path, clock):
    few = Rings(OperatorsConfig(enabled=True, folder=str(tmp_path), most_processes=4), clock)
    many, one = tmp_path / "a", tmp_path / "b"
    many.mkdir()
    one.mkdir()
    held = [Ring(many / f"{number}.ring", capacity=64) for number in range(6)]
    look(few, tmp_path)
    assert len(few.tally.processes) == 4
    held.append(Ring(one / "1.ring", capacity=64))
    look(few, tmp_path)
    assert set(few.tally.processes) == {"b/1.ring", "a/0.ring", "a/1.ring", "a/2.ring"}
    assert few.tally.unread == 3


def test_of_a_folder_that_is_a_link_nothing_is_read_nor_removed(rings, tmp_path, clock):
    other, inner = tmp_path / "other", tmp_path / "rings" / "a"
    other.mkdir()
    inner.mkdir(parents=True)
    made = Ring(inner / "1.ring", capacity=64)
    look(rings, tmp_path / "rings")
    made.close()
    look(rings, tmp_path / "rings")
    assert rings.tally.processes["a/1.ring"].gone
    inner.rename(other / "a")
    inner.symlink_to(other / "a")
    clock.now_ns += int(KEEP_S * 2e9)
    look(rings, tmp_path / "rings")
    assert (other / "a" / "1.ring").exists()
    assert rings.tally.processes == {}


def test_a_ring_whose_lock_was_not_found_is_looked_for_again(rings, ring, tmp_path, monkeypatch):
    """Another one may hold so many locks for a while that the holder of this one is not seen."""
    rings.place({EndpointId("a-2", 0): Namespace("/proc/7/ns/net", 78)})
    monkeypatch.setattr("netagent.adapters.host.rings._netns_of_writer", lambda file: 0)
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == ""
    monkeypatch.setattr("netagent.adapters.host.rings._netns_of_writer", lambda file: 78)
    look(rings, tmp_path)
    assert rings.close_window().processes[0].container == "a-2"


def test_at_most_one_ring_in_a_look_has_its_writer_looked_for_again(rings, tmp_path, monkeypatch):
    """To read all locks takes long, and many rings may have nobody who is found."""
    held = [Ring(tmp_path / f"{number}.ring", capacity=64) for number in range(4)]
    sought = []
    monkeypatch.setattr(
        "netagent.adapters.host.rings._netns_of_writer", lambda file: sought.append(file) or 0
    )
    look(rings, tmp_path)
    assert len(sought) == len(held)
    for _ in held:
        look(rings, tmp_path)
    assert len(sought) == 2 * len(held)


def test_folders_that_changed_last_are_read_and_empty_ones_go_after_a_week(
    rings, tmp_path, clock, monkeypatch
):
    monkeypatch.setattr("netagent.adapters.host.rings.MOST_FOLDERS", 1)
    made = {name: tmp_path / name for name in ("a", "b", "c")}
    for age_s, folder in enumerate(made.values()):
        folder.mkdir()
        os.utime(folder, ns=(0, clock.now_ns - age_s * 10**9))
    held = Ring(made["a"] / "1.ring", capacity=64), Ring(made["b"] / "1.ring", capacity=64)
    os.utime(made["a"], ns=(0, clock.now_ns))
    os.utime(made["b"], ns=(0, clock.now_ns - 10**9))
    look(rings, tmp_path)
    assert set(rings.tally.processes) == {"a/1.ring"}
    clock.now_ns += int(IDLE_S * 1e9)
    look(rings, tmp_path)
    assert [folder.exists() for folder in made.values()] == [True, True, False]
    assert all(each.path.exists() for each in held)
