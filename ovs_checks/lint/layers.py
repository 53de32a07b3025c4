# SPDX-License-Identifier: Apache-2.0
"""Whether the three copies of the truth agree: OpenFlow, the datapath, and hardware.

Each check is named and quotes all three: what the flow tables say (`intent`), the datapath's flow,
and the filter that tc holds for it. Where one is missing, the quote says so. Several samples show
what moves; with one sample, what only time can show is a note or not looked for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from netagent.model.errors import Unreachable
from netagent.model.path import Component, flow_table, vswitch
from ovs_checks.datapath.essence import essence
from ovs_checks.datapath.key import parse_key
from ovs_checks.datapath.layers import Filter, Megaflow, Sample, parse_filters, parse_megaflows
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import MalformedLine
from ovs_checks.switch.bundle import Answer
from ovs_checks.switch.shows import parse_datapath_ports
from ovs_checks.switch.snapshot import LOCAL, Port, Snapshot
from ovs_checks.translate.datapath import text_of
from ovs_checks.translate.translation import translate
from ovs_checks.walk.reach import entry

from .finding import Severity, TableFinding, run_checks

MAX_FINDINGS = 200
"""Findings of one check that are reported. Chosen: a switch that is wrong as a whole needs no
more."""

MAX_TRANSLATED = 20_000
"""Datapath flows held against the flow tables, those with the most packets first. Chosen: each is a
whole translation."""

ROCE_PORT = 4791
"""UDP port of RoCE v2 (InfiniBand Architecture Specification, annex A17)."""
BUSY_PACKETS = 100
"""Packets from which on a flow counts as busy. Chosen: a flow with fewer may be about to be
offloaded."""

IDLE_S = 10.0
"""Seconds without a packet after which Open vSwitch removes a flow: the default of
`other_config:max-idle`."""

MASKS_BEFORE = 8
"""Masks tried before the busiest filter from which on their order matters. Chosen: each costs
software one more lookup per packet."""
COLD_SHARE = 0.01
"""Share of a device's packets below which the masks before the busiest filter are in a bad order.
Chosen: they carry almost nothing."""


@dataclass(frozen=True)
class Layers:
    """The three copies of one host."""

    snapshot: Snapshot
    samples: tuple[Sample, ...]
    """At least one, in the order they were taken."""

    names: Mapping[str, int]
    """The datapath's ports by name."""

    changed: bool = False
    """Whether flow tables changed between the samples."""

    only: frozenset[str] | None = None
    """The ufids of the flows that are judged; None: all."""

    @cached_property
    def judged(self) -> tuple[Megaflow, ...]:
        """The newest sample's flows that are judged."""
        return tuple(one for one in self.last.megaflows if self.judges(one.ufid))

    def judges(self, ufid: str) -> bool:
        """Return whether the flow with this id is judged."""
        return self.only is None or ufid in self.only

    @property
    def last(self) -> Sample:
        """The newest sample."""
        return self.samples[-1]

    @property
    def offloads(self) -> bool:
        """Whether Open vSwitch is configured to offload at all."""
        return self.snapshot.config.get("hw-offload") == "true"

    @cached_property
    def filters(self) -> Mapping[str, list[Filter]]:
        """The newest sample's filters by ufid."""
        return self.last.filters_by_ufid

    def history(self, ufid: str) -> list[Megaflow]:
        """Return a datapath flow as each sample that has it shows it."""
        return [one for held in self._by_ufid if (one := held.get(ufid)) is not None]

    @cached_property
    def _by_ufid(self) -> list[Mapping[str, Megaflow]]:
        return [sample.by_ufid for sample in self.samples]


class Kept(Protocol):
    """Answers that may have been given several times."""

    def command(self, name: str, *arguments: str) -> str:
        """Return what a command of `ovs-appctl` printed; raises Unreachable if it is not held."""

    def samples(self, command: str) -> Sequence[Answer]:
        """Return all answers to a command line, in the order they were given."""


