# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.discovery import Discovery
from netagent.host.facts import Link, Uplink
from netagent.host.spares import HOLD_NS, SpareWatch
from netagent.model.finding import FindingKind
from tests.netagent.host.small_host import Links, found_in, physical, plug, tunnel, vswitch

UPLINK = Uplink(0, "rnic0", "172.30.0.10", "bond0", "vxlan0", ("rnic0", "rnic1"), "bond0")
WELL = {
    "bond0": Link(5, "bond0", kind="bond", active=6, primary=6),
    "rnic0": Link(6, "rnic0", master=5),
    "rnic1": Link(7, "rnic1", master=5),
}


def but(**changes):
    """Return the links with changes, None for a device that is gone."""
    links = dict(WELL)
    for name, facts in changes.items():
        if facts is None:
            del links[name]
        else:
            links[name] = replace(links[name], **facts)
    return links


def lasting(links, uplink=UPLINK, watch=None):
    """Return what is found of `links` once it lasts."""
    watch = watch or SpareWatch("h0")
    watch.observe([uplink], links, now_ns=0)
    assert list(watch.findings(wall_ns=1)) == []  # never at first sight
    due_ns = watch.deadline_ns()
    if due_ns is None:
        return []
    assert due_ns == HOLD_NS
    watch.observe([uplink], links, now_ns=due_ns - 1)
    assert list(watch.findings(wall_ns=1)) == []
    watch.observe([uplink], links, now_ns=due_ns)
    assert watch.deadline_ns() is None
    return list(watch.findings(wall_ns=1))


@pytest.mark.parametrize(
    ("links", "why"),
    [
        (but(rnic0={"carrier": False}, bond0={"active": 7}), "has no carrier"),
        (but(rnic0={"up": False}), "is administratively down"),
        (but(rnic0={"held_down": True}), "has a carrier, but its bond holds it for down"),
        (but(rnic0=None), "does not exist"),
    ],
)
def test_a_bond_with_a_failed_member_is_a_masked_fault_of_that_member(links, why):
    (finding,) = lasting(links)
    assert (finding.kind, str(finding.component)) == (FindingKind.RAIL_ON_SPARE, "rnic h0/rnic0")
    assert finding.text == (
        f"bond0 of rail 0 runs on rnic1, for rnic0 {why}: "
        "nothing is lost, but it has 1 of 2 links and no spare"
    )
    assert finding.evidence == {"bond": "bond0", "links": "1 of 2"}


def test_a_bond_that_sends_by_its_spare_is_a_masked_fault_of_its_primary():
    (finding,) = lasting(but(bond0={"active": 7}))
    assert str(finding.component) == "rnic h0/rnic0"
    assert "sends by its spare rnic1, though its primary rnic0 is well" in finding.text


@pytest.mark.parametrize(
    "links",
    [
        WELL,
        but(bond0={"active": 7, "primary": None}),  # nobody said by which it should send
        but(bond0={"active": None}),
        but(rnic0={"carrier": False}, rnic1={"carrier": False}),  # the rail is down
    ],
)
def test_what_is_as_it_should_be_or_worse_is_not_masked(links):
    assert lasting(links) == []


def test_a_member_that_was_taken_out_is_none_and_one_whose_device_vanished_is():
    watch = SpareWatch("h0")
    watch.observe([UPLINK], WELL, now_ns=-1)
    alone = replace(UPLINK, device="rnic1", members=("rnic1",))
    assert lasting(but(rnic0={"master": None}), alone, watch) == []
    watch.observe([UPLINK], WELL, now_ns=-1)
    (finding,) = lasting(but(rnic0=None), alone, watch)
    assert "for rnic0 does not exist" in finding.text


def test_a_rail_on_its_spare_is_not_down_and_one_without_any_member_is():
    view = vswitch(plug(), tunnel(), bridges=(physical(0, "rnic0", "rnic1"),))
    links, discovery = Links(), Discovery(host="h0", bridge="br-int")
    links.start(plug(), 1)

    def found(at_ns):
        found = found_in(view)
        host = discovery.observe(view, links.view, found, now_ns=at_ns, wall_ns=at_ns)
        return [(f.kind, f.component.name) for f in host.findings]

    assert found(0) == []
    links.change("rnic0", carrier=False)
    assert found(1) == []
    assert discovery.deadline_ns() == 1 + HOLD_NS
    assert found(1 + HOLD_NS) == [(FindingKind.RAIL_ON_SPARE, "h0/rnic0")]
    links.change("rnic1", carrier=False)
    down = [(FindingKind.RNIC_DOWN, f"h0/rnic{n}") for n in (0, 1)]
    assert found(2 + HOLD_NS) == down
    links.change("rnic0", carrier=True)
    links.change("rnic1", carrier=True)
    assert found(3 + HOLD_NS) == []


@given(st.lists(st.tuples(st.integers(1, HOLD_NS), st.booleans(), st.booleans()), max_size=30))
def test_a_member_is_found_as_long_as_only_it_was_down_for_the_whole_time(steps):
    watch, now_ns, since_ns = SpareWatch("h0"), 0, None
    for after_ns, first, second in steps:
        now_ns += after_ns
        links = but(rnic0={"carrier": first}, rnic1={"carrier": second}, bond0={"primary": None})
        watch.observe([UPLINK], links, now_ns=now_ns)
        masked = second and not first
        since_ns = (now_ns if since_ns is None else since_ns) if masked else None
        found = [f.component.name for f in watch.findings(wall_ns=0)]
        assert ("h0/rnic0" in found) == (masked and now_ns - since_ns >= HOLD_NS)
        assert watch.covered == {n for n, up in (("rnic0", first), ("rnic1", second)) if not up
                                 and (first or second)}  # fmt: skip
