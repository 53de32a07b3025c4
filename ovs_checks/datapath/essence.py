# SPDX-License-Identifier: Apache-2.0
"""What counts of a datapath's actions, and whether two say the same."""

import re
from collections.abc import Mapping

from ovs_checks.openflow.action_text import StrayError, split
from ovs_checks.openflow.notation import integer

_VOLATILE = re.compile(r"\b(pid|recirc|recirc_id|dont_send)[=(][^,)]*")
_TUNNEL = re.compile(r"^set\(tunnel\((.*)\)\)$")
_TOKEN = re.compile(r"[^(),]+")
_SLOW = re.compile(r"\bslow_path\(([^()]*)\)")
_DECISIVE = ("recirc", "ct(", "ct_clear", "userspace", "drop", "push_", "pop_", "trunc")


def essence(actions: str, names: Mapping[str, int], *, exact: bool) -> tuple[str, ...]:
    """Return what counts of a datapath's actions, so that two ways of saying it are equal.

    Ports are numbers, recirculations and sockets have none, a tunnel is its key and remote. Unless
    `exact`, only what decides where packets go: tc orders and merges rewrites in its own way. A
    handover to the slow path is its reasons, whether a meter is before it or not.
    """
    numbered = _TOKEN.sub(lambda m: str(names.get(m[0], m[0])), actions)
    try:
        words = [numbered[begin:end] for begin, end in split(numbered)]
    except StrayError:
        return (numbered,)
    found = []
    for word in words:
        if slow := _SLOW.search(word):
            found.append(f"slow_path({','.join(sorted(slow[1].split(',')))})")
        elif tunnel := _TUNNEL.match(word):
            found.append(f"tunnel({_outer(tunnel[1])})")
        elif exact or word.isdigit() or word.startswith(_DECISIVE):
            found.append(_VOLATILE.sub(r"\1", word))
    return tuple(found)


def _outer(text: str) -> str:
    """Return a tunnel's key and remote; its whole text where that is not understood."""
    found = []
    try:
        for begin, end in split(text):
            key, _, value = text[begin:end].partition("=")
            if key == "tun_id":
                found.append(f"tun_id={integer(value)}")
            elif key in {"dst", "ipv6_dst"}:
                found.append(f"{key}={value}")
    except (StrayError, ValueError):
        return text
    return ",".join(sorted(found))