def layers_of(kept: Kept, snapshot: Snapshot) -> Layers:
    """Return the three copies that answers show, with a sample for each dump of the datapath.

    Raises
    ------
    Unreachable
        If no dump of the datapath is among them.
    """
    datapaths = sorted({bridge.datapath for bridge in snapshot.bridges})
    shown = [kept.command("dpctl/show", "-s", datapath) for datapath in datapaths]
    names = {name: number for text in shown for name, number in parse_datapath_ports(text).items()}
    dumps = [kept.samples(f"ovs-appctl dpctl/dump-flows -m {datapath}") for datapath in datapaths]
    own = {port.name for bridge in snapshot.bridges for port in bridge.ports if _is_own(port)}
    # Filters of what is sent by the host itself are not at a device's ingress.
    filters = {
        name: answers
        for name in names.keys() - own
        if (answers := kept.samples(f"tc -s filter show dev {name} ingress"))
    }
    count = max(map(len, dumps), default=0)
    if not count:
        raise Unreachable("datapath", "no dump of its flows (dpctl/dump-flows -m)")
    starts = [
        min(answers[n].wall_ns for answers in dumps if n < len(answers)) for n in range(count)
    ]
    samples = tuple(
        _sample(
            [answers[n] for answers in dumps if n < len(answers)],
            {
                name: one
                for name, answers in filters.items()
                if (one := _between(answers, start, end)) is not None
            },
        )
        for n, (start, end) in enumerate(pairwise([*starts, _NEVER]))
    )
    tables = [
        kept.samples(f"ovs-appctl bridge/dump-flows --offload-stats {bridge.name}")
        for bridge in snapshot.bridges
    ]
    changed = any(len({_COUNTED.sub("", one.text) for one in answers}) > 1 for answers in tables)
    return Layers(snapshot, samples, names, changed)


_NEVER = 1 << 63
"""Nanoseconds since the Unix epoch, later than all samples. Chosen: the year 2262."""
_COUNTED = re.compile(r"\b(duration|n_packets|n_bytes|n_offload_packets|n_offload_bytes)=[^,\s]*")


def _is_own(port: Port) -> bool:
    return port.type == "internal" or port.ofport == LOCAL


def _between(answers: Sequence[Answer], start: int, end: int) -> Answer | None:
    """Return the answer that was given with a sample, by time: some may lack."""
    return next((one for one in answers if start <= one.wall_ns < end), None)


def _sample(dumps: Sequence[Answer], filters: Mapping[str, Answer]) -> Sample:
    read = [parse_megaflows(answer.text) for answer in dumps]
    return Sample(
        dumps[0].wall_ns,
        tuple(one for megaflows, _ in read for one in megaflows),
        tuple(one for name, answer in filters.items() for one in parse_filters(answer.text, name)),
        min((answer.wall_ns for answer in filters.values()), default=0),
        frozenset(filters),
        tuple(problem for _, problems in read for problem in problems),
    )


@dataclass(frozen=True, slots=True)
class Intent:
    """What the flow tables make of the packets of a datapath flow."""

    actions: str
    """The actions in the datapath's notation."""

    flow: str = ""
    """The flow that ends it, as dumped, with its bridge and table."""

    unknown: str = ""
    """Why the actions are not known; empty if they are."""

    slow: tuple[str, ...] = ()
    """Why Open vSwitch itself takes these actions, packet by packet, as `action`; else empty."""

    table: Component | None = None
    """The table that holds that flow; None if no flow ended it."""

    @property
    def installed(self) -> str:
        """What the datapath is to do: these actions, or to hand packets to the slow path.

        No datapath rewrites ARP or the fields of ICMP (`commit_set_arp_action()`), so an ARP
        responder's flow is `userspace(pid=0,slow_path(action))` (`compose_slow_path()`).
        """
        return f"userspace(slow_path({','.join(self.slow)}))" if self.slow else self.actions

    @property
    def text(self) -> str:
        """What the datapath is to do, and what the slow path does then."""
        return f"{self.installed}, where {self.actions}" if self.slow else self.actions


def check(layers: Layers, names: Iterable[str] = ()) -> list[TableFinding]:
    """Run `CHECKS`, or those called `names`."""
    return run_checks(CHECKS, layers, names, at_most=MAX_FINDINGS)


def entered(layers: Layers, megaflow: Megaflow) -> tuple[str, Header]:
    """Return the bridge that a datapath flow's packets enter, and one of them.

    It is the one whose wildcarded fields are 0: all packets of a datapath flow are treated alike.

    Raises
    ------
    MalformedLine, LookupError
        If the flow is not understood, or no port takes its packets.
    """
    key = parse_key(megaflow.key)
    number = layers.names.get(key.in_port)
    key = key if number is None else replace(key, in_port=str(number))
    return entry(layers.snapshot, key)


