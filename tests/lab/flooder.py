# SPDX-License-Identifier: Apache-2.0
"""Overflow the upcall queue of a virtual switch: bursts of frames, each to a new destination.

A burst is one TCP super-packet, which the kernel cuts into hundreds of frames on its way. Until
ovs-vswitchd has answered for the first, each of them asks. Run by the lab as a background
process, bounded in time and bursts: ``python -m tests.lab.flooder --help``.
"""

import argparse
import os
import random
import socket
import struct
import time

from tests.lab.namespaces import in_thread
from tests.lab.processes import AT_WORK

_SOL_PACKET, _PACKET_VNET_HDR = 263, 15  # linux/if_packet.h
_NEEDS_CHECKSUM, _GSO_TCPV4 = 1, 1  # linux/virtio_net.h
_ETHERNET_BYTES, _IP_BYTES, _TCP_BYTES = 14, 20, 20
_SEGMENT_BYTES, _SEGMENTS = 64, 900


def burst(source_mac: bytes, address: str, chance: random.Random) -> bytes:
    """Return a super-packet to a random destination, as a packet socket with GSO takes it."""
    headers = _ETHERNET_BYTES + _IP_BYTES + _TCP_BYTES
    gso = struct.pack(
        "=BBHHHH",
        *(_NEEDS_CHECKSUM, _GSO_TCPV4, headers, _SEGMENT_BYTES),
        *(_ETHERNET_BYTES + _IP_BYTES, 16),  # where the TCP checksum starts and lies
    )
    destination = b"\x06" + chance.randbytes(5)  # locally administered, never one of the lab's
    ethernet = destination + source_mac + b"\x08\x00"
    payload = bytes(_SEGMENT_BYTES * _SEGMENTS)
    length = _IP_BYTES + _TCP_BYTES + len(payload)
    addresses = socket.inet_aton(address) + socket.inet_aton("10.255.0.1")
    ip = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 6, 0) + addresses
    ports = (chance.randrange(1024, 65536), 9)
    tcp = struct.pack("!HHIIBBHHH", *ports, 0, 0, _TCP_BYTES // 4 << 4, 0x10, 1024, 0, 0)
    return gso + ethernet + ip + tcp + payload


def flood(interface: str, mac: bytes, address: str, *, limit_s: float, limit_bursts: int) -> None:
    """Send bursts until a limit is reached."""
    chance = random.Random(0)
    end = time.monotonic() + limit_s
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        sender.bind((interface, 0))
        print(AT_WORK, flush=True)
        for _ in range(limit_bursts):
            if time.monotonic() > end:
                return
            try:
                sender.send(burst(mac, address, chance))
            except BlockingIOError:
                continue  # the interface's queue is full


def main() -> None:
    """Parse the arguments and flood."""
    parser = argparse.ArgumentParser(description="Send frames to ever new destinations.")
    parser.add_argument("--lab", required=True, metavar="DIR", help="the lab this belongs to")
    parser.add_argument("--namespace", required=True, help="'' for the initial one")
    parser.add_argument("--interface", required=True)
    parser.add_argument("--mac", required=True, help="of the interface")
    parser.add_argument("--address", required=True, help="of the interface")
    parser.add_argument("--processor", type=int, required=True, help="to run on")
    parser.add_argument("--limit-s", type=float, default=60, help="stop after this long")
    parser.add_argument("--limit-bursts", type=int, default=100_000, help="stop after so many")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.processor})
    mac = bytes.fromhex(options.mac.replace(":", ""))
    limits = {"limit_s": options.limit_s, "limit_bursts": options.limit_bursts}
    in_thread(options.namespace, lambda: flood(options.interface, mac, options.address, **limits))


if __name__ == "__main__":
    main()
