# SPDX-License-Identifier: Apache-2.0
"""Flows that Open vSwitch hands to tc, which forwards them in software: nobody here has the NIC."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ovs_checks.lint.layers import Layers, check, layers_of
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from tests.conftest import KERNEL, require
from tests.kernel.overlay import Overlay, Switch
from tests.waiting import wait_until

pytestmark = pytest.mark.kernel

COUNT = 20
DEVICES = ("a0", "vxlan_sys_4789")


@pytest.fixture(scope="module")
def offloading() -> Iterator[Overlay]:
    """Two hosts whose datapath is tc; what it cannot hold stays with openvswitch.ko."""
    require(KERNEL)
    overlay = Overlay()
    try:
        for host in overlay.hosts:
            settings = (
                "other_config:hw-offload=true", "other_config:tc-policy=skip_hw",
                "other_config:max-idle=300000",  # a bundle takes its time on a busy machine
            )  # fmt: skip
            host.vsctl("set", "Open_vSwitch", ".", *settings)
        for host in overlay.hosts:
            host.forward()
        ping(overlay)
        wait_until(lambda: "dp:tc" in megaflows(overlay.hosts[0]), "flows in tc")
        yield overlay
    finally:
        overlay.close()


def megaflows(host: Switch) -> str:
    return host.appctl("dpctl/dump-flows", "-m", "system@ovs-system")


def ping(overlay: Overlay) -> None:
    """Have both directions of tenant a used."""
    inside = ("ip", "netns", "exec", overlay.hosts[0].inside("a"))
    command = (*inside, "ping", "-q", "-c", str(COUNT), "-i", "0.05", "10.0.0.12")
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def bundled(overlay: Overlay, path: Path) -> Layers:
    """Have netagent make a bundle in the host's namespace, where its devices are."""
    ping(overlay)
    host = overlay.hosts[0]
    inside = ("ip", "netns", "exec", host.name, sys.executable, "-m", "netagent", "bundle")
    command = (*inside, f"--rundir={host.rundir}", f"--output={path}", "--samples=2")
    subprocess.run((*command, "--interval=1"), check=True, capture_output=True, timeout=120)
    kept = open_answers(path)
    return layers_of(kept, assemble(kept, kept.host))


def test_every_flow_of_tc_is_found_by_its_cookie(offloading: Overlay, tmp_path: Path):
    layers = bundled(offloading, tmp_path / "b.tar.gz")
    taken = [one for one in layers.last.megaflows if one.layer == "tc"]
    assert {one.in_port for one in taken} >= set(DEVICES)
    for one in taken:
        (held,) = layers.filters[one.ufid]
        assert (held.device, held.in_hw, held.skip_hw) == (one.in_port, False, True)
        assert abs(held.packets - one.packets) <= 2 * COUNT
        assert held.packets > 0
    assert {found.check for found in check(layers)} == {"in-software"}
