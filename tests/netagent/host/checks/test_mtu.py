# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from netagent.model.finding import FindingKind
from netagent.model.path import rnic
from tests.netagent.host.checks.healthy import UPLINKS, VIEW, look, wrong
from tests.netagent.server_board import gpu_server


def test_a_device_that_containers_packets_do_not_fit_is_named(tmp_path):
    board = gpu_server(tmp_path)
    (board.sysfs / "class/net/rnic3/mtu").write_text("8999\n")
    (found,) = wrong(look(board))
    assert (found.component, found.kind) == (rnic("h0", "rnic3"), FindingKind.MISCONFIGURED)
    assert found.evidence == {"mtu": "8999", "needed": "9000"}


def test_an_underlay_of_ipv6_needs_twenty_bytes_more(tmp_path):
    six = replace(UPLINKS[0], address="fd00::1")
    (found,) = wrong(look(gpu_server(tmp_path), replace(VIEW, uplinks=(six, *UPLINKS[1:]))))
    assert found.evidence == {"mtu": "9000", "needed": "9020"}
