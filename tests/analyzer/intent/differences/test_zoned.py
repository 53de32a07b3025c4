# SPDX-License-Identifier: Apache-2.0
"""Zones and their hosts, and what a host that lies can have said of others: nothing."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.differences.contract import HostSaid
from analyzer.intent.differences.ghosts import GHOST_NS
from analyzer.intent.differences.ladder import AWAY_NS, STALE_NS, TRANSLATION_NS
from analyzer.intent.differences.lasting import YOUNG_NS
from analyzer.intent.differences.zoned import LATE_NS, ZonedDifferences, _Votes
from analyzer.intent.model import Chassis, Encapsulation, Intent, Ladder, Placement, Port
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, PluggedPort, Working
from tests.analyzer.intent.differences.clusters import SECOND, STEP_NS, named

HOSTS = ("h0", "h1", "h2", "h3")


def address(host):
    return f"192.0.2.{HOSTS.index(host)}"


@dataclass
class Zoned:
    """Hosts with a zone and a plugged port each; all is well."""

    now_ns: int = 1_000 * STEP_NS
    zones: dict = field(default_factory=dict)
    states: dict = field(default_factory=dict)
    silent: set = field(default_factory=set)
    said: dict = field(default_factory=dict)

    def __post_init__(self):
        self.differences = ZonedDifferences()
        for host in HOSTS:
            port = Port(f"p-{host}", macs=(f"02:00:00:00:00:0{host[1]}",))
            believed = {f"c-{o}": frozenset({address(o)}) for o in HOSTS if o != host}
            chassis = Chassis(
                f"c-{host}", host, (Encapsulation("geneve", address(host)),), installed=7
            )
            self.zones[host] = Intent(
                "ovn", self.now_ns, {}, {port.name: port},
                {port.name: Placement(port.name, f"c-{host}", True)}, {chassis.name: chassis},
                Ladder(7, 7, 1), host, believed, {f"c-{o}": o for o in HOSTS if o != host},
            )  # fmt: skip
            plugged = PluggedPort(
                name=port.name, interface=f"veth-{host}", is_installed=True, mac=port.macs[0]
            )
            self.states[host] = ControllerState(
                source="ovn", chassis=f"c-{host}", central="unix:/x", kinds=("geneve",),
                encapsulations=(address(host),), addresses=(address(host), "203.0.113.9"),
                working=Working.CONNECTED, ports=(plugged,), databases=True,
            )  # fmt: skip

    def zone(self, host, **changes):
        self.zones[host] = replace(self.zones[host], **changes)

    def state(self, host, **changes):
        plain = {name: getattr(self.states[host], name) for name in self.states[host].__slots__}
        self.states[host] = ControllerState(**{**plain, **changes})

    def endpoints(self):
        return [
            Endpoint(EndpointId(f"x-{host}", 0), "t", host, "10.0.0.1",
                     f"02:00:00:00:00:0{host[1]}", address(host), "rnic0", "br-int",
                     f"veth-{host}")
            for host in HOSTS
        ]  # fmt: skip

    def look(self):
        for host in set(HOSTS) - self.silent:
            self.said[host] = HostSaid(self.states[host], self.now_ns)
        told = self.differences.step(
            self.zones.values(), dict(self.said), self.endpoints(), self.now_ns
        )
        self.now_ns += STEP_NS
        return told

    def after(self, nanoseconds=GHOST_NS + 60 * SECOND):
        told = ()
        for _ in range(nanoseconds // STEP_NS + 1):
            told = self.look()
        return [each for each in told if each.lasts]


def test_where_all_is_well_nothing_differs():
    cluster = Zoned()
    assert cluster.after() == []
    assert not cluster.differences.is_young


def test_after_a_restart_it_waits_until_hosts_said_that_they_have_zones():
    cluster = Zoned()
    cluster.after(YOUNG_NS + LATE_NS - STEP_NS)
    assert cluster.differences.is_young
    cluster.look()
    assert not cluster.differences.is_young


# --- a fault of one zone is that host's -----------------------------------------------------------


def test_a_northd_that_stands_still_is_its_host_s():
    cluster = Zoned()
    cluster.zone("h1", ladder=Ladder(9, 7, 1))
    assert cluster.after(TRANSLATION_NS - STEP_NS) == []
    (told,) = cluster.after(2 * STEP_NS)
    assert named([told]) == [("translation-stale", "controller northd h1")]
    assert told.hosts == ("h1",)
    assert "northd h1 is at 7, and 9 is asked for" in told.finding.text


def test_generations_of_zones_have_nothing_to_do_with_each_other():
    cluster = Zoned()
    for number, host in enumerate(HOSTS):
        chassis = cluster.zones[host].chassis[f"c-{host}"]
        cluster.zone(
            host, ladder=Ladder(100 * number, 100 * number, 1),
            chassis={chassis.name: replace(chassis, installed=100 * number)},
        )  # fmt: skip
    assert cluster.after() == []


def test_an_instance_that_installs_nothing_new_is_behind_its_own_translation():
    cluster = Zoned()
    cluster.zone("h2", ladder=Ladder(8, 8, 1))
    (told,) = cluster.after(STALE_NS + STEP_NS)
    assert named([told]) == [("controller-stale", "controller h2")]
    assert "h2 has installed 7, and 8 is translated" in told.finding.text


def test_what_an_instance_did_not_install_is_known_as_others_say_what_they_did():
    cluster = Zoned()
    (port,) = cluster.states["h1"].ports
    new = PluggedPort(name=port.name, interface=port.interface, mac=port.mac)
    cluster.state("h1", working=Working.STOPPED, ports=(new,))
    (told,) = cluster.after(STALE_NS)
    assert told.endpoints == (EndpointId("x-h1", 0),)


def test_a_port_that_its_own_zone_has_nowhere_is_told():
    cluster = Zoned()
    cluster.zone("h1", placements={"p-h1": Placement("p-h1")})
    (told,) = cluster.after(90 * SECOND)
    assert named([told]) == [("port-unbound", "controller port p-h1")]
    assert told.endpoints == (EndpointId("x-h1", 0),)


# --- a zone that is away --------------------------------------------------------------------------


def test_one_zone_that_cannot_be_read_silences_no_other():
    cluster = Zoned()
    cluster.zone("h1", away={"northbound": "x"}, ladder=Ladder(9, 7, 1))
    cluster.zone("h2", ladder=Ladder(9, 7, 1))
    told = cluster.after()
    assert named(told) == [
        ("controller-away", "controller ovn h1"), ("translation-stale", "controller northd h2"),
    ]  # fmt: skip
    assert told[0].hosts == ("h1",)


def test_a_host_that_is_gone_is_blamed_for_nothing():
    cluster = Zoned()
    cluster.zone("h1", ladder=Ladder(9, 7, 1), placements={"p-h1": Placement("p-h1")})
    assert len(cluster.after(90 * SECOND)) > 0
    cluster.zone("h1", away=dict.fromkeys(("northbound", "southbound"), "its agent: timeout"))
    cluster.silent.add("h1")
    assert named(cluster.after(AWAY_NS + STEP_NS)) == [("controller-away", "controller ovn h1")]


def test_a_host_that_has_no_zone_is_held_against_none():
    cluster = Zoned()
    del cluster.zones["h1"]
    assert cluster.after() == []


# --- what zones say of each other -----------------------------------------------------------------


@pytest.mark.parametrize("place", [frozenset({"192.0.2.99"}), frozenset(), None])
def test_a_zone_that_sends_to_where_another_one_is_not_is_named(place):
    cluster = Zoned()
    believed = dict(cluster.zones["h0"].believed)
    if place is None:
        del believed["c-h1"]
    else:
        believed["c-h1"] = place
    cluster.zone("h0", believed=believed)
    assert cluster.after(STALE_NS - STEP_NS) == []
    (told,) = cluster.after(2 * STEP_NS)
    assert named([told]) == [("controller-stale", "controller zone h0")]
    assert told.hosts == ("h0",)
    assert "c-h1 of h1" in told.finding.text


def test_a_host_that_moves_its_tunnels_alone_accuses_nobody():
    """What it says of itself is one word against all others."""
    cluster = Zoned()
    moved = Chassis("c-h1", "h1", (Encapsulation("geneve", "192.0.2.77"),), installed=7)
    cluster.zone("h1", chassis={"c-h1": moved})
    assert cluster.after() == []


def test_of_two_zones_nobody_knows_which_is_mistaken():
    cluster = Zoned()
    for host in ("h2", "h3"):
        del cluster.zones[host]
    cluster.zone("h0", believed={"c-h1": frozenset({"192.0.2.99"})})
    assert cluster.after() == []


def test_what_is_believed_of_a_zone_that_is_away_is_not_judged():
    cluster = Zoned()
    cluster.zone("h1", away={"southbound": "x"})
    cluster.zone("h0", believed={**cluster.zones["h0"].believed, "c-h1": frozenset({"::9"})})
    assert named(cluster.after()) == [("controller-away", "controller ovn h1")]


# --- a host that lies -----------------------------------------------------------------------------


def lie_about_ports(cluster):
    """Say that another one's port is unbound, disabled, misplaced, and fought over."""
    mine = cluster.zones["h3"]
    stolen = Port("p-h0", macs=("02:00:00:00:00:00",), hosts=("h3",), is_enabled=True)
    cluster.zone(
        "h3", ports={**mine.ports, "p-h0": stolen},
        placements={**mine.placements, "p-h0": Placement("p-h0", moves=99)},
    )  # fmt: skip


