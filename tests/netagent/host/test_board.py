# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from netagent.host.board import HOLD_NS, BoardWatch
from netagent.host.checks.contract import Inspected
from netagent.host.facts import HostView
from netagent.host.hardware import Hardware, Nic, PciFunction, PciLink, Placed
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind, rnic

MINUTE_NS = 60_000_000_000
FULL, HALF = PciLink(32.0, 16), PciLink(32.0, 8)
NONE = {"correctable": 0, "nonfatal": 0, "fatal": 0}


def nic(name="rnic0", link=FULL, errors=NONE, port=NONE, root=NONE):
    card = PciFunction(f"0000:{name}", link=link, most=FULL, errors=errors)
    above = (PciFunction(f"up:{name}", most=FULL, errors=port), PciFunction("root", errors=root))
    return Nic(name, Placed(card, above))


def seen(*nics, **settings):
    return Inspected("h0", HostView(settings=settings), Hardware(nics=nics))


def watch(*looks):
    """Return what is found at the last of some looks, a minute apart."""
    watching, found = BoardWatch(), ()
    for number, look in enumerate(looks):
        found = watching.observe(look, now_ns=number * MINUTE_NS)
    return found


def test_a_healthy_board_has_no_finding():
    assert watch(*[seen(nic("rnic0"), nic("rnic1"))] * 3) == ()


def test_what_is_wrong_has_to_be_seen_twice_in_a_row():
    well, bad = seen(nic("rnic0"), nic("rnic1")), seen(nic("rnic0"), nic("rnic1", HALF))
    assert watch(well, bad) == watch(bad, well) == watch(bad, well, bad) == ()
    (found,) = watch(bad, bad)
    assert (found.kind, found.component) == (FindingKind.MISCONFIGURED, rnic("h0", "rnic1"))


def test_a_link_that_all_cards_have_alike_is_the_boards_own():
    assert watch(*[seen(nic("rnic0", HALF), nic("rnic1", HALF))] * 3) == ()


def test_a_link_that_was_better_before_is_found_also_where_there_is_one_card():
    (found,) = watch(seen(nic()), *[seen(nic(link=HALF))] * 2)
    assert (found.kind, found.evidence["before"]) == (
        FindingKind.PCIE_REDUCED, "16 lanes at 32 GT/s"
    )  # fmt: skip


def test_old_errors_are_no_finding_and_new_ones_are_for_a_while():
    old, new = NONE | {"fatal": 3}, NONE | {"fatal": 4}
    assert watch(*[seen(nic(errors=old))] * 5) == ()
    (found,) = watch(seen(nic(errors=old)), seen(nic(errors=new)))
    assert (found.kind, found.component) == (FindingKind.PCIE_ERRORS, rnic("h0", "rnic0"))
    assert "4 fatal so far" in found.text
    minutes = HOLD_NS // MINUTE_NS
    assert watch(seen(nic(errors=old)), *[seen(nic(errors=new))] * minutes) != ()
    assert watch(seen(nic(errors=old)), *[seen(nic(errors=new))] * (minutes + 1)) == ()


def test_errors_of_the_port_above_are_the_cards():
    (found,) = watch(seen(nic()), seen(nic(port=NONE | {"nonfatal": 1})))
    assert found.component == rnic("h0", "rnic0")
    assert "up:rnic0 could not correct errors" in found.text


def test_errors_of_a_port_that_cards_share_are_the_hosts():
    """A GPU that falls off the bus makes them as well."""
    bad = NONE | {"fatal": 1}
    (found,) = watch(
        seen(nic("rnic0"), nic("rnic1")), seen(nic("rnic0", root=bad), nic("rnic1", root=bad))
    )
    assert found.component == Component(Kind.HOST, "h0")
    assert found.text == "PCIe: root could not correct errors (0 nonfatal, 1 fatal so far)"


def corrected(*counts):
    return watch(*(seen(nic(errors=NONE | {"correctable": count})) for count in counts))


def test_errors_that_are_corrected_are_a_finding_only_where_they_are_many_for_long():
    assert corrected(0, 99, 198) == ()
    assert corrected(0, 5000, 5000) == ()
    assert corrected(0, 5000) == ()
    (found,) = corrected(0, 100, 5000)
    assert found.text == "PCIe: 0000:rnic0 corrects 100 errors a minute"


def test_counters_that_began_anew_are_no_errors():
    assert watch(seen(nic(errors=NONE | {"fatal": 3})), seen(nic(errors=NONE))) == ()


def test_what_several_checks_find_of_the_host_is_one_finding():
    bad = Inspected(
        "h0",
        HostView(settings={"dpdk-init": "true", "dpdk-socket-mem": "1024"}),
        Hardware(nics=(replace(nic(), switch="0c42"),)),
    )
    (found,) = watch(bad, bad)
    assert (found.kind, found.component) == (FindingKind.MISCONFIGURED, Component(Kind.HOST, "h0"))
    assert "dpdk-socket-mem" in found.text
    assert "hw-offload" in found.text
