# SPDX-License-Identifier: Apache-2.0
"""How packets of the overlay are wrapped for the underlay."""

from collections.abc import Mapping
from dataclasses import dataclass

from netagent.model.address import is_six

ETHERNET_BYTES = 14
UDP_BYTES = 8
TUNNEL_BYTES = 8
"""VXLAN's header, and Geneve's without options (RFC 7348, section 5; RFC 8926, section 3.4)."""
IP_BYTES = {4: 20, 6: 40}
"""By version, without options (RFC 791, RFC 8200)."""


@dataclass(frozen=True, slots=True, order=True)
class Encapsulation:
    """A kind of tunnel, and the UDP port that it arrives at."""

    kind: str
    """As Open vSwitch has it: ``vxlan``, ``geneve``."""
    port: int


VXLAN = Encapsulation("vxlan", 4789)
GENEVE = Encapsulation("geneve", 6081)
KNOWN: Mapping[str, Encapsulation] = {each.kind: each for each in (VXLAN, GENEVE)}
"""What outer headers are read of, at the ports that IANA assigned (RFC 7348, RFC 8926)."""


def ip_bytes(address: str) -> int:
    """Return how long the IP header is, without options, of a packet that `address` sends."""
    return IP_BYTES[6 if is_six(address) else 4]


def overhead_bytes(address: str) -> int:
    """Return by how much an outer IP packet is larger than the inner one, without options.

    `address` is the tunnel's own, which says whether the underlay is IPv4 or IPv6.
    """
    return ip_bytes(address) + UDP_BYTES + TUNNEL_BYTES + ETHERNET_BYTES
