# SPDX-License-Identifier: Apache-2.0
"""The copies of the flow tables below OpenFlow: the datapath's flows, and the filters of tc.

`ovs-appctl dpctl/dump-flows -m` prints the first, `tc -s filter show dev DEVICE ingress` the
second. Open vSwitch writes the datapath flow's ufid into the cookie of a filter's last action.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

Layer = Literal["ovs", "tc", "dpdk", "unknown"]


@dataclass(frozen=True, slots=True)
class Megaflow:
    """A flow of the datapath."""

    ufid: str
    """Empty where the dump was made without `-m`."""

    key: str
    """What it matches, as `in_port(2),eth(...),...`, masks included."""

    actions: str
    packets: int
    used_s: float | None
    """Seconds since a packet last used it; None for never."""

    layer: Layer = "unknown"
    """Who forwards by it: the software datapath, tc, or DPDK; unknown if the dump does not say."""

    offloaded: bool = False
    """Whether Open vSwitch reports it as offloaded to hardware, in part at least."""

    text: str = ""

    @property
    def in_port(self) -> str:
        """Name or number of the port of the datapath that it takes packets from."""
        found = _IN_PORT.search(self.key)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Filter:
    """A flower filter of a device, with its actions."""

    device: str
    pref: int
    """Filters are tried in this order; each mask has its own."""

    chain: int
    handle: str
    protocol: str = ""
    in_hw: bool = False
    skip_hw: bool = False
    ufid: str = ""
    """The datapath flow's id, from the cookie; empty for a filter that others made."""

    packets: int = 0
    hw_packets: int | None = None
    """Packets forwarded by hardware; None where tc does not count them apart."""

    installed_s: int | None = None
    used_s: int | None = None
    """Seconds since it was made, and since it was last used."""

    text: str = ""
    """The filter as dumped, in one line."""


@dataclass(frozen=True)
class Sample:
    """The lower layers at one moment."""

    wall_ns: int
    megaflows: tuple[Megaflow, ...] = ()
    filters: tuple[Filter, ...] = ()
    filters_ns: int = 0
    """When tc's answer was taken; 0 if there is none."""

    devices: frozenset[str] = frozenset()
    """Devices whose filters were dumped."""

    problems: tuple[str, ...] = ()
    """Lines of the dumps that could not be read."""

    @cached_property
    def by_ufid(self) -> Mapping[str, Megaflow]:
        """The datapath's flows by ufid."""
        return {one.ufid: one for one in self.megaflows if one.ufid}

    @cached_property
    def filters_by_ufid(self) -> Mapping[str, list[Filter]]:
        """Open vSwitch's filters by the ufid in their cookie."""
        found: dict[str, list[Filter]] = {}
        for one in self.filters:
            if one.ufid:
                found.setdefault(one.ufid, []).append(one)
        return found


# --- the datapath --------------------------------------------------------------------------------

_IN_PORT = re.compile(r"(?:^|,)in_port\(([^)/]*)")
_ACTIONS = re.compile(r"(?:^|,\s*)actions:")
_STATISTIC = re.compile(r",?\s*\b(packets|bytes|used|flags|offloaded|dp):([^,\s]*)")
_UFID = re.compile(r"^\s*ufid:([0-9a-f-]{36}),?\s*")


def parse_megaflows(text: str) -> tuple[tuple[Megaflow, ...], tuple[str, ...]]:
    """Read the output of `dpctl/dump-flows`: the flows, and lines that could not be read."""
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("flow-dump from"):
            continue
        one = _megaflow(line.strip())
        if one is None:
            problems.append(f"datapath: line {number}: {line.strip()[:100]}")
        else:
            found.append(one)
    return tuple(found), tuple(problems)


def _megaflow(line: str) -> Megaflow | None:
    actions = _ACTIONS.search(line)
    if actions is None:
        return None
    head, tail = line[: actions.start()], line[actions.end() :]
    ufid = _UFID.match(head)
    head = head[ufid.end() :] if ufid else head
    said = {m[1]: m[2] for m in _STATISTIC.finditer(head)}
    key = _STATISTIC.sub("", head).strip(", ")
    used = said.get("used", "never").removesuffix("s")
    try:
        return Megaflow(
            ufid[1] if ufid else "",
            key,
            tail.partition(", dp-extra-info:")[0].strip(),
            int(said.get("packets", 0)),
            None if used == "never" else float(used),
            _layer(said.get("dp", "")),
            said.get("offloaded", "no") in {"yes", "partial"},
            line,
        )
    except ValueError:
        return None


def _layer(text: str) -> Layer:
    match text:
        case "ovs" | "tc" | "dpdk":
            return text
    return "unknown"


# --- tc ------------------------------------------------------------------------------------------

_FILTER = re.compile(
    r"^filter\b.*?\bprotocol (\S+) pref (\d+) flower\b(?: chain (\d+))?(?: handle (\S+))?"
)
_COOKIE = re.compile(r"\bcookie ([0-9a-f]{32})\b")
_SENT = re.compile(r"^Sent (software |hardware |)\d+ bytes (\d+) pkt")
_AGE = re.compile(r"\b(installed|used) (\d+) sec")


def parse_filters(text: str, device: str) -> tuple[Filter, ...]:
    """Read the output of `tc -s filter show dev DEVICE ingress`: the flower filters."""
    found: list[Filter] = []
    current: Filter | None = None
    for line in text.splitlines():
        if line.startswith("filter "):
            if current is not None:
                found.append(current)
            head = _FILTER.match(line)
            # A filter comes twice: without a handle it is the mask's heading.
            current = None
            if head is not None and head[4] is not None:
                numbers = int(head[2]), int(head[3] or 0)
                current = Filter(device, *numbers, head[4], head[1], text=line.strip())
        elif current is not None and line.strip():
            current = _told(current, line.strip())
    if current is not None:
        found.append(current)
    return tuple(found)


def _told(one: Filter, line: str) -> Filter:
    """Return the filter with what one more line says of it."""
    one = replace(one, text=f"{one.text} {line}")
    if line in {"skip_hw", "not_in_hw"} or line.startswith("in_hw"):
        return replace(
            one, skip_hw=one.skip_hw or line == "skip_hw", in_hw=line.startswith("in_hw")
        )
    if sent := _SENT.match(line):
        packets = int(sent[2])
        if sent[1] == "hardware ":
            return replace(one, hw_packets=max(one.hw_packets or 0, packets))
        return one if sent[1] else replace(one, packets=max(one.packets, packets))
    if cookie := _COOKIE.search(line):
        return replace(one, ufid=ufid_of(cookie[1]))
    ages = dict(_ages(line))
    if "installed" in ages:
        return replace(one, installed_s=ages["installed"], used_s=ages.get("used"))
    return one


def _ages(line: str) -> Iterator[tuple[str, int]]:
    return ((m[1], int(m[2])) for m in _AGE.finditer(line))


def ufid_of(cookie: str) -> str:
    """Return the ufid whose bytes are the hex digits of a cookie: four little-endian words."""
    words = [bytes.fromhex(cookie[n : n + 8])[::-1].hex() for n in range(0, 32, 8)]
    joined = "".join(words)
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(joined[a:b] for a, b in pairwise(cuts))
