# SPDX-License-Identifier: Apache-2.0
"""Finds out what the kernel really lets this process do: by doing it, where that harms nobody."""

import asyncio
import ctypes
import os
import select
import socket
import ssl
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from netagent.adapters.peers.uplink import client_tls
from netagent.concurrency import timeout
from netagent.config import AgentConfig
from netagent.model.errors import CapabilityMissing
from netagent.trust import Trust

CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_NET_BROADCAST": 11,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_PTRACE": 19,
}
"""What the agent uses: netlink, raw sockets, events of and entry into other namespaces, /proc."""

_SO_TIMESTAMPING = 37
"""Socket option SO_TIMESTAMPING of asm-generic/socket.h."""
_MSG_ERRQUEUE = 0x2000
"""Flag MSG_ERRQUEUE of linux/socket.h: read the error queue, where transmit stamps come back."""
_STAMPS = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 11
"""SOF_TIMESTAMPING_ bits of linux/net_tstamp.h: TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID and
OPT_TSONLY."""
_STA_UNSYNC = 0x40
"""Bit STA_UNSYNC of `struct timex.status` (linux/timex.h): nothing disciplines the clock."""
_REPLY_S = 5.0
"""Seconds the analyzer has to answer a check. Chosen: a TLS handshake over a slow network fits."""
_TRIES = 10
"""Datagrams sent over loopback, spread evenly over the wait. Chosen: the first ones may come
without stamps."""


def missing_privileges(status: str | None = None) -> list[str]:
    """Return which of `CAPABILITIES` this process lacks, from the text of /proc/self/status."""
    text = Path("/proc/self/status").read_text(encoding="ascii") if status is None else status
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    effective = int(lines.get("CapEff", "0").strip(), 16)
    return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]


def timestamps(wait_s: float = 1.0) -> str:
    """Send datagrams over loopback and say which stamps the kernel put on them.

    Raises CapabilityMissing where one of the two does not come within `wait_s`.
    """
    sent = received = 0
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        for each in (sender, receiver):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _STAMPS)
        # The kernel begins to stamp what comes in a moment after the first socket asks for it
        # (a work item flips the switch), so the first datagrams may come without.
        for _ in range(_TRIES):
            sender.sendto(b"netagent", receiver.getsockname())
            received = _stamp(receiver, select.POLLIN, 0, wait_s / _TRIES)
            sent = _stamp(sender, select.POLLERR, _MSG_ERRQUEUE, wait_s / _TRIES)
            if sent and received:
                return f"software, TX and RX ({(received - sent) / 1e3:.0f} us over loopback)"
            select.select([], [], [], wait_s / _TRIES)
    which = " and ".join(name for name, ns in (("TX", sent), ("RX", received)) if not ns)
    remedy = "use a kernel with CONFIG_NETWORK_PHY_TIMESTAMPING and a driver that stamps"
    raise CapabilityMissing(f"{which} timestamps", remedy)


def _stamp(sock: socket.socket, event: int, flags: int, wait_s: float) -> int:
    """Return the software timestamp of the next message, in nanoseconds; 0 if there is none."""
    poll = select.poll()
    poll.register(sock, event)
    if not poll.poll(wait_s * 1e3):
        return 0
    with suppress(BlockingIOError):
        _, ancillary, _, _ = sock.recvmsg(256, 512, flags)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING:
                seconds, nanoseconds = struct.unpack_from("=qq", data)
                return int(seconds * 1_000_000_000 + nanoseconds)
    return 0


