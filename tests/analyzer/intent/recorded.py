# SPDX-License-Identifier: Apache-2.0
"""OVN 23.03 with three chassis, as `ovsdb-client transact` and `ovs-ofctl dump-flows` told it.

Two rails, a router with a gateway, NAT and load balancers, ACLs with port groups and address sets
(one of them empty), DHCP, DNS, QoS, IPv6, a virtual port, and a switch that no chassis has.
"""

import json
import lzma
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.intent.selected import Selected, read

HOSTS = ("h1", "h2", "h3")
_FILE = Path(__file__).with_name("ovn-23.03.json.xz")


@cache
def told() -> dict[str, Any]:
    """Return all of it."""
    return dict(json.loads(lzma.decompress(_FILE.read_bytes())))


@cache
def selected() -> Selected:
    """Return what both databases said."""
    return read(told()["southbound"], told()["northbound"])


def installed(host: str) -> Counter[tuple[int, int]]:
    """Return how many flows of each cookie and metadata a host has."""
    return Counter((cookie, metadata) for cookie, _, metadata in told()["hosts"][host])


def tables(host: str) -> dict[int, set[int]]:
    """Return which cookies each table of a host has."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for cookie, table, _ in told()["hosts"][host]:
        found[table].add(cookie)
    return dict(found)
