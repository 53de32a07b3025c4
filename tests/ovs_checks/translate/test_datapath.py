# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.translate.datapath import (
    Member,
    Step,
    always,
    check_length,
    clone,
    hash_step,
    output,
    recirculate,
    set_key,
    set_number,
    size_of,
    text_of,
)

MEMBERS = (Member("src", "ipv4"), Member("tos", "hex8"), Member("ttl", "dec8"))
VALUES = (0x0A000001, 0x2C, 64)
FULL = tuple(member.full for member in MEMBERS)
TWO = (output(2, "p2"), output(3, "p3"))


def test_no_action_at_all_is_a_drop():
    assert text_of(()) == "drop"
    assert text_of(TWO) == "2,3"


@pytest.mark.parametrize(
    ("port", "named", "text"),
    [(2, False, "2"), (2, True, "p2"), (None, False, "p2"), (0, False, "0")],
)
def test_a_port_goes_by_its_number_unless_that_is_unknown_or_names_are_wanted(port, named, text):
    assert output(port, "p2", named=named).text == text


def test_a_recirculation_is_numbered_in_hexadecimal():
    assert recirculate(26).text == "recirc(0x1a)"


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [(0, "hash(l4(7))"), (1, "hash(sym_l4(7))"), (2, "hash(Unknown hash algorithm(2))")],
)
def test_a_hash_names_its_algorithm(algorithm, text):
    assert hash_step(algorithm, 7).text == text


def test_a_key_without_masks_is_written_whole():
    assert set_key("ipv4", MEMBERS, VALUES, None).text == "set(ipv4(src=10.0.0.1,tos=0x2c,ttl=64))"


def test_members_of_which_no_bit_is_written_are_not_named():
    masks = (0, 0xFF, 0)
    assert set_key("ipv4", MEMBERS, VALUES, masks).text == "set(ipv4(tos=0x2c))"


def test_bits_beyond_the_mask_are_not_told():
    masks = (0xFF, 0xFC, 0x0F)
    told = set_key("ipv4", MEMBERS, (0x0A0000FF, 0x2D, 0xF4), masks).text
    assert told == "set(ipv4(src=0.0.0.255/0.0.0.255,tos=0x2c/0xfc,ttl=4/0xf))"


@given(st.tuples(*(st.integers(0, full) for full in FULL)))
def test_masks_of_all_bits_say_what_no_masks_say_in_more_bytes(values):
    masked, whole = (set_key("ipv4", MEMBERS, values, masks) for masks in (FULL, None))
    assert masked.text == whole.text
    assert masked.size > whole.size
    assert not masked.size % 4


@pytest.mark.parametrize(
    ("mask", "text"), [(0xFFFFFFFF, "set(skb_mark(0x1f))"), (0xF0, "set(skb_mark(0x10/0xf0))")]
)
def test_a_number_is_written_with_its_mask(mask, text):
    assert set_number("skb_mark", 0x1F, mask).text == text


def test_what_wraps_others_takes_their_room_too():
    for wrapped in (clone(TWO), always(TWO), check_length(100, TWO, ())):
        assert wrapped.size > size_of(TWO)
        assert wrapped.inner == TWO
    assert size_of((clone(TWO), *TWO)) == size_of((clone(TWO),)) + size_of(TWO)


def test_either_branch_of_a_length_is_told_and_an_empty_one_drops():
    step = check_length(100, TWO[:1], ())
    assert step.text == "check_pkt_len(size=100,gt(2),le(drop))"
    assert check_length(100, TWO[:1], TWO[1:]).inner == TWO


def test_copies_are_made_as_the_datapath_can():
    assert clone(TWO).text == "clone(2,3)"
    assert always(TWO).text == "sample(sample=100.0%,actions(2,3))"
    assert {clone(TWO).kind, always(TWO).kind} == {"clone"}


@pytest.mark.parametrize(("form", "bits"), [("mac", 48), ("ipv6", 128), ("label", 20)])
def test_a_member_s_full_mask_is_as_wide_as_it(form, bits):
    assert Member("x", form).full.bit_length() == bits
    assert set_key("x", [Member("x", form)], [1], [1]).text.count("/") == 1
    assert "/" not in set_key("x", [Member("x", form)], [1], [Member("x", form).full]).text


def test_kinds_of_fragments_are_named():
    frag = Member("frag", "frag")
    said = [set_key("ipv4", [frag], [n], None).text for n in range(4)]
    assert said == [f"set(ipv4(frag={word}))" for word in ("no", "first", "later", "<error>")]


def test_a_step_without_a_port_is_no_output():
    assert Step("pop_vlan", 4).port == -1
    assert output(None, "p2").port == -1