def packet_socket() -> str:
    """Open and close an AF_PACKET socket; raises CapabilityMissing where that is not allowed."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError as error:
        raise CapabilityMissing("AF_PACKET", f"give CAP_NET_RAW ({error.strerror})") from error
    return "raw packets can be captured"


def clock_synchronised() -> str:
    """Say by how much the clock may be wrong; raises CapabilityMissing if nobody disciplines it."""
    timex = (ctypes.c_long * 64)()  # struct timex is shorter; modes = 0 only reads
    ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    max_error_us, status = timex[3], timex[5] & 0xFFFFFFFF
    if status & _STA_UNSYNC:
        raise CapabilityMissing("clock synchronisation", "run chrony, ntpd or ptp4l + phc2sys")
    return f"synchronised, at most {max_error_us / 1e3:.1f} ms off"


def writable(folder: str) -> str:
    """Write and remove a file in `folder`; raises CapabilityMissing where that fails."""
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"netagent")
        space = os.statvfs(folder)
    except OSError as error:
        remedy = f"make {folder} writable ({error.strerror})"
        raise CapabilityMissing("state folder", remedy) from error
    return f"{folder}, {space.f_bavail * space.f_frsize >> 20} MiB free"


def certificate(config: AgentConfig, now_s: float) -> str:
    """Say until when this host's certificate holds; raises CapabilityMissing where it does not.

    ConfigError where its files cannot be used.
    """
    if config.tls is None:
        return "none: plain HTTP"
    trust = Trust(config.tls)
    until = time.strftime("%Y-%m-%d", time.gmtime(trust.expires_s))
    if not trust.began_s <= now_s < trust.expires_s:
        remedy = f"enrol again, or set the clock: it holds until {until}"
        raise CapabilityMissing("certificate", remedy)
    if trust.key_is_open:
        raise CapabilityMissing("certificate", f"chmod 600 {config.tls.key}: others may read it")
    renews = "renewed by itself" if config.tls.cert == config.tls.key else "renewed by you"
    return f"until {until}, {renews}; {len(trust.revoked)} others revoked"


def rings(folder: str) -> str:
    """Say how many jobs' rings are in `folder`; raises CapabilityMissing where it is not there."""
    try:
        names = [each for each in Path(folder).iterdir() if each.suffix == ".ring"]
    except OSError as error:
        remedy = f"start the agent, or make {folder} with mode 1777 ({error.strerror})"
        raise CapabilityMissing("operators", remedy) from error
    return f"{len(names)} processes record into {folder}"


def uprobes() -> str:
    """Say that functions of libraries can be watched; raises CapabilityMissing where not."""
    events = Path("/sys/kernel/tracing/uprobe_events")
    if not events.exists():
        remedy = "mount -t tracefs tracefs /sys/kernel/tracing, with CONFIG_UPROBE_EVENTS"
        raise CapabilityMissing("uprobes", remedy)
    if not os.access(events, os.W_OK) or os.geteuid():
        raise CapabilityMissing("uprobes", "run the agent as root")
    return "gloo and NCCL can be watched"


async def analyzer_answers(config: AgentConfig) -> str:
    """Speak one line of HTTP with the analyzer, and TLS before; raises CapabilityMissing."""
    parts = urlsplit(config.analyzer.url)
    port = parts.port or (443 if config.analyzer.encrypted else 80)
    context = client_tls(config.tls) if config.analyzer.encrypted else None
    try:
        async with timeout(_REPLY_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                # A server that rejects our certificate says so only now, in TLS 1.3.
                status = await reader.readline()
            finally:
                writer.close()
                with suppress(OSError, ssl.SSLError):
                    await writer.wait_closed()
    except TimeoutError as error:
        raise CapabilityMissing("analyzer", f"no answer from {config.analyzer.url}") from error
    except ssl.SSLError as error:
        raise CapabilityMissing("analyzer TLS", f"check [tls]: {error.reason or error}") from error
    except OSError as error:
        remedy = f"start it, or correct analyzer.url ({error.strerror or error})"
        raise CapabilityMissing("analyzer", remedy) from error
    if not status.startswith(b"HTTP/"):
        doubt = (
            ", or it refuses this certificate: revoked, or of another authority" if context else ""
        )
        raise CapabilityMissing("analyzer", f"no HTTP server at {config.analyzer.url}{doubt}")
    secured = "mutual TLS" if context else "plain HTTP"
    return f"{config.analyzer.url} answers over {secured}"
