# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.model.finding import FindingKind
from netagent.model.path import rnic
from tests.netagent.host.checks.healthy import look, wrong
from tests.netagent.server_board import gpu_server


@pytest.mark.parametrize(
    ("said", "share"),
    [({"current_link_width": "8"}, "50%"), ({"current_link_speed": "16.0 GT/s PCIe"}, "50%"),
     ({"current_link_width": "1", "current_link_speed": "2.5 GT/s PCIe"}, "0%")],
)  # fmt: skip
def test_a_card_with_fewer_or_slower_lanes_than_it_could_have_is_named(tmp_path, said, share):
    board = gpu_server(tmp_path)
    board.say("0000:23:00.0", **said)
    (found,) = wrong(look(board))
    assert (found.component, found.kind) == (rnic("h0", "rnic1"), FindingKind.MISCONFIGURED)
    assert share in found.text


def test_a_slot_that_has_fewer_lanes_than_the_card_is_as_it_should_be(tmp_path):
    board = gpu_server(tmp_path)
    board.say("0000:22:00.0", max_link_width="8")
    board.say("0000:23:00.0", current_link_width="8")
    assert wrong(look(board)) == []


def test_where_all_cards_have_less_it_is_told_and_no_finding(tmp_path):
    board = gpu_server(tmp_path)
    for n in range(1, 5):
        board.say(f"0000:{n}3:00.0", current_link_width="8")
    found = wrong(look(board))
    assert [each.kind for each in found] == [None] * 4
    assert "the board may be wired like that" in found[0].text


@pytest.mark.parametrize("address", ["0000:33:00.0", "0000:32:00.0", "0000:30:01.0"])
def test_errors_that_pcie_could_not_correct_are_told_with_where(tmp_path, address):
    board = gpu_server(tmp_path)
    board.say(address, aer_dev_fatal="DLP 2\nTOTAL_ERR_FATAL 2")
    (found,) = wrong(look(board))
    assert found.component == rnic("h0", "rnic2")
    assert found.text == f"{address}, on the way of rnic2: 2 fatal since it was found"
