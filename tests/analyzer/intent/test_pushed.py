# SPDX-License-Identifier: Apache-2.0
"""What is kept of what a controller pushes."""

from dataclasses import fields, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent import pushed as room
from analyzer.intent.differences.contract import HostSaid
from analyzer.intent.differences.lasting import Differences
from analyzer.intent.model import MOVES_NS, Chassis, Ladder, Placement, Port
from analyzer.intent.pushed import (
    AllowedBody,
    ChassisBody,
    EncapsulationBody,
    IntentChange,
    LadderBody,
    LostChange,
    PlacementBody,
    PortBody,
    Pushed,
    WholeIntent,
)
from netagent.model.errors import RemoteProtocolError
from netagent.wire.controller import Working
from tests.analyzer.intent.differences.clusters import SECOND, STEP_NS, Cluster, named

AWAY_NS = 180 * SECOND
NOW_NS = 10**18
NAMES = st.sampled_from(["a", "b", "c"])
PORTS = st.builds(PortBody, network=st.sampled_from(["", "net"]), is_enabled=st.booleans())
PLACES = st.builds(PlacementBody, chassis=st.sampled_from(["", "h1", "h2"]))
CHASSIS = st.builds(ChassisBody, installed=st.none() | st.integers(0, 3))
LADDERS = st.builds(LadderBody, asked=st.none() | st.integers(0, 3))


def kept(**said):
    made = Pushed("acme", AWAY_NS)
    made.put(WholeIntent(version="1", **said), NOW_NS)
    return made


@pytest.mark.parametrize(
    ("model", "body", "own"),
    [
        (Port, PortBody, {"name"}),
        (Placement, PlacementBody, {"port", "since_ns", "moves"}),
        (Chassis, ChassisBody, {"name"}),
        (Ladder, LadderBody, {"asked_ns"}),
    ],
)
def test_all_of_the_contract_can_be_pushed_but_names_and_what_is_watched(model, body, own):
    assert {each.name for each in fields(model)} - own == set(body.__struct_fields__)


def test_what_was_pushed_is_said_as_the_contract_has_it_and_can_be_put_again():
    port = PortBody(
        network="net", pod="ns/pod", container="c", macs=("02:00:00:00:00:01",),
        addresses=("10.0.0.1", "fd00:0::1"), hosts=("h1",), is_enabled=False, owner="row 1",
        allowed=(AllowedBody(mac="02:00:00:00:00:01", addresses=("10.0.0.0/24",)),),
    )  # fmt: skip
    chassis = ChassisBody(
        hostname="h1.example", installed=3, installed_ns=5, is_registered=False,
        encapsulations=(EncapsulationBody(kind="vxlan", address="172.30.1.1"),),
    )  # fmt: skip
    place = PlacementBody(chassis="h1", is_up=True, encapsulation="172.30.1.1")
    made = kept(
        ports={"p": port}, placements={"p": place}, chassis={"h1": chassis},
        ladder=LadderBody(asked=4, translated=3),
    )  # fmt: skip
    intent = made.intent(NOW_NS)
    assert (intent.source, intent.wall_ns, intent.away) == ("acme", NOW_NS, {})
    assert intent.ports["p"].addresses == ("10.0.0.1", "fd00::1")
    assert intent.ports["p"].allowed[0].addresses == ("10.0.0.0/24",)
    assert intent.placements["p"] == Placement("p", "h1", True, "172.30.1.1", NOW_NS, 0)
    assert intent.chassis["h1"].encapsulations[0].address == "172.30.1.1"
    assert intent.ladder == Ladder(4, 3, NOW_NS)
    again = Pushed("acme", AWAY_NS)
    again.put(msgspec.json.decode(msgspec.json.encode(made.kept()), type=WholeIntent), NOW_NS)
    assert again.intent(NOW_NS) == intent