def intent(layers: Layers, megaflow: Megaflow) -> Intent:
    """Return what today's flow tables make of a datapath flow's packets."""
    try:
        bridge, packet = entered(layers, megaflow)
    except (MalformedLine, LookupError) as e:
        return Intent("", unknown=str(e))
    done = translate(layers.snapshot, bridge, packet)
    flow = next((end.flow for end in reversed(done.ends) if end.flow), None)
    quoted = f"{flow.place}: {flow.text}" if flow else ""
    table = flow_table(layers.snapshot.host, flow.bridge, flow.table) if flow else None
    return Intent(text_of(done.steps), quoted, done.unknown, tuple(sorted(done.slow)), table)


def _quotes(
    layers: Layers, megaflow: Megaflow, meant: Intent | None = None
) -> list[tuple[str, str]]:
    """Quote the three copies of one flow."""
    meant = meant or intent(layers, megaflow)
    said = f"cannot tell: {meant.unknown}" if meant.unknown else meant.text
    held = layers.filters.get(megaflow.ufid, [])
    none = "no filter" if _dumped(layers, megaflow) else "filters were not dumped"
    return [
        ("intent", f"{said} by {meant.flow}" if meant.flow else said),
        ("datapath", megaflow.text),
        *(("hardware", f"{one.device}: {one.text}") for one in held),
        *([] if held else [("hardware", none)]),
    ]


def _dumped(layers: Layers, megaflow: Megaflow) -> bool:
    return megaflow.in_port in layers.last.devices


def _found(
    layers: Layers,
    name: str,
    severity: Severity,
    megaflow: Megaflow,
    text: str,
    meant: Intent | None = None,
) -> TableFinding:
    place = (meant.table if meant else None) or vswitch(layers.snapshot.host)
    return TableFinding(name, severity, place, text, tuple(_quotes(layers, megaflow, meant)))


# --- intent and datapath -------------------------------------------------------------------------


def stale(layers: Layers) -> Iterator[TableFinding]:
    """Find datapath flows that do something else than today's flow tables say.

    Open vSwitch mends those within a second; one that two samples show is stuck.
    """
    busiest = sorted(layers.judged, key=lambda one: -one.packets)
    untold: list[tuple[Megaflow, Intent]] = []
    for megaflow in busiest[:MAX_TRANSLATED]:
        meant = intent(layers, megaflow)
        if meant.unknown:
            untold.append((megaflow, meant))
            continue
        exact = megaflow.layer != "tc"
        ours, theirs = (
            essence(actions, layers.names, exact=exact)
            for actions in (meant.installed, megaflow.actions)
        )
        if ours != theirs:
            severity: Severity = "warning" if _is_stuck(layers, megaflow) else "note"
            text = f"the datapath does {megaflow.actions}, the flow tables say {meant.text}"
            yield _found(layers, "stale-megaflow", severity, megaflow, text, meant)
    if untold:
        megaflow, meant = untold[0]
        text = f"cannot tell for {len(untold)} of {len(busiest)} flows, such as: {meant.unknown}"
        yield _found(layers, "stale-megaflow", "note", megaflow, text, meant)


def _is_stuck(layers: Layers, megaflow: Megaflow) -> bool:
    """Tell whether every sample shows the same actions, while no table changed."""
    history = layers.history(megaflow.ufid) if megaflow.ufid else []
    same = len({one.actions for one in history}) == 1
    return len(history) == len(layers.samples) > 1 and same and not layers.changed


# --- datapath and hardware -----------------------------------------------------------------------


def not_offloaded(layers: Layers) -> Iterator[TableFinding]:
    """Find busy flows of the software datapath while others of their port are in hardware."""
    if not layers.offloads:
        return
    ports = {one.in_port for one in layers.last.megaflows if one.offloaded}
    for megaflow in layers.judged:
        if megaflow.layer != "ovs" or megaflow.offloaded or megaflow.in_port not in ports:
            continue
        if megaflow.packets < BUSY_PACKETS:
            continue
        why = "; it goes to userspace" if "userspace(" in megaflow.actions else ""
        text = (
            f"{_counted(layers, megaflow)} went through software, though other flows of "
            f"{megaflow.in_port} are in hardware{why}"
        )
        severity: Severity = (
            "warning" if (_moved(layers, megaflow) or 0) >= BUSY_PACKETS else "note"
        )
        yield _found(layers, "not-offloaded", severity, megaflow, text)


