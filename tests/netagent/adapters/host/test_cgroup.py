# SPDX-License-Identifier: Apache-2.0
"""On files as the kernel's cgroup-v2.rst describes them."""

import pytest

from netagent.adapters.host.cgroup import Limits
from netagent.host.shedding import Load


@pytest.fixture
def group(tmp_path):
    """Return a function that writes files of the group that this process is in."""
    (tmp_path / "own").write_text("0::/system.slice/netagent.service\n")
    folder = tmp_path / "fs/system.slice/netagent.service"
    folder.mkdir(parents=True)

    def write(**files):
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)

    write(
        memory_max="536870912\n",
        memory_current="434217728\n",
        memory_stat="anon 1\ninactive_file 200000000\nactive_file 99000000\n"
        "slab_reclaimable 1000000\n",
        cpu_stat="usage_usec 5\nnr_periods 100\nnr_throttled 40\nthrottled_usec 9\n",
    )
    return write


def limits(tmp_path):
    return Limits(tmp_path / "fs", tmp_path / "own")


def test_memory_is_what_the_group_cannot_give_back_and_cpu_what_was_throttled_since(
    tmp_path, group
):
    made = limits(tmp_path)
    assert made.load() == Load(0.25, None)
    group(cpu_stat="nr_periods 150\nnr_throttled 50\n", memory_current="568435456\n")
    assert made.load() == Load(0.5, 0.2)
    group(cpu_stat="nr_periods 150\nnr_throttled 50\n")
    assert made.load() == Load(0.5, None)


def test_without_limits_there_is_nothing_to_be_near_to(tmp_path, group):
    group(memory_max="max\n", cpu_stat="usage_usec 5\n")
    assert limits(tmp_path).load() == Load()


def test_the_limit_of_a_slice_above_counts_as_well(tmp_path, group):
    above = tmp_path / "fs/system.slice"
    (above / "memory.max").write_text("200000000\n")
    (above / "memory.current").write_text("180000000\n")
    (above / "memory.stat").write_text("inactive_file 0\n")
    assert limits(tmp_path).load().memory == 0.9


@pytest.mark.parametrize("own", ["4:memory:/user\n", "", "0::/elsewhere\n"])
def test_another_version_and_a_group_that_cannot_be_read_say_nothing(tmp_path, group, own):
    (tmp_path / "own").write_text(own)
    assert limits(tmp_path).load() == Load()


def test_torn_files_say_nothing(tmp_path, group):
    group(memory_stat="inactive_file\nx y z\n", cpu_stat="nr_periods\n", memory_max="0\n")
    assert limits(tmp_path).load() == Load()


def test_this_process_may_have_limits_or_none():
    share = Limits().load().memory
    assert share is None or 0 < share < 10