@given(
    st.lists(
        st.tuples(
            st.dictionaries(NAMES, st.none() | PORTS),
            st.dictionaries(NAMES, st.none() | PLACES),
            st.dictionaries(NAMES, st.none() | CHASSIS),
            st.none() | LADDERS,
        )
    )
)
def test_changes_make_what_one_push_of_the_result_makes(changes):
    made = kept()
    held, ladder = ({}, {}, {}), LadderBody()
    for n, (*maps, climbed) in enumerate(changes):
        for into, said in zip(held, maps, strict=True):
            into.update(said)
            for name in [name for name, each in into.items() if each is None]:
                del into[name]
        ladder = climbed or ladder
        ports, placements, chassis = maps
        change = IntentChange(
            since=str(n + 1), version=str(n + 2), ports=ports, placements=placements,
            chassis=chassis, ladder=climbed,
        )  # fmt: skip
        made.patch(change, NOW_NS)
        if n % 2:
            made.patch(change, NOW_NS)  # whose answer was lost
    ports, placements, chassis = held
    assert made.kept() == WholeIntent(
        version=str(len(changes) + 1), ports=ports, placements=placements, chassis=chassis,
        ladder=ladder,
    )  # fmt: skip
    whole = kept(ports=ports, placements=placements, chassis=chassis, ladder=ladder)
    told = made.intent(NOW_NS + MOVES_NS)
    assert told == replace(whole.intent(NOW_NS), wall_ns=told.wall_ns, placements=told.placements)


def test_a_change_of_what_was_never_pushed_says_so():
    with pytest.raises(LostChange, match="version 2, and nothing was pushed"):
        Pushed("acme", "sdn").patch(IntentChange(since="2", version="3"), NOW_NS)


def test_a_change_that_was_lost_is_noticed_and_nobody_is_blamed_until_the_whole_comes():
    made = kept(ports={"p": PortBody()})
    with pytest.raises(LostChange, match="changes version 2, and what is kept is of version 1"):
        made.patch(IntentChange(since="2", version="3", ports={"p": None}), NOW_NS)
    assert made.intent(NOW_NS).ports.keys() == {"p"}
    assert "never came" in made.intent(NOW_NS).away["intent"]
    made.patch(IntentChange(since="1", version="2"), NOW_NS)
    assert made.intent(NOW_NS).away
    made.put(WholeIntent(version="3"), NOW_NS)
    assert (made.intent(NOW_NS).away, dict(made.intent(NOW_NS).ports)) == ({}, {})


def test_before_the_first_push_it_is_away_and_a_change_asks_for_the_whole():
    made = Pushed("acme", AWAY_NS)
    assert made.kept() is None
    assert "nothing was pushed" in made.intent(NOW_NS).away["intent"]
    with pytest.raises(LostChange, match="nothing was pushed"):
        made.patch(IntentChange(since="1", version="2"), NOW_NS)


def test_what_is_old_is_away_until_it_is_said_that_it_holds():
    made = kept(ports={"p": PortBody()})
    assert made.intent(NOW_NS + AWAY_NS).away == {}
    late_ns = NOW_NS + AWAY_NS + 1
    assert "more than 180 s" in made.intent(late_ns).away["intent"]
    assert made.intent(late_ns).ports.keys() == {"p"}
    made.patch(IntentChange(since="1", version="1"), late_ns)
    assert (made.intent(late_ns).away, made.version) == ({}, "1")


def test_moves_are_counted_for_a_minute_and_a_placement_has_its_age():
    made = kept(placements={"p": PlacementBody(chassis="h1")})
    for n, chassis in enumerate(("h1", "h2", "", "h1"), start=1):
        change = IntentChange(
            since=str(n), version=str(n + 1), placements={"p": PlacementBody(chassis=chassis)}
        )
        made.patch(change, NOW_NS + n)
    assert made.intent(NOW_NS + 5).placements["p"] == Placement(
        "p", "h1", since_ns=NOW_NS + 4, moves=2
    )
    assert made.intent(NOW_NS + 4 + MOVES_NS - 1).placements["p"].moves == 1
    assert made.intent(NOW_NS + 4 + MOVES_NS).placements["p"].moves == 0
    made.put(WholeIntent(version="x", placements={"p": PlacementBody(chassis="h1")}), NOW_NS + 9)
    assert made.intent(NOW_NS + 9).placements["p"].since_ns == NOW_NS + 4
    made.put(WholeIntent(version="y"), NOW_NS + 10)
    assert dict(made.intent(NOW_NS + 10).placements) == {}