def _moved(layers: Layers, megaflow: Megaflow) -> int | None:
    """Return how many packets a flow took between the samples; None if only one shows it."""
    history = layers.history(megaflow.ufid)
    return max(0, history[-1].packets - history[0].packets) if len(history) > 1 else None


def _counted(layers: Layers, megaflow: Megaflow) -> str:
    moved = _moved(layers, megaflow)
    since = "" if moved is None else f", {moved} of them between the samples,"
    return f"{megaflow.packets} packets{since}"


def in_software(layers: Layers) -> Iterator[TableFinding]:
    """Find flows that tc holds, but the NIC does not."""
    policy = layers.snapshot.config.get("tc-policy", "none")
    if policy == "skip_hw" and layers.offloads:
        place = vswitch(layers.snapshot.host)
        text = "tc-policy=skip_hw keeps every flow out of the NIC"
        yield TableFinding("in-software", "warning", place, text)
        return
    for megaflow in layers.judged:
        for one in layers.filters.get(megaflow.ufid, ()) if megaflow.ufid else ():
            if not one.in_hw:
                believes = ", though Open vSwitch takes it for offloaded" * megaflow.offloaded
                severity: Severity = "warning" if layers.offloads else "note"
                text = f"the filter on {one.device} is not in the NIC{believes}"
                yield _found(layers, "in-software", severity, megaflow, text)


def missing_filter(layers: Layers) -> Iterator[TableFinding]:
    """Find flows that Open vSwitch takes for offloaded, and that tc does not hold."""
    for megaflow in layers.judged:
        claimed = megaflow.offloaded or megaflow.layer == "tc"
        if not claimed or megaflow.layer == "dpdk" or not megaflow.ufid:
            continue
        if _dumped(layers, megaflow) and megaflow.ufid not in layers.filters:
            lasting = all(
                megaflow.ufid in one.by_ufid and megaflow.ufid not in one.filters_by_ufid
                for one in layers.samples
            )
            text = f"Open vSwitch takes it for offloaded, but {megaflow.in_port} has no such filter"
            severity = _severity(layers, lasting=lasting)
            yield _found(layers, "missing-filter", severity, megaflow, text)


def orphan_filter(layers: Layers) -> Iterator[TableFinding]:
    """Find filters of Open vSwitch for flows that the datapath no longer has."""
    known = layers.last.by_ufid
    for ufid, filters in layers.filters.items():
        if ufid in known or not known or not layers.judges(ufid):
            continue
        lasting = all(ufid in s.filters_by_ufid and ufid not in s.by_ufid for s in layers.samples)
        place = vswitch(layers.snapshot.host)
        where = "the NIC" if any(one.in_hw for one in filters) else "tc"
        text = f"{where} forwards by a filter on {filters[0].device} that Open vSwitch forgot"
        quotes = (
            ("intent", f"unknown: flow {ufid} is gone"),
            ("datapath", "no flow"),
            *(("hardware", f"{one.device}: {one.text}") for one in filters),
        )
        severity = _severity(layers, lasting=lasting)
        yield TableFinding("orphan-filter", severity, place, text, quotes)


def _severity(layers: Layers, *, lasting: bool) -> Severity:
    """Return how much a state counts: the dumps of one sample are not of one moment."""
    return "warning" if lasting and len(layers.samples) > 1 else "note"


# --- over time -----------------------------------------------------------------------------------


def stale_counter(layers: Layers) -> Iterator[TableFinding]:
    """Find flows whose packets hardware counts and Open vSwitch does not: it will expire them."""
    for megaflow in layers.judged:
        history = layers.history(megaflow.ufid) if megaflow.ufid else []
        if len(history) < 2:
            continue
        first = next(one for one in layers.samples if megaflow.ufid in one.by_ufid)
        before = first.filters_by_ufid.get(megaflow.ufid)
        if before is None:
            continue
        then = sum(one.packets for one in before)
        now = sum(one.packets for one in layers.filters.get(megaflow.ufid, ()))
        if now > then and megaflow.packets == history[0].packets:
            idle = megaflow.used_s
            soon = idle is None or idle >= IDLE_S / 2
            text = (
                f"tc counted {now - then} packets that Open vSwitch did not; it takes the flow "
                f"for idle{f' since {idle:g} s' if idle is not None else ''}"
            )
            severity: Severity = "warning" if soon else "note"
            yield _found(layers, "stale-counter", severity, megaflow, text)


