# SPDX-License-Identifier: Apache-2.0
"""Ends of walks over the recorded OVN; the packets are as `ofproto/trace` left them there."""

from dataclasses import replace

import pytest

from analyzer.intent.logical import difference
from analyzer.intent.model import Port
from analyzer.intent.reading import Meaning, packet_of, read_end
from netagent.wire.walk import End, Quote
from ovs_checks.openflow.notation import format_header
from ovs_checks.openflow.parse import parse_header
from tests.analyzer.intent.recorded import installed, selected

START = (
    "udp,in_port=5,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:03,nw_src=10.0.0.1,"
    "nw_dst=10.0.0.3,tp_src=7,tp_dst=4791"
)
ON_WAY = f"{START},reg14=0x2,metadata=0x2"


def flow_of(stage, match):
    found = [f for f in selected().flows if f.stage == stage and match in f.match]
    return found[0]


def ended(flow, header=ON_WAY, kind="dropped", cookie=None):
    quote = Quote(
        bridge="br-int", table=9, priority=50, cookie=flow.cookie if flow else cookie, text="..."
    )
    return End(kind=kind, bridge="br-int", table=9, reason="drop", header=header, flow=quote)


def read(end, missing=(), ports=(), start=ON_WAY):
    every = selected()
    return read_end(
        end, every.explainer(), every.host("h1"), missing,
        ports={each.name: each for each in ports}, start=start,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["dropped", "controller"])
def test_what_an_acl_drops_is_refused_by_it(kind):
    found = read(ended(flow_of("ls_out_acl", "4790"), kind=kind))
    assert (found.meaning, found.by) == (Meaning.REFUSED, "ACL quarantine")


def test_what_goes_to_a_controller_for_another_reason_is_no_drop():
    assert read(ended(flow_of("ls_in_dhcp_options", "p1-0"), kind="controller")) is None
    assert read(ended(flow_of("ls_in_l2_lkup", "eth.dst"), kind="output")) is None


def test_an_address_that_a_port_may_not_have_is_refused_by_port_security():
    header = ON_WAY.replace("00:00:01", "00:00:aa")
    found = read(ended(flow_of("ls_in_apply_port_sec", "reg0[15]"), header))
    assert (found.meaning, found.by) == (Meaning.REFUSED, "port security of port p1-0")
    assert "02:00:00:00:00:aa" in found.text


def test_a_disabled_port_is_said_to_be_disabled():
    off = Port("p1-0", is_enabled=False)
    found = read(ended(flow_of("ls_in_apply_port_sec", "reg0[15]")), ports=[off])
    assert (found.meaning, found.text) == (Meaning.REFUSED, "port p1-0 is disabled")


def test_a_flow_that_was_deleted_is_named_with_what_it_was_made_for():
    """The packet goes on to the default behind the hole."""
    every, gone = selected(), flow_of("ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:03")
    left = {key: n for key, n in installed("h1").items() if key[0] != gone.cookie}
    missing = difference(every.flows, every.host("h1"), left, every.others).missing
    found = read(ended(flow_of("ls_in_l2_unknown", '"none"')), missing)
    assert (found.meaning, found.by) == (Meaning.MISSING, "port p3-0")
    assert "ls_in_l2_lkup (table 25) of rail0" in found.text


def test_a_flow_that_is_missing_for_others_explains_nothing_of_this_packet():
    other = flow_of("ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:02")
    elsewhere = replace(
        flow_of("ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:03"), datapaths=frozenset({"rail1"})
    )
    found = read(ended(flow_of("ls_in_l2_unknown", '"none"')), [other, elsewhere])
    assert found.meaning is Meaning.UNASKED


def test_a_port_that_is_bound_nowhere_is_named():
    found = read(ended(None, f"{ON_WAY},reg15=0x4", cookie=0))
    assert (found.meaning, found.by) == (Meaning.MISSING, "port p3-0")


def test_a_flow_that_no_row_stands_for_means_nothing_known():
    assert read(ended(None, cookie=0xDEAD)).meaning is Meaning.UNKNOWN
    assert read(ended(None, "", cookie=0)).meaning is Meaning.UNKNOWN


def test_a_header_of_a_walk_is_told_in_a_matchs_words():
    walked = format_header(parse_header(START))
    assert "eth_dst=" in walked  # in other words than those of `ofproto/trace`
    assert packet_of(walked) == packet_of(START) | {"eth.dst": "02:00:00:00:00:03"}


def test_a_header_is_told_in_a_matchs_words():
    assert packet_of(START) == {
        "eth.src": "02:00:00:00:00:01", "eth.dst": "02:00:00:00:00:03", "ip4.src": "10.0.0.1",
        "ip4.dst": "10.0.0.3", "udp.src": "7", "udp.dst": "4791",
    }  # fmt: skip
