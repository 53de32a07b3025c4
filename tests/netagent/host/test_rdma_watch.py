# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netagent.host.carrier import FLAP_HOLD_NS, FLAP_SPAN_NS
from netagent.host.rdma_facts import Gid, RdmaDevice, RdmaEvent, RdmaEventKind, RdmaPort
from netagent.host.rdma_watch import FLAP_DOWNS, SETTLE_NS, SPAN_NS, RdmaWatch, WatchedRnic
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from tests.netagent.host.small_host import S

GID = "::ffff:10.0.0.10"
LINK_LOCAL = Gid(0, "fe80::1", "RoCE v2", "eth0")
PORT = RdmaPort(
    "mlx5_0",
    1,
    "ACTIVE",
    "Ethernet",
    netdevs=("eth0",),
    phys_state="LinkUp",
    gids=(LINK_LOCAL, Gid(1, GID, "RoCE v2", "eth0")),
    active_mtu_bytes=1024,
)
DOWN = replace(PORT, state="DOWN", phys_state="Disabled")
RNIC = WatchedRnic(EndpointId("c", 0), "mlx5_0", GID, mtu_bytes=1450, qpns=(17,))
SECOND = WatchedRnic(EndpointId("c", 1), "mlx5_1", "::ffff:10.0.1.10", mtu_bytes=1450)


class Bench:
    """A watch with its clock; each sight comes a second after the last."""

    def __init__(self, *watched: WatchedRnic) -> None:
        self.watch = RdmaWatch("h0")
        self.watched = watched or (RNIC,)
        self.now_ns = 0

    def see(
        self, *ports: RdmaPort, after_ns: int = S, told: tuple[RdmaEvent, ...] = ()
    ) -> dict[FindingKind, Finding]:
        self.now_ns += after_ns
        devices = {port.device: RdmaDevice(port.device, ports=(port,)) for port in ports}
        found = self.watch.observe(
            self.watched, devices, told, now_ns=self.now_ns, wall_ns=10**18 + self.now_ns
        )
        assert len({(each.kind, each.component) for each in found}) == len(found)
        return {each.kind: each for each in found}


def counting(port: RdmaPort = PORT, **counters: int) -> RdmaPort:
    return replace(port, counters=counters)


def event(kind: RdmaEventKind, wall_ns: int = 0, text: str = "") -> RdmaEvent:
    return RdmaEvent("mlx5_0", kind, wall_ns, text)


def test_a_device_that_works_is_no_finding():
    bench = Bench()
    assert bench.see(PORT) == bench.see(PORT) == {}


# --- down ---------------------------------------------------------------------------------------


def test_a_port_that_is_not_active_is_down():
    bench = Bench()
    found = bench.see(DOWN)[FindingKind.RNIC_DOWN]
    assert str(found.component) == "rnic h0/mlx5_0"
    assert found.text == "mlx5_0 port 1 is DOWN (physical state Disabled)"
    assert found.evidence == {"port": "1", "state": "DOWN", "netdevs": "eth0"}
    assert bench.see(PORT) == {}


@pytest.mark.parametrize(("seen", "text"), [(True, "was removed"), (False, "does not exist")])
def test_a_device_that_is_not_there_is_down(seen, text):
    bench = Bench()
    if seen:
        bench.see(PORT)
    found = bench.see()
    assert list(found) == [FindingKind.RNIC_DOWN]
    assert found[FindingKind.RNIC_DOWN].text == f"mlx5_0 {text}"
    assert bench.see(PORT) == {}


def test_a_state_that_cannot_be_read_is_no_finding():
    assert Bench().see(replace(PORT, state="", phys_state="", gids=None)) == {}


def test_a_finding_says_since_when_it_holds():
    bench = Bench()
    since = bench.see(DOWN)[FindingKind.RNIC_DOWN].wall_ns
    assert bench.see(DOWN)[FindingKind.RNIC_DOWN].wall_ns == since == 10**18 + S
    bench.see(PORT)
    assert bench.see(DOWN)[FindingKind.RNIC_DOWN].wall_ns == since + 3 * S


# --- flapping -----------------------------------------------------------------------------------