def churn(layers: Layers) -> Iterator[TableFinding]:
    """Find flows that are offloaded again and again."""
    for megaflow in layers.judged:
        if not megaflow.ufid:
            continue
        made, toggled = _reinstalled(layers, megaflow.ufid), _toggled(layers, megaflow.ufid)
        if made or toggled > 1:
            how = [f"made anew {made} times"] * bool(made)
            how += [f"in and out of hardware {toggled} times"] * (toggled > 1)
            severity: Severity = "warning" if made + toggled > 1 else "note"
            text = f"within {len(layers.samples)} samples its filter was {' and '.join(how)}"
            yield _found(layers, "offload-churn", severity, megaflow, text)


def _reinstalled(layers: Layers, ufid: str) -> int:
    """Count the samples whose filter is younger than the sample before."""
    count, before = 0, None
    for sample in layers.samples:
        filters = sample.filters_by_ufid.get(ufid)
        if not filters:
            continue
        age = filters[0].installed_s
        if before is not None and age is not None:
            count += age + 1 < (sample.filters_ns - before) / 1e9
        before = sample.filters_ns
    return count


def _toggled(layers: Layers, ufid: str) -> int:
    states = [one.offloaded for one in layers.history(ufid)]
    return sum(a != b for a, b in pairwise(states))


# --- order, RDMA ---------------------------------------------------------------------------------


def order(layers: Layers) -> Iterator[TableFinding]:
    """Find busy filters behind many masks that carry next to nothing: masks are tried in order."""
    chains: dict[tuple[str, int], list[Filter]] = {}
    for one in layers.last.filters:
        chains.setdefault((one.device, one.chain), []).append(one)
    known = layers.last.by_ufid
    for (device, chain), filters in chains.items():
        busiest = max(filters, key=lambda one: one.packets)
        earlier = [
            one
            for one in filters
            if one.pref < busiest.pref and one.protocol in {busiest.protocol, "all"}
        ]
        masks = len({one.pref for one in earlier})
        carried, total = (sum(one.packets for one in ones) for ones in (earlier, filters))
        megaflow = known.get(busiest.ufid)
        if busiest.packets < BUSY_PACKETS or not layers.judges(busiest.ufid):
            continue
        if masks >= MASKS_BEFORE and megaflow and carried <= COLD_SHARE * total:
            share = 100 * busiest.packets // max(total, 1)
            text = (
                f"{share} % of the packets of {device}, chain {chain}, are tried against {masks} "
                f"masks that carry {carried} of {total} before theirs"
            )
            yield _found(layers, "offload-order", "warning", megaflow, text)


_RDMA = re.compile(rf"\budp\([^)]*\bdst={ROCE_PORT}[,)/]")


def rdma_in_software(layers: Layers) -> Iterator[TableFinding]:
    """Find RoCE v2 traffic that software forwards: "not using RDMA"."""
    for megaflow in layers.judged:
        held = layers.filters.get(megaflow.ufid, ()) if megaflow.ufid else ()
        in_hw = any(one.in_hw for one in held) if held else megaflow.offloaded
        if in_hw or not _RDMA.search(megaflow.key):
            continue
        if megaflow.packets < BUSY_PACKETS:
            continue
        moved = _moved(layers, megaflow)
        who = {"tc": "tc in software", "dpdk": "DPDK"}.get(megaflow.layer, "the software datapath")
        text = f"{_counted(layers, megaflow)} to RDMA's port {ROCE_PORT} went through {who}"
        severity: Severity = "note" if moved is not None and moved < BUSY_PACKETS else "warning"
        yield _found(layers, "rdma-in-software", severity, megaflow, text)


CHECKS: Mapping[str, Callable[[Layers], Iterator[TableFinding]]] = {
    "stale-megaflow": stale,
    "not-offloaded": not_offloaded,
    "in-software": in_software,
    "missing-filter": missing_filter,
    "orphan-filter": orphan_filter,
    "stale-counter": stale_counter,
    "offload-churn": churn,
    "offload-order": order,
    "rdma-in-software": rdma_in_software,
}
"""The checks by name."""
