# SPDX-License-Identifier: Apache-2.0
"""Healthy clusters raise nothing; each fault is named, alone, in time, until it is mended."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from analyzer.intent.differences import lasting
from analyzer.intent.differences.contract import FRESH_NS, HostSaid
from analyzer.intent.differences.lasting import YOUNG_NS
from analyzer.intent.model import Allowed
from netagent.wire.controller import PluggedPort, Working
from tests.analyzer.intent.differences.clusters import SECOND, STEP_NS, Cluster, named
from tests.analyzer.intent.differences.faults import FAULTS

SHAPES = {"seed": st.integers(0, 2**32), "hosts": st.integers(4, 8), "ports": st.integers(0, 9)}
HOSTS = {"h0", "h1", "h2"}


def shaped(seed, hosts, ports):
    """Return a cluster with a port at each of the hosts where faults are done."""
    cluster = Cluster(seed, hosts, ports)
    for host in sorted(HOSTS & cluster.host.keys()):
        cluster.plug(cluster.declare(), host)
    cluster.asking, cluster.lazy = cluster.rng.choice([0.0, 0.5, 1.0]), 0.3
    cluster.after(125)
    return cluster


class Churn:
    """What happens in a healthy cluster: much at once, and nothing of it for long."""

    def __init__(self, cluster):
        self.cluster, self.rng = cluster, cluster.rng
        self.later: list[tuple[int, Callable[[], object]]] = []
        self.busy: dict[str, int] = {}
        """What happens to one at a time -> instant before which it does not happen again."""

    def step(self):
        cluster, rng = self.cluster, self.rng
        due = [do for at_ns, do in self.later if at_ns <= cluster.now_ns]
        self.later = [each for each in self.later if each[0] > cluster.now_ns]
        for do in due:
            do()
        for _ in range(rng.randrange(3)):
            rng.choice([self.begin, self.end, self.restart, self.migrate, self.mute, self.lag])()
        if rng.random() < 0.05 and self.alone("away", seconds := rng.randrange(5, 25)):
            cluster.away = {"OVN_Northbound": "no leader"}
            self.after(seconds, cluster.away.clear)
        late = [host for host in cluster.host if rng.random() < 0.1]
        return cluster.look(late=late)

    def after(self, seconds, do):
        self.later.append((self.cluster.now_ns + seconds * SECOND, do))

    def alone(self, what, seconds):
        """Return whether something may begin now, since it lasts and happens to one at a time."""
        is_free = self.cluster.now_ns >= self.busy.get(what, 0)
        if is_free:
            self.busy[what] = self.cluster.now_ns + (seconds + 15) * SECOND + FRESH_NS
        return is_free

    def begin(self):
        """Declare a port long before its container is there, if ever."""
        port = self.cluster.declare()
        if self.rng.random() < 0.8:
            self.after(self.rng.randrange(0, 300), lambda: self.cluster.plug(port))

    def end(self):
        """Stop a container; its port may stay, for another one to come."""
        if self.cluster.plugs:
            plug = self.cluster.plugs.pop(self.rng.choice(sorted(self.cluster.plugs)))
            if self.rng.random() < 0.5 and not self.cluster.plugged(plug.name):
                self.cluster.port.pop(plug.name, None)

    def restart(self):
        """Stop an instance, or upgrade it, which takes longer; in order or not."""
        host = self.rng.choice(list(self.cluster.host.values()))
        if self.alone("restart", seconds := self.rng.randrange(5, 90)):
            host.working = self.rng.choice(
                [Working.STOPPED, Working.SILENT, Working.CUT_OFF, Working.UNKNOWN]
            )
            record = None
            if host.working is Working.STOPPED and self.rng.random() < 0.5:
                record = self.cluster.chassis.pop(host.chassis)
            self.after(seconds, lambda: self.back(host, record))

    def back(self, host, record):
        host.working = Working.CONNECTED
        if record is not None:
            self.cluster.chassis[record.name] = record

    def migrate(self):
        """Move a container that goes on meanwhile: it is at two hosts for a while."""
        cluster, rng = self.cluster, self.rng
        if not cluster.plugs:
            return
        old = cluster.plugs[rng.choice(sorted(cluster.plugs))]
        port, to = cluster.port.get(old.name), rng.choice(list(cluster.host.values()))
        if port is None or port.hosts or to.name == old.host:
            return
        both = (cluster.host[old.host].chassis, to.chassis)
        cluster.port[port.name] = replace(port, hosts=both)
        new = cluster.plug(port, to.name)

        def switched():
            if port.name in cluster.port and new.interface in cluster.plugs:
                cluster.port[port.name] = replace(port, hosts=(to.chassis,))

        def done():
            cluster.plugs.pop(old.interface, None)
            if port.name in cluster.port:
                cluster.port[port.name] = port

        self.after(60, switched)
        self.after(75, done)

    def mute(self):
        """Let an agent say nothing, for as long as it likes."""
        host = self.rng.choice(list(self.cluster.host.values()))
        host.is_silent = True
        self.after(self.rng.randrange(5, 600), lambda: setattr(host, "is_silent", False))

    def lag(self):
        """Let the translation take its time."""
        if self.alone("lag", seconds := self.rng.randrange(5, 45)):
            self.cluster.frozen = True
            self.after(seconds, lambda: setattr(self.cluster, "frozen", False))


@given(**SHAPES | {"hosts": st.integers(1, 8)})
def test_a_healthy_cluster_raises_nothing_ever(seed, hosts, ports):
    churn = Churn(shaped(seed, hosts, ports))
    for n in range(120):
        assert named(churn.step()) == [], n


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@settings(max_examples=10)  # of each of them
@given(**SHAPES)
def test_each_fault_is_named_alone_in_time_and_goes_when_it_is_mended(fault, seed, hosts, ports):
    cluster = shaped(seed, hosts, ports)
    cluster.port["p0"] = replace(cluster.declare(), name="p0")  # waits for its container
    host = cluster.rng.choice(sorted(HOSTS))
    part = "controller " + fault.part(cluster, host)
    mend = fault.do(cluster, host)
    early = fault.within_ns // STEP_NS
    for _ in range(early):
        assert named(cluster.look()) == []
    for _ in range(6):
        told = cluster.look()
    assert named(told) == [(fault.kind, part)]
    of_port = fault.kind.startswith(("port-", "address-"))
    assert bool(told[0].endpoints) >= of_port
    for _ in range(12):
        assert cluster.look() is not told  # another tuple
        assert cluster.look() == told  # that says nothing new
    mend()
    cluster.look()
    for _ in range(60):
        assert named(cluster.look()) == []


def pairs():
    """Two faults that do not hide each other, at two hosts."""
    alone = {"away", "all cut off", "g frozen", "g not asked"}
    names = [name for name in FAULTS if name not in alone]
    return st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(
        lambda two: FAULTS[two[0]].part is not FAULTS[two[1]].part and len(set(two)) == 2
    )


@given(two=pairs(), **SHAPES)
def test_two_faults_at_two_hosts_are_both_named(two, seed, hosts, ports):
    cluster = shaped(seed, hosts, ports)
    wanted = []
    for name, host in zip(two, cluster.rng.sample(sorted(HOSTS), 2), strict=True):
        fault = FAULTS[name]
        wanted.append((fault.kind, "controller " + fault.part(cluster, host)))
        fault.do(cluster, host)
    assert sorted(named(cluster.after(360))) == sorted(wanted)


@given(fault=st.sampled_from(sorted(FAULTS)), **SHAPES)
def test_a_silent_host_is_not_accused(fault, seed, hosts, ports):
    if fault in {"away", "h1 ghost", "g frozen", "g not asked", "b2 two"}:
        return  # of no host, or seen without its words
    cluster = shaped(seed, hosts, ports)
    FAULTS[fault].do(cluster, "h1")
    for host in cluster.host.values():
        host.is_silent = True
    for _ in range(80):
        assert named(cluster.look()) == []


def test_an_hour_without_controller_is_one_finding_and_nothing_that_stood_is_new_after_it():
    cluster = shaped(1, 5, 6)
    mend = FAULTS["b1 no iface-id"].do(cluster, "h1")
    (stood,) = named(cluster.after(120))
    cluster.away = {"OVN_Southbound": "no answer", "OVN_Northbound": "no answer"}
    seen = [named(cluster.look()) for _ in range(720)]
    assert seen[0] == [stood]  # whoever is back within seconds was never away
    assert all(len(each) == 1 for each in seen)
    assert {kind for ((kind, _),) in seen[10:]} == {"controller-away"}
    cluster.away = {}
    assert named(cluster.look()) == []  # it has to last anew
    assert named(cluster.after(90)) == [stood]
    mend()
    assert named(cluster.after(10)) == []


def test_what_was_only_about_to_count_begins_anew_when_a_controller_was_away():
    cluster = shaped(1, 4, 3)
    FAULTS["b1 no iface-id"].do(cluster, "h1")
    cluster.after(50)
    cluster.away = {"OVN_Southbound": "no leader"}
    assert named(cluster.after(20)) == []
    cluster.away = {}
    assert named(cluster.after(50)) == []
    assert named(cluster.after(20)) == [("port-unbound", "controller port " + unbound(cluster))]


def unbound(cluster):
    (name,) = (n for n, p in cluster.placement.items() if not p.chassis)
    return name


@pytest.mark.parametrize("fault", ["a2 killed", "e2 wrong"])
def test_who_began_just_now_does_not_tell_that_nothing_differs(fault):
    cluster = Cluster()
    FAULTS[fault].do(cluster, "h1")
    young, told = [], ()
    for _ in range(30):
        cluster.settle()
        cluster.said = cluster.sight().states
        told = cluster.differences.step(cluster.intent(), cluster.said, (), cluster.now_ns)
        young.append(cluster.differences.is_young)
        cluster.now_ns += STEP_NS
    assert young == [True] * (YOUNG_NS // STEP_NS) + [False] * (30 - YOUNG_NS // STEP_NS)
    assert [each.lasts for each in told] == [True]


def test_a_clock_that_goes_back_makes_nothing_last():
    cluster = shaped(1, 4, 3)
    FAULTS["a2 killed"].do(cluster, "h1")
    cluster.after(100)
    cluster.now_ns -= 1_000 * SECOND
    assert named(cluster.after(100)) == []
    cluster.after(40)
    assert named(cluster.look()) == [("controller-stale", "controller h1")]


@pytest.mark.parametrize("pause_s", [70, 3_600])
def test_a_pause_or_a_clock_that_is_set_ahead_makes_nothing_last(pause_s):
    cluster = shaped(1, 4, 3)
    cluster.frozen, cluster.asked = True, cluster.asked + 1
    assert cluster.look() == ()
    cluster.now_ns += pause_s * SECOND
    assert named(cluster.look()) == []
    cluster.frozen = False
    assert named(cluster.after(10)) == []
    cluster.frozen, cluster.asked = True, cluster.asked + 1
    assert named(cluster.after(70)) == [("translation-stale", "controller northd")]


def test_a_difference_lasts_longer_than_words_that_are_old():
    cluster = shaped(1, 4, 3)
    shortest = {each.within_ns for each in FAULTS.values() if each.kind != "controller-away"}
    assert min(shortest) > FRESH_NS
    assert len({each.__name__ for each in lasting.ASKED}) == len(lasting.ASKED)
    host = cluster.host["h1"]
    host.working = Working.STOPPED
    cluster.look()
    host.is_silent = True
    assert named(cluster.after(300)) == []


COSTLY = ["a3 ended", "b1 no iface-id", "b1 wrong iface-id", "b3 elsewhere", "e2 wrong", "f mac"]
"""Faults by which endpoints lose all that they send."""


@pytest.mark.parametrize("name", COSTLY)
def test_why_endpoints_lose_all_is_known_within_two_looks(name):
    """And nothing else is, though nothing of it has lasted."""
    cluster, fault = shaped(1, 5, 9), FAULTS[name]
    part = fault.part(cluster, "h1")
    fault.do(cluster, "h1")
    assert [cluster.look() for _ in range(2)] == [(), ()]
    costly = [each for each in cluster.soon if each.ports or each.is_whole]
    assert named(costly) == [(fault.kind, f"controller {part}")]


def lied(cluster, seconds, lie):
    """Return what differs once h0 has told lies for a while; `lie` makes them of its words."""
    for _ in range(seconds * SECOND // STEP_NS):
        cluster.settle()
        for host in cluster.host.values():
            state = cluster.state(host)
            state = lie(state) if host.name == "h0" else state
            cluster.said[host.name] = HostSaid(state, cluster.now_ns)
        given_ = cluster.intent(), cluster.said, cluster.endpoints(), cluster.now_ns
        told = cluster.differences.step(*given_)
        cluster.now_ns += STEP_NS
    return named([each for each in told if each.lasts])


def offering(cluster, *plugged, of="h1", **also):
    """Return a lie: that a host has, and offers, the tunnel address of another one."""
    address = cluster.host[of].address
    return lambda state: structs.replace(
        state, encapsulations=(address,), addresses=(address,),
        ports=(*state.ports, *plugged), **also,
    )  # fmt: skip


def test_who_says_that_it_is_another_host_with_its_address_accuses_nobody():
    cluster = shaped(1, 4, 3)
    assert lied(cluster, 200, offering(cluster, chassis="chassis-1")) == []


def test_who_says_that_it_is_another_host_with_its_port_accuses_nobody():
    cluster = shaped(1, 4, 3)
    name = next(each.name for each in cluster.plugs.values() if each.host == "h1")
    port = cluster.port[name]
    cluster.port[name] = replace(port, allowed=(Allowed(port.macs[0]),))
    stolen = PluggedPort(name=name, interface="x", mac="02:00:00:00:00:99")
    lie = {"chassis": "chassis-1", "ports": (stolen,)}
    assert lied(cluster, 200, lambda state: structs.replace(state, **lie)) == []


ADDRESSES = [*(f"192.0.2.{n}" for n in (10, 11, 12, 200)), "203.0.113.9", "no address"]
LIES = st.fixed_dictionaries({}, optional={
    "chassis": st.sampled_from(["chassis-0", "chassis-1", "chassis-2", "x", ""]),
    "encapsulations": st.lists(st.sampled_from(ADDRESSES), max_size=3).map(tuple),
    "addresses": st.lists(st.sampled_from(ADDRESSES), max_size=4).map(tuple),
    "working": st.sampled_from(Working),
    "generation": st.sampled_from([0, 1 << 60]),
    "ports": st.lists(st.builds(
        PluggedPort, name=st.sampled_from(["p1", "p2", "p3", "p9"]),
        interface=st.sampled_from(["x", "veth2", "veth4"]), is_installed=st.booleans(),
        mac=st.sampled_from(["", "0a:00:00:00:00:01", "02:00:00:00:00:99"]),
        addresses=st.lists(st.sampled_from(["10.0.0.1", "10.9.9.9"]), max_size=2).map(tuple),
    ), max_size=4).map(tuple),
})  # fmt: skip


@given(SHAPES["seed"], st.integers(1, 4), LIES)
def test_whatever_a_host_says_of_itself_no_other_is_accused(seed, hosts, lie):
    """But a record or a port of its own may be, as it is by the truth."""
    cluster = shaped(seed, hosts, 0)
    others = {f"controller {what}{host}" for host in cluster.host for what in ("", "tunnel ")}
    others -= {"controller h0", "controller tunnel h0"}
    others |= {"controller ovn", "controller northd"} if hosts > 1 else set()
    others |= {f"controller chassis chassis-{n}" for n in range(1, hosts)}
    others |= {f"controller port {e.name}" for e in cluster.plugs.values() if e.host != "h0"}
    told = lied(cluster, 400, lambda state: structs.replace(state, **lie))
    assert others.isdisjoint(component for _, component in told)


def test_who_offers_anothers_tunnel_hides_no_fault_of_that_host():
    cluster = shaped(1, 4, 3)
    cluster.host["h1"].working = Working.SILENT
    told = lied(cluster, 200, offering(cluster))
    assert told == [
        ("controller-stale", "controller h1"),
        ("tunnel-address-taken", "controller tunnel h0"),
    ]


def test_who_claims_a_port_and_can_bind_none_hides_not_that_it_is_unbound():
    cluster = shaped(1, 4, 3)
    port = cluster.declare()
    cluster.plug(port, "h1")
    settle = cluster.settle

    def unbound():
        settle()
        cluster.placement[port.name] = replace(cluster.placement[port.name], chassis="")

    cluster.settle = unbound
    claim = PluggedPort(name=port.name, interface="x")
    told = lied(cluster, 200, offering(cluster, claim, of="h2"))
    assert ("port-unbound", f"controller port {port.name}") in told


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_translation_that_is_late_for_each_of_many_ports_does_not_stand_still(is_stuck):
    cluster = shaped(1, 4, 3)
    stuck = cluster.declare()
    cluster.plug(stuck, "h1")
    for _ in range(60):
        cluster.plug(cluster.declare(), "h2")  # and is translated by the next look
        cluster.translated = cluster.asked
        told = cluster.look()
        cluster.asked, cluster.frozen = cluster.translated, False
        cluster.known = dict(cluster.port)
        if is_stuck:
            del cluster.known[stuck.name]
        cluster.frozen = True
    assert named(told) == ([("translation-stale", "controller northd")] if is_stuck else [])


class Late(Cluster):
    """A cluster of which the database is read late, and each host is heard late, in any order."""

    most = 0
    """Looks that either is behind, at most."""

    def intent(self):
        """Return what the controller said some time ago, never older than before."""
        history = self.__dict__.setdefault("history", [])
        history.append((self.now_ns, super().intent()))
        seen = self.__dict__.setdefault("seen", 0)
        oldest = max(seen, len(history) - 1 - self.most)
        self.seen = self.rng.randint(oldest, len(history) - 1)
        # That it cannot be read is known at once.
        return replace(history[self.seen][1], away=dict(self.away))

    def state(self, host):
        """Return what a host said some time ago."""
        words = self.__dict__.setdefault("words", {}).setdefault(host.name, [])
        words.append(super().state(host))
        return words[-1 - self.rng.randint(0, min(self.most, len(words) - 1))]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("most", [2, 4])
def test_nobody_is_accused_where_databases_and_hosts_are_only_late(most, seed):
    cluster = Late(seed, 4, 3)
    cluster.asking, cluster.lazy = cluster.rng.choice([0.0, 0.5, 1.0]), 0.3
    cluster.after(125)
    cluster.most = most
    churn = Churn(cluster)
    for n in range(100):
        assert named(churn.step()) == [], n


@pytest.mark.parametrize("how", [Working.STOPPED, Working.SILENT, Working.CUT_OFF])
@pytest.mark.parametrize("moves", [True, False])
def test_an_instance_whose_record_moves_on_works_whatever_its_host_can_see(how, moves):
    cluster = Cluster(asking=1.0)
    cluster.host["h1"].working = how
    settle = cluster.settle

    def settled():
        settle()
        if moves:
            record = cluster.chassis["chassis-1"]
            cluster.chassis["chassis-1"] = replace(record, installed=cluster.translated)

    cluster.settle = settled
    told = named(cluster.after(300))
    assert told == ([] if moves else [("controller-stale", "controller h1")])