def test_two_outages_are_flapping_and_one_is_not():
    bench = Bench()
    for port in (PORT, DOWN, PORT):
        assert FindingKind.RNIC_FLAPPING not in bench.see(port)
    assert bench.see(DOWN)[FindingKind.RNIC_FLAPPING].evidence == {"outages": "2"}
    assert FindingKind.RNIC_FLAPPING in bench.see(PORT)
    assert bench.see(PORT, after_ns=FLAP_HOLD_NS) == {}


def test_the_driver_s_counter_has_the_outages_between_two_sights():
    bench = Bench()
    bench.see(counting(link_downed=4))
    assert FindingKind.RNIC_FLAPPING in bench.see(counting(link_downed=6))


def test_one_outage_seen_told_and_counted_is_one():
    bench = Bench()
    bench.see(counting(link_downed=0))
    told = (event(RdmaEventKind.PORT_DOWN), event(RdmaEventKind.PORT_DOWN))
    bench.see(counting(DOWN, link_downed=0), told=told)
    bench.see(counting(DOWN, link_downed=1))
    assert bench.see(counting(link_downed=1), told=(event(RdmaEventKind.PORT_UP),)) == {}


def test_outages_that_only_events_tell_of_are_flapping():
    bench = Bench()
    bench.see(PORT)
    down, up = RdmaEventKind.PORT_DOWN, RdmaEventKind.PORT_UP
    # Two contexts were told of both outages, and handed them over one after the other.
    told = tuple(event(kind, at) for kind, at in ((down, 0), (down, 2), (up, 1), (up, 3)))
    assert FindingKind.RNIC_FLAPPING in bench.see(PORT, told=told)


def test_an_outage_long_ago_does_not_hide_one_that_was_only_counted():
    """A removal is seen, and no counter has it."""
    bench = Bench()
    bench.see(counting(link_downed=0))
    bench.see()
    bench.see(counting(link_downed=0))
    bench.see(counting(link_downed=0), after_ns=SETTLE_NS)
    assert FindingKind.RNIC_FLAPPING in bench.see(counting(link_downed=1))


