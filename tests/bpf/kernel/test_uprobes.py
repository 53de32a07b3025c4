# SPDX-License-Identifier: Apache-2.0
"""On a library of our own with NCCL's names; tests/lab has gloo itself."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest

from bpf.kernel import uprobes
from bpf.kernel.uprobes import Place, Uprobes
from bpf.trace import collectives, elf
from netagent.model.errors import CapabilityMissing
from tests.conftest import CC, UPROBES, require

pytestmark = pytest.mark.netns  # needs root
NCCL = collectives.BY_SYMBOL["ncclAllReduce"]
SOURCE = """
int ncclAllReduce(const void* from, void* to, long count, int type, int op, void* comm, void* on)
{ return count > 0 ? 0 : 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    for each in (UPROBES, CC):
        require(each)
    folder = tmp_path_factory.mktemp("nccl")
    (folder / "a.c").write_text(SOURCE)
    made = folder / "libnccl.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", made, folder / "a.c"], check=True)
    return made


@pytest.fixture
def places(library):
    data = library.read_bytes()
    (offset,) = elf.offsets(lambda at, size: data[at : at + size], ["ncclAllReduce"]).values()
    return [Place(str(library), offset, NCCL)]


def probed(places):
    return Uprobes(places, {NCCL.symbol: collectives.arguments(NCCL, os.uname().machine)})


def definitions():
    text = (uprobes.TRACING / "uprobe_events").read_text()
    return [line for line in text.splitlines() if f"{uprobes.mine()}{os.getpid()}/" in line]


def test_every_call_is_seen_with_its_arguments(library, places):
    function = ctypes.CDLL(str(library)).ncclAllReduce
    with probed(places) as probes:
        for _ in range(23):
            function(None, None, ctypes.c_long(1000), 7, 0, ctypes.c_void_p(0xC0), None)
        hits = probes.take(time.monotonic_ns())
        assert len(hits) == 46
        calls = collectives.Pairing().take(hits)
    ended = {id(each): each for each in calls}.values()
    assert len(ended) == 23
    assert {(each.tgid, each.group, each.bytes) for each in ended} == {(os.getpid(), 0xC0, 4000)}
    assert all(0 < each.ended_ns - each.begun_ns < 10**9 for each in ended)
    assert probes.lost == 0


def test_what_does_not_fit_is_counted(library, places, monkeypatch):
    monkeypatch.setattr(uprobes, "PAGES", 1)
    function = ctypes.CDLL(str(library)).ncclAllReduce
    with probed(places) as probes:
        for _ in range(500):
            function(None, None, ctypes.c_long(1), 7, 0, None, None)
        seen = len(probes.take(time.monotonic_ns()))
        function(None, None, ctypes.c_long(1), 7, 0, None, None)
        seen += len(probes.take(time.monotonic_ns()))
    assert 0 < seen < 1002
    assert probes.lost == 1002 - seen


def test_nothing_is_left_of_it(places):
    with probed(places):
        assert len(definitions()) == 2
    assert definitions() == []


def test_what_a_killed_one_left_is_removed(places):
    line = f"p:{uprobes.mine()}4194999/p0 {places[0].path}:{places[0].offset:#x}"
    uprobes._append(line)
    uprobes.sweep()
    assert "4194999" not in (uprobes.TRACING / "uprobe_events").read_text()


def test_without_tracefs_it_says_what_helps(places, monkeypatch, tmp_path):
    monkeypatch.setattr(uprobes, "TRACING", Path(tmp_path))
    with pytest.raises(CapabilityMissing, match="mount -t tracefs"):
        probed(places)
