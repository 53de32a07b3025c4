# SPDX-License-Identifier: Apache-2.0
"""Two hosts' walks, joined, against what becomes of real packets between two real Open vSwitches.

Endpoints have IPv6 addresses, and so have the ends of the tunnel.
"""

import contextlib
import dataclasses
import re
import subprocess
import time

import pytest

from netagent.commands.validate import _compared
from netagent.model.ids import EndpointId
from ovs_checks.lint.layers import layers_of
from ovs_checks.lint.packet import Conversation, crossed_by
from ovs_checks.openflow.addresses import udp_between
from ovs_checks.sources.vswitchd import Vswitchd
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Recorder
from ovs_checks.switch.underlay import Underlay
from ovs_checks.walk.pairs import Attached, Site, check_pair
from tests.conftest import OVS, ROOT, require
from tests.ovs.host import Host, run
from tests.waiting import wait_until

pytestmark = pytest.mark.ovs

VNI, PORT = 100, 18515
NAMES = "ab"
MACS = [f"02:00:00:00:00:{10 + n:02x}" for n in range(2)]
OVERLAY = [f"fd00::{10 + n:x}" for n in range(2)]
UNDERLAY = [f"fd30::{10 + n:x}" for n in range(2)]
ENDS = [EndpointId(name, 0) for name in NAMES]


@pytest.fixture(scope="module")
def hosts():
    require(ROOT)
    require(OVS)
    made = []
    try:
        made.extend(Host(rails=1) for _ in NAMES)
        _cable(*made)
        for n, one in enumerate(made):
            _attach(one, n)
            set_flows(one, n)
        wait_until(lambda: answered(made, 1), "neighbours on the underlay")
        stranger = ("tnl/neigh/set", "br-phy0", "fd30::99", "02:00:00:00:00:99")
        Vswitchd(made[0].rundir).command(*stranger)
        yield made
    finally:
        for one in made:
            one.close()


