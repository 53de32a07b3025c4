# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.checks.contract import State
from tests.netagent.host.checks.healthy import VIEW, look, wrong
from tests.netagent.server_board import gpu_server


@pytest.mark.parametrize(
    ("settings", "bad"),
    [
        ({}, False),
        ({"dpdk-init": "true"}, False),
        ({"dpdk-init": "true", "dpdk-socket-mem": "1024,1024"}, False),
        ({"dpdk-init": "true", "dpdk-alloc-mem": "9999"}, False),
        ({"dpdk-init": "true", "dpdk-socket-mem": "2048,1024"}, True),
        ({"dpdk-init": "false", "dpdk-socket-mem": "9999"}, False),
    ],
)
def test_open_vswitch_must_have_the_huge_pages_that_it_asks_for(tmp_path, settings, bad):
    found = wrong(look(gpu_server(tmp_path), replace(VIEW, settings=settings)))
    assert [each.check for each in found] == ["hugepages"] * bad


@pytest.mark.parametrize("odd", ["lots", "1024,-1", "9" * 5000])
def test_huge_pages_that_make_no_sense_cannot_be_told(tmp_path, odd):
    view = replace(VIEW, settings={"dpdk-init": "true", "dpdk-socket-mem": odd})
    said = look(gpu_server(tmp_path), view)
    assert [e.check for e in said if e.state is State.UNKNOWN] == ["hugepages"]
