# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.hardware import PciLink, redirects, translates
from tests.netagent.server_board import space


@pytest.mark.parametrize(
    ("control", "said"), [(0, False), (0x01, False), (0x04, True), (0x1D, True)]
)
def test_acs_redirects_peers_where_requests_or_completions_are(control, said):
    assert redirects(space(0x000D, control)) is said


@pytest.mark.parametrize(("control", "said"), [(0, False), (0x8000, True), (0x001F, False)])
def test_ats_is_on_where_its_bit_is(control, said):
    assert translates(space(0x000F, control)) is said


def test_a_function_without_the_capability_says_nothing():
    assert redirects(space(0x000F, 4)) is None
    assert translates(space(0x000D, 4)) is None
    assert redirects(bytes(4096)) is None


def test_a_space_that_ends_early_says_nothing():
    for length in (0, 64, 256, 0x148, 0x14E):
        assert redirects(space(0x000D, 4)[:length]) is None


def test_a_list_that_is_a_circle_ends():
    made = bytearray(4096)
    made[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    assert redirects(bytes(made)) is None


@given(st.binary(max_size=700))
def test_any_bytes_are_read(tail):
    assert redirects(bytes(256) + tail) in {None, True, False}


def test_a_link_is_said_with_its_lanes():
    assert str(PciLink(8.0, 1)) == "1 lane at 8 GT/s"
    assert str(PciLink(2.5, 16)) == "16 lanes at 2.5 GT/s"
