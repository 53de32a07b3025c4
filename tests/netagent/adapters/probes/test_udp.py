# SPDX-License-Identifier: Apache-2.0
"""The UDP transport between two real namespaces: stamps, refusals, and no lost replies."""

import secrets
import select
import subprocess
from contextlib import closing

import pytest

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.probes import udp
from netagent.wire import frame
from netagent.wire.frame import Frame
from tests.conftest import NETNS, require

pytestmark = pytest.mark.netns
PORT = 18515
ADDRESSES = {4: ("10.9.0.1", "10.9.0.2"), 6: ("fd00:9::1", "fd00:9::2")}
HEADERS = {4: 28, 6: 48}


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(params=[4, 6])
def version(request):
    """Return the version of IP."""
    return request.param


@pytest.fixture
def right_address(version):
    return ADDRESSES[version][1]


@pytest.fixture
def pair(version):
    """Two namespaces joined by a veth, each with an open endpoint."""
    require(NETNS)
    tag = secrets.token_hex(3)
    names = [f"na-{tag}-l", f"na-{tag}-r"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "l0", "netns", names[0], "type", "veth", "peer", "name", "r0",
           "netns", names[1])  # fmt: skip
        flags = ("nodad",) if version == 6 else ()
        for name, device, address in zip(names, ("l0", "r0"), ADDRESSES[version], strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device, *flags)
            ip("-n", name, "link", "set", device, "up")
        if version == 6:  # the kernel asks for neighbours once it has seen the carrier
            ping = ("ping", "-q", "-i", "0.05", "-c", "1", "-w", "20", ADDRESSES[6][1])
            ip("netns", "exec", names[0], *ping)
        left, right = (
            udp.open_endpoint(f"/run/netns/{name}", address, port=PORT, flows=2)
            for name, address in zip(names, ADDRESSES[version], strict=True)
        )
        with closing(left), closing(right):
            yield left, right, names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def readable(socket, timeout_s=2.0, events=select.POLLIN):
    poll = select.poll()
    poll.register(socket, events)
    return bool(poll.poll(timeout_s * 1000))


def noticed(socket):
    assert readable(socket, events=0)  # POLLERR is always reported
    return list(iter(lambda: udp.notice(socket), None))


def test_both_kernels_stamp_a_probe(pair, version):
    left, right, _ = pair
    prober = left.probers[0]
    assert udp.send(prober, frame.encode(Frame(7, 1), size=1000), (ADDRESSES[version][1], PORT))
    (sent,) = noticed(prober)
    assert readable(right.responder)
    (arrived,) = iter(lambda: udp.receive(right.responder), None)
    assert frame.decode(sent.payload) == frame.decode(arrived.payload) == Frame(7, 1)
    assert sent.notice is udp.Notice.TRANSMITTED
    assert 0 < arrived.wall_ns - sent.wall_ns < 100_000_000
    assert arrived.address[:2] == (ADDRESSES[version][0], left.ports()[0])
    assert len(arrived.payload) == 1000


def test_a_missing_responder_refuses_and_the_next_probe_is_sent_all_the_same(pair, right_address):
    left, right, _ = pair
    right.responder.close()
    prober = left.probers[1]
    for seq in range(3):
        assert udp.send(prober, frame.encode(Frame(7, seq)), (right_address, PORT))
        seen = set()
        while len(seen) < 2:
            seen |= {(n.notice, frame.decode(n.payload).seq) for n in noticed(prober)}
        assert seen == {(udp.Notice.TRANSMITTED, seq), (udp.Notice.REFUSED, seq)}


def test_what_does_not_fit_is_refused_by_the_local_kernel(pair, version, right_address):
    left, _, _ = pair
    fits = 1500 - HEADERS[version]
    assert not udp.send(left.probers[0], bytes(fits + 1), (right_address, PORT))
    assert udp.send(left.probers[0], bytes(fits), (right_address, PORT))


def test_an_address_of_the_other_version_is_refused_by_the_local_kernel(pair, version):
    left, _, _ = pair
    assert not udp.send(left.probers[0], bytes(24), (ADDRESSES[10 - version][1], PORT))


def test_an_address_that_is_not_there_cannot_be_opened(pair, version):
    _, _, names = pair
    absent = ADDRESSES[version][1]
    with pytest.raises(OSError, match="assign requested address"):
        udp.open_endpoint(f"/run/netns/{names[0]}", absent, port=PORT, flows=1)


def test_a_path_that_leads_elsewhere_now_is_refused(pair):
    _, _, names = pair
    with pytest.raises(FileNotFoundError):
        call_in_namespace(f"/run/netns/{names[0]}", lambda: None, inode=1)
    with pytest.raises(FileNotFoundError):
        call_in_namespace("/run/netns/na-nowhere", lambda: None)
