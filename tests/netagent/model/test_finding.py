# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from netagent.model.finding import MASKED, Finding, FindingKind
from netagent.model.path import rnic


def test_what_a_newer_agent_found_is_unknown_and_the_rest_is_kept():
    found = Finding(FindingKind.RNIC_DOWN, rnic("h0", "rnic0"), "rnic0 has no carrier", 5)
    sent = msgspec.msgpack.encode(found).replace(b"rnic-down", b"rnic-blue")
    told = msgspec.msgpack.decode(sent, type=Finding)
    assert told.kind is FindingKind.UNKNOWN_INPUT
    assert (told.component, told.text, told.wall_ns) == (found.component, found.text, 5)


@pytest.mark.parametrize("value", [5, None, ["rnic-down"]])
def test_what_is_no_text_is_no_kind(value):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=FindingKind)


def test_what_opens_an_incident_without_a_loss_is_no_remark():
    assert {FindingKind.PCIE_REDUCED, FindingKind.PCIE_ERRORS} <= MASKED
    assert not {FindingKind.MISCONFIGURED, FindingKind.WRONG_MTU} & MASKED


def test_what_holds_of_two_things_of_one_port_is_two_findings_whatever_the_words():
    here = rnic("h0", "rnic0")

    def key(text="a", wall_ns=1, **read):
        return Finding(FindingKind.UNKNOWN_INPUT, here, text, wall_ns, read).key

    assert len({key(), key(port="p"), key(port="p", about="q"), key(port="p", about="r")}) == 4
    assert key(port="p", about="q") == key("b", 2, port="p", about="q", speed="9")
