# SPDX-License-Identifier: Apache-2.0
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netagent.model.address import canonical, is_six

ULA = st.integers(0xFD << 120, (0xFE << 120) - 1).map(IPv6Address)
FOUR = st.integers(0, 2**32 - 1).map(IPv4Address)


@given(ULA | FOUR)
def test_every_address_of_an_interface_has_one_text(address):
    assert canonical(str(address)) == canonical(address.exploded) == str(address)
    assert is_six(str(address)) == (address.version == 6)


@given(st.from_regex(r"[0-9]{0,4}(\.[0-9]{0,4}){2,4}.?") | FOUR.map(str))
@example("010.0.0.1")
@example("10.0.1")
@example("10.0.0.1\n")
@example("10.0.0.1\0")
@example("10.0.0.\u0661")
def test_of_ipv4_the_standard_library_says_the_same(text):
    try:
        expected = str(IPv4Address(text))
    except ValueError:
        expected = None
    assert canonical(text) == expected


@given(st.text(max_size=20) | st.from_regex(r"[0-9a-f:.%]{0,40}"))
def test_any_text_is_such_an_address_or_none(text):
    said = canonical(text)
    assert said is None or canonical(said) == said


@pytest.mark.parametrize("text", [
    "::", "::1", "fe80::1", "fe80::1%eth0", "fd00::1%eth0", "ff02::1", "::ffff:10.0.0.1",
    "::10.0.0.1", "fd00::1/64", "[fd00::1]", "10.0.0.1%x", " fd00::1",
])  # fmt: skip
def test_what_no_interface_has_for_others_to_reach_is_none(text):
    assert canonical(text) is None
