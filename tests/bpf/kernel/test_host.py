# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from bpf.kernel import host
from bpf.kernel.cache import MAX_FILES
from bpf.kernel.host import Symbols, read_facts, symbol_at
from bpf.trace.layout import KERNEL, SWITCH
from tests.bpf.blobs import Blob
from tests.bpf.trace.test_layout import PRIVATE, blob_of

KALLSYMS = b"""\
ffffffff81000000 T _text
ffffffff8181f010 T __traceiter_kfree_skb
ffffffff8181f100 T kfree_skb
ffffffff8181f100 d not_a_function
ffffffffc052c530 t ovs_vport_receive\t[openvswitch]
ffffffffc05315bd t ovs_vport_send.cold\t[openvswitch]
"""


@pytest.fixture
def root(tmp_path) -> Path:
    """Return a folder that looks like / of a kernel with all that is needed."""
    kernel = blob_of(KERNEL, netdev_priv_flags=PRIVATE)
    base = Blob(1000, 100_000)  # never asked: the module's fields are numbers
    for path, content in {
        "proc/kallsyms": KALLSYMS,
        "proc/self/status": b"Name:\tx\nCapEff:\t000001ffffffffff\n",
        "sys/bus/event_source/devices/kprobe/type": b"8\n",
        "sys/kernel/btf/vmlinux": kernel.bytes(),
        "sys/kernel/btf/openvswitch": blob_of(SWITCH, base).bytes(),
        "sys/kernel/notes": b"build id",
    }.items():
        file = tmp_path / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "root"


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def test_the_facts_of_a_kernel(root, cache):
    facts = read_facts(root, cache)
    assert facts.symbols == {"__traceiter_kfree_skb", "ovs_vport_receive"}
    assert facts.has_kprobes
    assert facts.is_privileged
    assert facts.release == os.uname().release
    assert facts.layout is not None


@pytest.mark.parametrize(
    ("capabilities", "enough"),
    [("0", False), ("8000000000", False), ("c000000000", True), ("200000", True)],
)
def test_who_may_load_programs(root, cache, capabilities, enough):
    (root / "proc/self/status").write_text(f"CapEff:\t{capabilities}\n")
    assert read_facts(root, cache).is_privileged is enough


def test_what_a_kernel_lacks_is_said(root, cache):
    (root / "proc/kallsyms").unlink()
    (root / "sys/bus/event_source/devices/kprobe/type").unlink()
    (root / "sys/kernel/btf/vmlinux").write_bytes(b"junk")
    facts = read_facts(root, cache)
    assert (facts.symbols, facts.has_kprobes, facts.layout) == (frozenset(), False, None)
    assert "BTF shorter" in facts.layout_problem
    (root / "sys/kernel/btf/vmlinux").unlink()
    assert read_facts(root, cache).layout_problem == "the kernel has no BTF"


def test_a_layout_is_read_once_for_each_build(root, cache, monkeypatch):
    first = read_facts(root, cache).layout
    monkeypatch.setattr(host, "Btf", lambda *_: pytest.fail("read again"))
    assert read_facts(root, cache).layout == first
    monkeypatch.undo()
    (root / "sys/kernel/notes").write_bytes(b"another build")
    read_facts(root, cache)
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_cache_is_read_anew_and_a_full_one_forgets(root, cache):
    layout = read_facts(root, cache).layout
    (kept,) = cache.iterdir()
    kept.write_text("{")
    assert read_facts(root, cache).layout == layout
    for number in range(MAX_FILES + 3):
        (root / "sys/kernel/notes").write_bytes(b"build %d" % number)
        read_facts(root, cache)
    assert len(list(cache.iterdir())) == MAX_FILES


def test_a_cache_that_cannot_be_written_is_no_failure(root, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert read_facts(root, blocked / "cache").layout is not None


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (0xFFFFFFFF8181F010, "__traceiter_kfree_skb+0x0"),
        (0xFFFFFFFF8181F0FF, "__traceiter_kfree_skb+0xef"),
        (0xFFFFFFFF8190F0FF, "kfree_skb+0xeffff"),
        (0xFFFFFFFFC052C5A0, "ovs_vport_receive+0x70 [openvswitch]"),
        (0xFFFFFFFFD0000000, "0xffffffffd0000000"),
        (5, "0x5"),
        (0, "0x0"),
    ],
)
def test_an_address_is_in_the_function_that_begins_before(address, name):
    assert symbol_at(KALLSYMS, address) == name


def test_symbols_are_read_at_the_first_question(tmp_path):
    symbols = Symbols(tmp_path / "kallsyms")
    (tmp_path / "kallsyms").write_bytes(KALLSYMS)
    assert symbols(0xFFFFFFFF8181F101) == "kfree_skb+0x1"
    (tmp_path / "kallsyms").unlink()
    assert symbols(0xFFFFFFFF8181F101) == "kfree_skb+0x1"
