# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpf.kernel.loader import Sizes, Tracer, load, readable, source, sweep
from bpf.trace.compiled import RING_BUFFER, Compiled, Map
from bpf.trace.programs import PROGRAMS, KernelFacts
from netagent.model.errors import CapabilityMissing


def test_each_header_comes_once_and_before_what_needs_it():
    text = source(PROGRAMS.values())
    assert '#include "' not in text
    assert text.count("struct totals {") == 1
    assert text.count("BPF_HASH(drops") == 1
    for name in ("read_packet", "pass"):
        assert text.index(f"int {name}(") < text.index("int on_port_receive(")


def test_one_program_takes_what_it_needs_only():
    assert "BPF_HASH(drops" not in source([PROGRAMS["lookup"]])


def test_no_kernel_header_is_compiled():
    """A header-heavy program compiles in 18 s under emulation, one without in 1 s."""
    included = set(re.findall(r"#include <([^>]+)>", source(PROGRAMS.values())))
    assert included == {"linux/types.h", "uapi/linux/ptrace.h"}


def test_sizes_are_macros():
    assert Sizes(1, 2, 4).defines == {"MAX_JOURNEYS": 1, "MAX_ROWS": 2, "RING_PAGES": 4}


def test_without_bcc_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcc", None)
    facts = KernelFacts("6.1", frozenset(), True, True, True, None)
    with (
        pytest.raises(CapabilityMissing, match="python3-bpfcc"),
        load([], facts, None, Sizes(1, 1, 1)),  # type: ignore[arg-type] # not looked at
    ):
        pytest.fail("loaded")


class Refusing:
    """A kernel that has room for one map."""

    def __init__(self) -> None:
        self.made = 0
        self.possible_cpus = 1
        self.lib = None

    def make(self, _: Map) -> int:
        self.made += 1
        if self.made > 1:
            raise OSError(12, "Cannot allocate memory", "drops")
        return os.open(os.devnull, os.O_RDONLY)


def test_maps_that_the_kernel_refuses_are_told_of_and_none_is_left():
    maps = tuple(Map(name, RING_BUFFER, 0, 0, 4096, 0) for name in ("events", "drops"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    tracer = Tracer(Refusing(), Compiled(maps, ()))
    with pytest.raises(CapabilityMissing, match="Cannot allocate memory"):
        tracer.make_maps()
    tracer.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_probes_of_killed_traces_are_swept_by_name(tmp_path):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    lines = [
        f"p:kprobes/p_vxlan_xmit_bcc_{ended.pid} vxlan_xmit",
        f"r16:kprobes/r_ovs_dp_upcall_bcc_{ended.pid} ovs_dp_upcall",
        f"p:kprobes/p_vxlan_rcv_bcc_{os.getpid()} vxlan_rcv",
        f"p:kprobes/p_do_sys_open_bcc_{ended.pid} do_sys_open",
        "p:mine/vxlan_xmit vxlan_xmit",
    ]
    events = tmp_path / "kprobe_events"
    events.write_text("\n".join(lines) + "\n")
    assert sweep(tmp_path) == 2
    assert events.read_text().splitlines()[len(lines) :] == [
        f"-:kprobes/p_vxlan_xmit_bcc_{ended.pid}",
        f"-:kprobes/r_ovs_dp_upcall_bcc_{ended.pid}",
    ]
    assert sweep(tmp_path / "nothing") == 0


def test_a_pipe_is_readable_once_it_ended():
    reading, writing = os.pipe()
    assert not readable(reading)
    os.close(writing)
    assert readable(reading)
    os.close(reading)