def lie_about_chassis(cluster):
    """Say that others' chassis are its own, behind, and elsewhere."""
    old = Chassis("c-h0", "h0", (Encapsulation("geneve", "192.0.2.99"),), installed=1)
    ghost = Chassis("c-h1", "h1", (Encapsulation("geneve", address("h1")),), False)
    cluster.zone("h3", chassis={**cluster.zones["h3"].chassis, "c-h0": old, "c-h1": ghost})


def lie_about_beliefs(cluster):
    cluster.zone("h3", believed={f"c-{h}": frozenset({"::9"}) for h in ("h0", "h1", "h2")})


def lie_about_itself(cluster):
    """Go by another one's name, with a zone that fits, and offer its tunnels' address."""
    chassis = Chassis("c-h0", "h0", (Encapsulation("geneve", address("h3")),), installed=900)
    cluster.zone("h3", chassis={"c-h0": chassis}, ladder=Ladder(900, 900, 1))
    cluster.state("h3", chassis="c-h0", encapsulations=(address("h0"),), addresses=(address("h0"),))


def lie_about_what_is_plugged_in(cluster):
    cluster.state(
        "h3", ports=(*cluster.states["h3"].ports, PluggedPort(name="p-h0", interface="veth-h0"))
    )
    lie_about_ports(cluster)