MAC = "02:00:00:00:00:01"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"ports": {"p": PortBody(macs=("02:",))}}, "ports.p.macs: '02:' is no hardware address"),
        ({"ports": {"p": PortBody(addresses=("10.0.0",))}}, "ports.p.addresses: '10.0.0'"),
        ({"ports": {"p": PortBody(pod="pod")}}, "is not NAMESPACE/NAME"),
        ({"ports": {"": PortBody()}}, "'' is no name"),
        ({"ports": {"p": PortBody(network="a\nb")}}, "is no name"),
        ({"ports": {"p": PortBody(allowed=(AllowedBody(mac="x"),))}}, "ports.p.allowed: 'x'"),
        (
            {"ports": {"p": PortBody(allowed=(AllowedBody(mac=MAC, addresses=("1/2/3",)),))}},
            "ports.p.allowed: '1/2/3' is no address",
        ),
        ({"placements": {"p": PlacementBody(encapsulation="x")}}, "placements.p.encapsulation"),
        ({"placements": {"p\x1b": PlacementBody()}}, "is no name"),
        ({"chassis": {"h": ChassisBody(hostname="\x1b[2J")}}, "is no name"),
        (
            {"chassis": {"h": ChassisBody(encapsulations=(EncapsulationBody(
                kind="geneve", address="tunnel"),))}},
            "chassis.h.encapsulations: 'tunnel' is no address",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_whole_and_named(said, words):
    made = kept(ports={"a": PortBody()})
    with pytest.raises(RemoteProtocolError) as whole:
        made.put(WholeIntent(version="2", **said), NOW_NS)
    with pytest.raises(RemoteProtocolError) as change:
        made.patch(IntentChange(since="1", version="2", **said), NOW_NS)
    assert words in str(whole.value)
    assert words in str(change.value)
    assert made.kept() == WholeIntent(version="1", ports={"a": PortBody()})
    assert made.intent(NOW_NS).away == {}


def test_no_number_of_changes_makes_more_than_one_push_may_have(monkeypatch):
    monkeypatch.setattr(room, "MOST_PORTS", 2)
    made = kept(ports={"a": PortBody(), "b": PortBody()})
    with pytest.raises(RemoteProtocolError, match="3 ports; 2 at most"):
        made.patch(IntentChange(since="1", version="2", ports={"c": PortBody()}), NOW_NS)
    swapped = {"c": PortBody(), "a": None}
    made.patch(IntentChange(since="1", version="2", ports=swapped), NOW_NS)
    assert made.intent(NOW_NS).ports.keys() == {"b", "c"}


def of_cluster(cluster, version):
    """Return what a toy's controller says, as it would push it."""
    intent = cluster.intent()
    bodies = {
        kind: {
            name: msgspec.convert(
                {f: v for f, v in msgspec.to_builtins(each).items() if f in body.__struct_fields__},
                body,
            )
            for name, each in getattr(intent, kind).items()
        }
        for kind, body in (
            ("ports", PortBody), ("placements", PlacementBody), ("chassis", ChassisBody),
        )
    }  # fmt: skip
    ladder = LadderBody(asked=intent.ladder.asked, translated=intent.ladder.translated)
    return WholeIntent(version=version, ladder=ladder, **bodies)


def wrong_host(cluster):
    name = next(iter(cluster.plugs.values())).name
    here = cluster.plugged(name)[0].host
    other = next(host for host in cluster.host.values() if host.name != here)
    cluster.port[name] = replace(cluster.port[name], hosts=(other.chassis,))


def misnamed(cluster):
    plug = next(iter(cluster.plugs.values()))
    plug.name = "nobody's"


def frozen(cluster):
    cluster.frozen = True
    cluster.declare()


def tunnel(cluster):
    cluster.host["h1"].offered = "192.0.2.99"


def cut_off(cluster):
    cluster.host["h1"].working = Working.CUT_OFF


@pytest.mark.parametrize("breaks", [None, wrong_host, misnamed, frozen, tunnel, cut_off])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_differences_follow_as_from_a_controller_that_is_read(breaks, seed):
    """Hosts say this controller's name; what is found is what is found of OVN."""
    cluster = Cluster(seed=seed)
    pushed, differences = Pushed("acme", AWAY_NS), Differences()
    for n in range(60):
        if n == 10 and breaks is not None:
            breaks(cluster)
        read = cluster.look()
        pushed.put(of_cluster(cluster, str(n)), cluster.now_ns)
        said = {
            host: HostSaid(msgspec.structs.replace(each.state, source="acme"), each.wall_ns)
            for host, each in cluster.said.items()
        }
        at_ns = cluster.now_ns - STEP_NS
        told = differences.step(pushed.intent(at_ns), said, cluster.endpoints(), at_ns)
    found = named([each for each in told if each.lasts])
    assert [(k, c.replace("translation acme", "northd")) for k, c in found] == named(read)
    assert bool(found) == (breaks is not None)