def _cable(one, other):
    """Lead from one host's RNIC to the other's."""
    inside, far = ("ip", "-n", one.fabric), ("ip", "-n", other.fabric)
    run(*inside, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", other.fabric)
    for fabric in (inside, far):
        run(*fabric, "link", "add", "wire", "type", "bridge")
        for device in ("port0", "cable"):
            run(*fabric, "link", "set", device, "master", "wire")
        for device in ("port0", "cable", "wire"):
            run(*fabric, "link", "set", device, "up")


def _attach(one, n):
    """Give a host its end of the tunnel, and its container's endpoint an IPv6 address."""
    one.ip("addr", "add", f"{UNDERLAY[n]}/64", "dev", "br-phy0", "nodad")
    options = (f'options:local_ip="{UNDERLAY[n].upper()}"', "options:remote_ip=flow")
    one.vsctl("set", "interface", "vxlan0", *options, "options:key=flow", "ofport_request=9")
    one.start_container(NAMES[n], octet=10 + n)
    one.vsctl("set", "interface", f"{NAMES[n]}-r0", "ofport_request=1")
    inside = ("ip", "-n", one.containers[NAMES[n]])
    run(*inside, "addr", "add", f"{OVERLAY[n]}/64", "dev", "eth0", "nodad")
    run(*inside, "neigh", "add", OVERLAY[1 - n], "lladdr", MACS[1 - n], "dev", "eth0")
    # Open vSwitch's own IPv6 datapath fills in no checksums that a veth left to hardware.
    run("ip", "netns", "exec", one.containers[NAMES[n]], "ethtool", "-K", "eth0", "tx", "off")
    target = f"unix:{one.rundir}/br-int.mgmt"
    wait_until(lambda: _numbered(target), "ports by their numbers")


def _numbered(target):
    try:
        shown = run("ovs-ofctl", "show", target)
    except RuntimeError:
        return False
    return {"1", "9"} <= set(re.findall(r"^ (\d+)\(", shown, re.MULTILINE))


def tunnelled(to, before=""):
    """Return the actions that send a packet into the tunnel."""
    return f"actions={before}set_field:{VNI}->tun_id,set_field:{to}->tun_ipv6_dst,output:9"


def set_flows(one, n, *more):
    """Have a host carry what its endpoint and the far one send each other, but for `more`."""
    mine, other = OVERLAY[n], UNDERLAY[1 - n]
    flows = (
        f"priority=9,in_port=1,ipv6,ipv6_src={mine},dl_dst={MACS[1 - n]} {tunnelled(other)}",
        f"priority=9,in_port=9,ipv6,tun_ipv6_src={other},ipv6_dst={mine} actions=output:1",
        *more,
    )
    subprocess.run(
        ["ovs-ofctl", "--bundle", "-O", "OpenFlow15", "add-flows",
         f"unix:{one.rundir}/br-int.mgmt", "-"],
        input="\n".join(["delete", *(f"add {flow}" for flow in flows), ""]),
        text=True, check=True, capture_output=True,
    )  # fmt: skip
    Vswitchd(one.rundir).command("revalidator/purge")


ECHO = (
    "import socket\n"
    "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
    f"s.bind(('{OVERLAY[1]}', {PORT})); print('ready', flush=True)\n"
    "while True: data, who = s.recvfrom(100); s.sendto(data, who)\n"
)
ASK = (
    "import socket\n"
    "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
    "s.bind(('{}', 40000)); s.settimeout(0.2)\n"
    "got = 0\n"
    "for n in range({}):\n"
    "    s.sendto(b'x%d' % n, ('{}', {}))\n"
    "    try: got += bool(s.recv(100))\n"
    "    except TimeoutError: pass\n"
    "print(got)\n"
)


def answered(hosts, count):
    """Return how many of so many datagrams come back."""
    with echoing(hosts) as ask:
        return ask(count)


@contextlib.contextmanager
def echoing(hosts):
    """Have one container send back what the other's asks; give what asks, and counts answers."""
    inside = [("ip", "netns", "exec", one.containers[name], "python3", "-c")
              for one, name in zip(hosts, NAMES, strict=True)]  # fmt: skip
    echo = subprocess.Popen([*inside[1], ECHO], stdout=subprocess.PIPE, text=True)
    try:
        assert echo.stdout.readline() == "ready\n"
        yield lambda count: int(run(*inside[0], ASK.format(OVERLAY[0], count, OVERLAY[1], PORT)))
    finally:
        echo.kill()
        echo.wait()
        echo.stdout.close()


def site(one, n):
    at = Attached(f"{NAMES[n]}-r0", OVERLAY[n], MACS[n], 1450)
    return Site(Vswitchd(one.rundir).snapshot(f"h{n}"), {ENDS[n]: at}, Underlay())


def checked(hosts):
    sites = [site(one, n) for n, one in enumerate(hosts)]
    return check_pair(sites, *ENDS, source_port=40000, port=PORT)


def test_a_pair_that_is_told_to_arrive_does(hosts):
    for n, one in enumerate(hosts):
        set_flows(one, n)
    pair = checked(hosts)
    assert pair.delivered, (pair.there.tree(), pair.back.tree())
    assert answered(hosts, 20) == 20


DROPPED = f"priority=20,in_port=9,ipv6,tun_id={VNI},tun_ipv6_dst={UNDERLAY[1]} actions=drop"
ELSEWHERE = f"priority=20,in_port=1,ipv6 {tunnelled('fd30::99')}"
REWRITTEN = tunnelled(UNDERLAY[0], "set_field:fd00::99->ipv6_dst,")
REWRITTEN = f"priority=20,in_port=1,udp6,ipv6_dst={OVERLAY[0]} {REWRITTEN}"
BACK = "priority=20,in_port=9,ipv6,ipv6_src=fd00::/16,tun_ipv6_src=fd30::/64 actions=output:9"


@pytest.mark.parametrize(
    ("at", "flow", "way", "outcome", "component"),
    [
        (1, DROPPED, "there", "dropped", "flow h1/br-int/table=0"),
        (0, ELSEWHERE, "there", "wrong_tunnel", "flow h0/br-int/table=0"),
        (1, REWRITTEN, "back", "missed", "flow h0/br-int/table=0"),
        (0, BACK, "back", "dropped", "flow h0/br-int/table=0"),
    ],
    ids=["dropped by outer address", "sent elsewhere", "rewritten", "sent back"],
)
def test_what_is_told_not_to_arrive_does_not(hosts, at, flow, way, outcome, component):
    for n, one in enumerate(hosts):
        set_flows(one, n, *([flow] if n == at else []))
    pair = checked(hosts)
    reach = getattr(pair, way)
    assert (reach.outcome, str(reach.component)) == (outcome, component), reach.tree()
    assert answered(hosts, 3) == 0


def test_the_copies_of_the_tables_are_compared_for_the_pair_and_agree(hosts):
    """What the datapath says of a tunnel over IPv6 is found, both ways, and judged."""
    for n, one in enumerate(hosts):
        set_flows(one, n)
    near, far = ((MACS[n], OVERLAY[n]) for n in range(2))
    ports = {"source_port": 40000, "destination_port": PORT}
    out, back = udp_between(near, far, **ports), udp_between(far, near, **ports)
    talk = Conversation("a-r0", out, back, *UNDERLAY)
    live = Vswitchd(hosts[0].rundir)
    recorder = Recorder(live, "h0", time.time_ns)
    snapshot = assemble(recorder, "h0", wall_ns=time.time_ns())
    with echoing(hosts) as ask:
        assert ask(20) == 20
        found = _compared(recorder, snapshot, talk, live.trace)
    assert (found.findings, found.unread) == ((), ())
    assert (found.flows, found.judged) == (2, 2)
    stranger = dataclasses.replace(talk, there="fd30::99")
    entrances = crossed_by(layers_of(recorder.bundle(), snapshot), stranger, VNI)
    assert [one.in_port for one in entrances.flows] == ["a-r0"]