LIES = [
    lie_about_ports, lie_about_chassis, lie_about_beliefs, lie_about_itself,
    lie_about_what_is_plugged_in,
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_accuses_nobody_else(lie):
    cluster = Zoned()
    lie(cluster)
    others = {EndpointId(f"x-{host}", 0) for host in HOSTS} - {EndpointId("x-h3", 0)}
    for each in cluster.after():
        assert each.hosts[:1] in {(), ("h3",)}, each
        assert others.isdisjoint(each.endpoints), each
        assert each.finding.component.name.rpartition(" ")[2] not in {"h0", "h1", "h2"}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_hides_nothing_of_others(lie):
    cluster = Zoned()
    lie(cluster)
    cluster.zone("h0", ladder=Ladder(9, 7, 1), placements={"p-h0": Placement("p-h0")})
    cluster.state("h1", working=Working.SILENT)
    cluster.state("h2", encapsulations=("192.0.2.88",))
    told = set(named(cluster.after()))
    assert {
        ("translation-stale", "controller northd h0"),
        ("port-unbound", "controller port p-h0"),
        ("controller-stale", "controller h1"),
        ("tunnel-address-wrong", "controller tunnel h2"),
    } <= told


# --- votes ----------------------------------------------------------------------------------------

NAMES = st.sampled_from(("c-h0", "c-h1", "c-h2"))
PLACES = st.frozensets(st.sampled_from(("::1", "::2")), max_size=2)


@st.composite
def zones(draw):
    """Draw what some zones say, of which any may be away."""
    said = {}
    for host in draw(st.sets(st.sampled_from(HOSTS))):
        believed = draw(st.dictionaries(NAMES, PLACES))
        own = {
            name: Chassis(name, host, tuple(Encapsulation("geneve", ip) for ip in sorted(place)))
            for name, place in draw(st.dictionaries(NAMES, PLACES, max_size=1)).items()
        }
        away = {"northbound": "x"} if draw(st.booleans()) else {}
        called = {name: draw(st.sampled_from(HOSTS)) for name in believed}
        said[host] = Intent(
            "ovn", 1, away, chassis=own, zone=host, believed=believed, hostnames=called
        )
    return said


def most(values, count):
    return next((v for v in values if 2 * values.count(v) > count), None)


@given(st.lists(zones(), min_size=1, max_size=4))
def test_votes_are_as_if_counted_anew_each_time(steps):
    votes = _Votes()
    for step in steps:
        votes.take(step)
        here = {host: each for host, each in step.items() if not each.away}
        assert votes.count() == len(here)
        for name in ("c-h0", "c-h1", "c-h2"):
            said, called = {}, []
            for host, each in here.items():
                if name in each.chassis:
                    said[host] = frozenset(e.address for e in each.chassis[name].encapsulations)
                    called.append(host)
                elif name in each.believed:
                    said[host] = each.believed[name]
                    called.append(each.hostnames[name])
            assert votes.place(name) == most(list(said.values()), len(here))
            assert votes.hostname(name) == (most(called, len(here)) or "")
            place = votes.place(name)
            if place is not None:
                everybody = {host: said.get(host, frozenset()) for host in here}
                others = {host: there for host, there in everybody.items() if there != place}
                assert dict(votes.others(name, place)) == others