def test_outages_further_apart_than_the_span_are_no_flapping():
    bench = Bench()
    for port in (PORT, DOWN, PORT, DOWN, PORT, DOWN):
        assert FindingKind.RNIC_FLAPPING not in bench.see(port, after_ns=FLAP_SPAN_NS // 2 + 1)


# --- GIDs ---------------------------------------------------------------------------------------


def test_a_gid_that_is_gone_is_told_of_and_clears_when_it_is_back():
    bench = Bench()
    bench.see(PORT)
    other = Gid(1, "::ffff:10.0.0.99", "RoCE v2", "eth0")
    found = bench.see(replace(PORT, gids=(LINK_LOCAL, other)))[FindingKind.GID_CHANGED]
    assert (
        found.text
        == f"c/rail0 was announced with {GID}, which is no longer a RoCE v2 GID of mlx5_0"
    )
    assert found.evidence["::ffff:10.0.0.99"] == "index 1, RoCE v2"
    assert bench.see(PORT) == {}


def test_a_gid_of_another_type_does_not_carry_roce_v2():
    v1 = replace(PORT, gids=(LINK_LOCAL, Gid(1, GID, "IB/RoCE v1", "eth0")))
    assert list(Bench().see(v1)) == [FindingKind.GID_CHANGED]


def test_a_gid_on_another_port_of_the_device_moved_there():
    bench = Bench()
    away = RdmaDevice("mlx5_0", ports=(replace(PORT, gids=(LINK_LOCAL,)), replace(PORT, port=2)))
    (found,) = bench.watch.observe([RNIC], {"mlx5_0": away}, now_ns=0, wall_ns=0)
    assert found.text == f"c/rail0 was announced with {GID}, which is now on port 2"


def test_a_gid_at_another_index_moved_until_the_endpoint_is_opened_anew():
    bench = Bench()
    bench.see(PORT)
    moved = replace(PORT, gids=(LINK_LOCAL, Gid(3, GID, "RoCE v2", "eth0")))
    text = bench.see(moved)[FindingKind.GID_CHANGED].text
    assert text == f"{GID} of c/rail0 moved from index 1 to 3"
    bench.watched = (replace(RNIC, qpns=(18,)),)
    assert bench.see(moved) == {}


def test_a_removed_device_is_not_also_one_whose_gid_changed():
    bench = Bench()
    bench.see(PORT)
    assert list(bench.see()) == [FindingKind.RNIC_DOWN]


def test_two_endpoints_of_one_device_are_one_finding():
    other = replace(RNIC, endpoint=EndpointId("d", 0), gid="::ffff:10.0.0.20")
    text = Bench(RNIC, other).see(replace(PORT, gids=(LINK_LOCAL,)))[FindingKind.GID_CHANGED].text
    assert "c/rail0" in text
    assert "; d/rail0" in text


# --- MTU ----------------------------------------------------------------------------------------


def test_an_active_mtu_below_what_the_interface_allows_is_wrong():
    bench = Bench(replace(RNIC, mtu_bytes=9000))
    text = bench.see(PORT)[FindingKind.WRONG_MTU].text
    assert text == "mlx5_0 has an active MTU of 1024, but its interface's MTU of 9000 allows 4096"
    assert bench.see(replace(PORT, active_mtu_bytes=4096)) == {}


def test_an_active_mtu_below_that_of_the_container_s_other_rnic_is_wrong():
    bench = Bench(RNIC, replace(SECOND, mtu_bytes=None))
    larger = replace(
        PORT, device="mlx5_1", active_mtu_bytes=4096, gids=(Gid(1, SECOND.gid, "RoCE v2"),)
    )
    found = bench.see(PORT, larger)[FindingKind.WRONG_MTU]
    assert str(found.component) == "rnic h0/mlx5_0"
    assert found.text == "mlx5_0 has an active MTU of 1024, but another RNIC of c has 4096"
    assert bench.see(PORT, replace(larger, active_mtu_bytes=1024)) == {}


def test_the_mtu_of_a_port_that_is_down_or_unknown_says_nothing():
    bench = Bench(replace(RNIC, mtu_bytes=9000))
    assert FindingKind.WRONG_MTU not in bench.see(DOWN)
    assert bench.see(replace(PORT, active_mtu_bytes=None)) == {}


# --- counters and errors --------------------------------------------------------------------------


def test_bad_bits_are_quoted_and_clear_when_they_stop():
    bench = Bench()
    bench.see(counting(symbol_error=5, rx_crc_errors=0))
    found = bench.see(counting(symbol_error=8, rx_crc_errors=1))[FindingKind.RNIC_ERRORS]
    assert found.text == "rx_crc_errors grew by 1, symbol_error grew by 3 within 1.0 s"
    assert found.evidence == {"rx_crc_errors": "+1 in 1.0 s", "symbol_error": "+3 in 1.0 s"}
    assert FindingKind.RNIC_ERRORS in bench.see(
        counting(symbol_error=8, rx_crc_errors=1), after_ns=SPAN_NS - 1
    )
    assert bench.see(counting(symbol_error=8, rx_crc_errors=1), after_ns=1) == {}


def test_a_device_made_anew_starts_counting_from_nought():
    bench = Bench()
    bench.see(counting(symbol_error=0))
    bench.see()
    assert bench.see(counting(symbol_error=7)) == {}


@pytest.mark.parametrize(
    ("kind", "counter"),
    [
        (FindingKind.RNIC_RETRANSMITS, "local_ack_timeout_err"),
        (FindingKind.RNIC_RETRANSMITS, "completer_retry_err"),
        (FindingKind.RNIC_RNR, "rnr_nak_retry_err"),
        (FindingKind.RNIC_RNR, "rcvd_rnr_err"),
    ],
)
def test_a_rate_of_retransmissions_is_told_of_and_a_few_are_not(kind, counter):
    bench = Bench()
    bench.see(counting(**{counter: 0}))
    assert bench.see(counting(**{counter: 99})) == {}
    found = bench.see(counting(**{counter: 100}))[kind]
    assert found.evidence == {counter: "+100 in 2.0 s"}
    # The first 99 leave the span first.
    assert bench.see(counting(**{counter: 100}), after_ns=SPAN_NS - S) == {}


def test_counters_that_say_nothing_of_health_are_no_finding():
    bench = Bench()
    bench.see(counting(rcvd_pkts=0, np_cnp_sent=0))
    assert bench.see(counting(rcvd_pkts=10**6, np_cnp_sent=10**6)) == {}


@pytest.mark.parametrize("kind", [RdmaEventKind.QP_ERROR, RdmaEventKind.DEVICE_FATAL])
def test_an_error_that_the_device_told_of_is_held_for_a_while(kind):
    bench = Bench()
    found = bench.see(PORT, told=(event(kind, text="local QP operation error"),))
    assert found[FindingKind.RNIC_ERRORS].text == f"mlx5_0 told of {kind}: local QP operation error"
    assert FindingKind.RNIC_ERRORS in bench.see(PORT, after_ns=SPAN_NS - 1)
    assert bench.see(PORT, after_ns=1) == {}


def test_events_of_devices_nobody_watches_are_passed_over():
    stranger = RdmaEvent("mlx5_7", RdmaEventKind.DEVICE_FATAL, 0)
    assert Bench().see(PORT, told=(stranger,)) == {}


def test_a_device_nobody_watches_any_more_is_forgotten():
    bench = Bench()
    bench.see(counting(symbol_error=0))
    bench.watched = ()
    assert bench.see() == {}
    bench.watched = (RNIC,)
    assert bench.see(counting(symbol_error=9)) == {}


# --- whatever happens, in whatever order ---------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """No finding without its cause, none once the cause has been away for long enough."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.port: RdmaPort | None = PORT
        self.errors = 0
        self.last_error_ns: int | None = None
        self.downs_ns: list[int] = []
        self.baseline: int | None = None
        self.look()

    def look(self, after_ns: int = S) -> None:
        ports = [counting(self.port, symbol_error=self.errors % 2**32)] if self.port else []
        if self.baseline is not None and ports and self.errors > self.baseline:
            self.last_error_ns = self.bench.now_ns + after_ns
        self.found = self.bench.see(*ports, after_ns=after_ns)
        self.baseline = self.errors if ports else None

    def went(self, port: RdmaPort | None) -> None:
        was_up = self.port is not None and self.port.state == "ACTIVE"
        is_up = port is not None and port.state == "ACTIVE"
        self.port = port
        if was_up and not is_up:
            self.downs_ns.append(self.bench.now_ns + S)
        self.look()

    @rule()
    def port_down(self):
        self.went(replace(self.port or PORT, state="DOWN", phys_state="Disabled"))

    @rule()
    def port_up(self):
        self.went(replace(self.port or PORT, state="ACTIVE"))

    @rule()
    def removed(self):
        self.went(None)

    @rule()
    def gid_away(self):
        self.went(replace(self.port or PORT, gids=(LINK_LOCAL,)))

    @rule()
    def gid_back(self):
        self.went(replace(self.port or PORT, gids=PORT.gids))

    @rule(count=st.integers(1, 2**30 - 1))
    def bad_bits(self, count):
        self.errors += count
        self.look()

    @rule(after_ns=st.integers(1, 2 * SPAN_NS))
    def time_passes(self, after_ns):
        self.look(after_ns)

    @invariant()
    def down_if_and_only_if_not_active(self):
        up = self.port is not None and self.port.state == "ACTIVE"
        assert (FindingKind.RNIC_DOWN in self.found) == (not up)

    @invariant()
    def gid_changed_if_and_only_if_it_is_away(self):
        away = self.port is not None and self.port.find(GID) is None
        assert (FindingKind.GID_CHANGED in self.found) == away

    @invariant()
    def errors_if_and_only_if_some_were_counted_lately(self):
        now_ns = self.bench.now_ns
        lately = self.last_error_ns is not None and now_ns - self.last_error_ns < SPAN_NS
        assert (FindingKind.RNIC_ERRORS in self.found) == lately

    @invariant()
    def flapping_needs_outages_close_to_each_other(self):
        if FindingKind.RNIC_FLAPPING not in self.found:
            return
        now_ns, last = self.bench.now_ns, self.downs_ns[-FLAP_DOWNS:]
        assert len(last) == FLAP_DOWNS
        assert last[-1] - last[0] <= FLAP_SPAN_NS
        assert now_ns - last[-1] < FLAP_HOLD_NS

    @invariant()
    def nothing_else_is_found(self):
        assert self.found.keys() <= {
            FindingKind.RNIC_DOWN,
            FindingKind.RNIC_FLAPPING,
            FindingKind.GID_CHANGED,
            FindingKind.RNIC_ERRORS,
        }


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(stateful_step_count=40)
