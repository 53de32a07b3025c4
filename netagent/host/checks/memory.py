# SPDX-License-Identifier: Apache-2.0
"""Huge pages: as many as the vSwitch asks for."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State


def hugepages(seen: Inspected) -> Iterator[Checked]:
    """Check that there are as many huge pages as DPDK in Open vSwitch is told to take.

    ``other_config:dpdk-socket-mem`` is in MB for each NUMA node (ovs-vswitchd.conf.db(5)).
    """
    settings = seen.view.settings
    pages = seen.hardware.hugepages
    total_mb = sum(each.size_kb * each.total for each in pages) // 1024
    if settings.get("dpdk-init", "false") not in {"true", "try"}:
        text = f"{total_mb} MB; Open vSwitch asks for none (dpdk-init is not set)"
        yield Checked("hugepages", State.OK, text)
        return
    wanted = settings.get("dpdk-socket-mem", "")
    if not wanted:
        text = f"{total_mb} MB; dpdk-socket-mem is not set: DPDK takes what it needs"
        yield Checked("hugepages", State.OK, text)
        return
    words = [word for word in wanted.split(",") if word.strip()]
    if not all(word.strip().isdecimal() and len(word) < 10 for word in words):
        text = f"cannot use other_config:dpdk-socket-mem {wanted!r}"
        yield Checked("hugepages", State.UNKNOWN, text)
        return
    needed_mb = sum(map(int, words))
    if total_mb < needed_mb:
        text = f"{total_mb} MB, but dpdk-socket-mem asks for {needed_mb} MB ({wanted})"
        remedy = "raise vm.nr_hugepages or the kernel's hugepages=, and start ovs-vswitchd again"
        evidence = {"hugepages": f"{total_mb} MB", "dpdk-socket-mem": wanted}
        yield Checked(
            "hugepages", State.WRONG, text, remedy, seen.itself, evidence=evidence
        )  # fmt: skip
    else:
        yield Checked("hugepages", State.OK, f"{total_mb} MB; dpdk-socket-mem asks {needed_mb} MB")
