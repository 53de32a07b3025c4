# SPDX-License-Identifier: Apache-2.0
"""Over a torch of our own: tests/lab runs the recorder under the real one."""

import gc
import sys
from types import ModuleType

import pytest

from netagent_torch import form
from netagent_torch.recorder import MOST_NAMES, Recorder
from netagent_torch.ring import Ring


class Tensor:
    def __init__(self, count):
        self._count = count

    def numel(self):
        return self._count

    def element_size(self):
        return 4


class Work:
    def wait(self):
        return True


class ProcessGroup:
    def allreduce(self, _tensors, _options=None):
        return Work()

    def allgather(self, _outputs, _inputs, _options=None):
        return Work()

    def barrier(self, _options=None):
        return Work()

    def send(self, _tensors, _peer, _tag):
        return Work()

    def recv(self, _tensors, _peer, _tag):
        return Work()

    def recv_anysource(self, _tensors, _tag):
        return Work()


METHODS = {name: value for name, value in vars(ProcessGroup).items() if callable(value)}


@pytest.fixture
def c10d(monkeypatch):
    module = ModuleType("torch.distributed.distributed_c10d")
    module.ProcessGroup, module.Work = ProcessGroup, Work
    module._pg_group_ranks, module._pg_names = {}, {}
    module.get_rank, module.get_world_size = lambda: 4, lambda: 8
    parent, torch = ModuleType("torch.distributed"), ModuleType("torch")
    parent.distributed_c10d = module
    for each in (torch, parent, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return module


@pytest.fixture
def recorder(c10d, tmp_path):
    made = Recorder(Ring(tmp_path / "a.ring", capacity=64), job="train-a")
    made.install()
    yield made
    made.remove()


@pytest.fixture
def group(c10d):
    made = ProcessGroup()
    c10d._pg_group_ranks[made] = {0: 0, 4: 1}
    c10d._pg_names[made] = "3"
    return made


def records(recorder):
    data = recorder.ring.path.read_bytes()
    head = form.read_head(data)
    at = head.offset(1)
    return form.read_records(data[at : at + head.written * form.RECORD_BYTES])


def lines(recorder):
    data = recorder.ring.path.read_bytes()
    head = form.read_head(data)
    return form.read_lines(data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used])


def test_a_collective_is_recorded_as_it_begins_and_as_its_wait_ends(recorder, group):
    recorder.step = 7
    work = group.allreduce([Tensor(100)], object())
    (begun,) = records(recorder)
    assert (begun.bytes, begun.sequence, begun.step, begun.ended_ns) == (400, 1, 7, 0)
    assert work.wait()
    (ended,) = records(recorder)
    assert ended.begun_ns <= ended.waited_ns <= ended.ended_ns


def test_collectives_of_a_group_are_counted_together_whatever_they_are(recorder, group):
    group.allreduce([Tensor(1)]).wait()
    group.barrier().wait()
    group.allgather([[Tensor(1), Tensor(1)]], [Tensor(3)]).wait()
    found = records(recorder)
    assert [each.sequence for each in found] == [1, 2, 3]
    assert [each.bytes for each in found] == [4, 0, 12]


def test_what_is_sent_and_received_is_counted_by_peer_and_direction(recorder, group):
    group.send([Tensor(1)], 0, 5)
    group.send([Tensor(1)], 0, 6)
    group.recv([Tensor(1)], 0, 5)
    group.recv_anysource([Tensor(1)], 5)
    found = records(recorder)
    assert [(each.kind, each.peer, each.sequence) for each in found] == [
        (form.SEND, 0, 1), (form.SEND, 0, 2), (form.RECV, 0, 1), (form.RECV, -1, 1),
    ]  # fmt: skip
    assert [each.tag for each in found] == [5, 6, 5, 5]


def test_who_and_which_group_it_is_is_said_once(recorder, group):
    group.barrier()
    group.barrier()
    recorder.describe(group, "dp")
    said = [each for each in lines(recorder) if "op" not in each]
    assert said[0] | {"netns": 0} == {"job": "train-a", "rank": 4, "world": 8, "netns": 0}
    assert said[1:] == [
        {"group": 0, "name": "3:0-4", "size": 2, "members": [0, 4]},
        {"group": 0, "kind": "dp"},
    ]


def test_an_end_that_comes_after_its_record_was_overwritten_spoils_no_other(recorder, group):
    late = group.allreduce([Tensor(1)])
    for _ in range(64):
        group.barrier().wait()
    before = recorder.ring.path.read_bytes()
    late.wait()
    assert recorder.ring.path.read_bytes() == before


def test_an_operation_that_fails_has_no_end(recorder, group, monkeypatch):
    work = group.allreduce([Tensor(1)])
    monkeypatch.setattr(recorder, "_open", {})
    with pytest.raises(TypeError):
        work.wait("nonsense", "twice")
    assert records(recorder)[0].ended_ns == 0


def test_one_of_n_is_recorded_and_the_others_counted(c10d, group, tmp_path):
    made = Recorder(Ring(tmp_path / "b.ring", capacity=64), every=4)
    made.install()
    for _ in range(8):
        group.barrier()
    made.remove()
    assert [each.sequence for each in records(made)] == [4, 8]
    assert form.read_head(made.ring.path.read_bytes()).left_out == 6


def test_a_group_that_the_job_destroys_is_not_kept(recorder, group, c10d):
    group.barrier()
    c10d._pg_group_ranks.clear()
    c10d._pg_names.clear()
    assert recorder._groups
    kept = recorder._groups
    key = id(group)
    recorder._kept[key].__callback__(None)
    assert key not in kept


def test_a_long_collection_of_garbage_is_recorded(recorder, monkeypatch):
    recorder._collected("start", {})
    recorder._collecting_ns -= 10_000_000
    recorder._collected("stop", {})
    names = {each["op"]: each["name"] for each in lines(recorder) if "op" in each}
    (found,) = records(recorder)
    assert names[found.op] == "garbage-collection"
    assert found.ended_ns - found.begun_ns >= 10_000_000


def test_what_was_stepped_into_is_left_as_it_was(c10d, recorder):
    recorder.remove()
    assert {name: getattr(ProcessGroup, name) for name in METHODS} == METHODS
    assert recorder._collected not in gc.callbacks


def test_a_tensor_of_an_unknown_kind_has_no_size(recorder, group):
    group.allreduce(object())
    group.allreduce([Tensor(1), (Tensor(2), object())])
    assert [each.bytes for each in records(recorder)] == [0, 12]


def test_more_collectives_than_a_number_has_room_for_end_no_job(recorder, group):
    """At some thousand in a second that is a week."""
    group.allreduce([Tensor(1)]).wait()
    group.send([Tensor(1)], 1, 0).wait()
    (_, counted, _) = recorder._groups[id(group)]
    counted.update(dict.fromkeys(counted, form.MOST_SEQUENCE - 1))
    for _ in range(3):
        group.allreduce([Tensor(1)]).wait()
        group.send([Tensor(1)], 1, 0).wait()
    found = [each.sequence for each in records(recorder)]
    assert found == [1, 1, *(2 * [form.MOST_SEQUENCE]), 0, 0, 1, 1]


def test_a_group_that_is_one_too_many_has_no_number_and_ends_no_job(recorder, group):
    recorder._introduced = form.NO_GROUP
    group.allreduce([Tensor(1)]).wait()
    recorder.describe(group, "dp")
    assert [each.group for each in records(recorder)] == [form.NO_GROUP]


def test_names_without_end_are_one_and_end_no_job(recorder):
    for number in range(2 * MOST_NAMES):
        recorder.span(f"step {number}", form.OTHER, 1, 2)
    assert len(recorder._ops) == MOST_NAMES + 1
    assert len({each.op for each in records(recorder)}) == 1
