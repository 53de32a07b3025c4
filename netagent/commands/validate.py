# SPDX-License-Identifier: Apache-2.0
"""What the agent has its worker do to compare the copies of flow tables for one pair's packets.

It is no verb of the command line: `netagent flows layers` and `flows lint` show all that they find.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netagent.commands.bundle import devices_of, look
from netagent.commands.vswitch import known_to, ports_of, told_by
from netagent.host.ports import ContainerPort
from netagent.model.errors import ConfigError, NetAgentError, Unreachable
from netagent.wire.validate import (
    MAX_FINDINGS,
    MAX_QUOTES,
    MAX_TEXT,
    MAX_UNREAD,
    Inconsistency,
    Quoted,
    ValidateReply,
    ValidateRequest,
)
from netagent.wire.worker import ValidateWork
from ovs_checks.lint.finding import TableFinding
from ovs_checks.lint.layers import Layers, layers_of
from ovs_checks.lint.packet import (
    Conversation,
    Crossed,
    Trace,
    crossed_by,
    judged,
    key_of,
    of_copies,
    of_tables,
    walks_of,
)
from ovs_checks.openflow.addresses import canonical, udp_between
from ovs_checks.openflow.packet import Header
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Recorder
from ovs_checks.switch.snapshot import Snapshot

if TYPE_CHECKING:
    from ovs_checks.sources.vswitchd import Vswitchd

LOOKS = 3
"""Samples of the datapath and tc. Chosen: two show what is stuck, three what comes and goes."""
APART_S = 1.0
"""Seconds between two looks. Chosen: Open vSwitch mends a stale flow within half a second
(`other_config:max-revalidator`); all looks together take two seconds."""
TRACE_TIMEOUT_S = 1.0
"""Seconds the live switch has to say what it does with a packet. Chosen: it is loaded already."""
MAX_TRACES = 8
"""Packets that the live switch is asked about. Chosen: it answers from the thread that serves
everybody else."""
_LOOKED = ("ovs-appctl dpctl/dump-flows", "tc ")
"""How commands begin whose refusal leaves a copy unread."""


def done(work: ValidateWork) -> ValidateReply:
    """Return the answer to what the agent asks; ConfigError for an endpoint that is not here."""
    from ovs_checks.sources.vswitchd import Vswitchd  # noqa: PLC0415 - the rim, only when run

    rundir, request = Path(work.rundir), work.request
    recorder = Recorder(Vswitchd(rundir), work.host, time.time_ns)
    snapshot = assemble(recorder, work.host, wall_ns=time.time_ns())
    ports = ports_of([*told_by(snapshot, work.bridge, None), *known_to(work.endpoints)])
    port = ports.get(request.local)
    if port is None:
        raise ConfigError("question", f"{request.local} is no endpoint of {work.host}")
    talk = conversation(request, port, ports.values())
    live = Vswitchd(rundir, timeout_s=TRACE_TIMEOUT_S)
    return _compared(recorder, snapshot, talk, _asking(live))


def conversation(
    request: ValidateRequest, port: ContainerPort, here: Iterable[ContainerPort] = ()
) -> Conversation:
    """Return the packets that a request is about; ConfigError for addresses that are none."""
    near, far = (port.mac, port.address), (request.remote_mac, request.remote_address)
    neighbours = [] if request.remote_underlay else [p for p in here if (p.mac, p.address) == far]
    ports = {"source_port": request.source_port, "destination_port": request.destination_port}
    try:
        return Conversation(
            port.interface,
            udp_between(near, far, **ports),
            udp_between(far, near, **ports),
            canonical(request.local_underlay),
            canonical(request.remote_underlay),
            neighbours[0].interface if neighbours else "",
        )
    except ValueError as error:
        raise ConfigError("question", str(error)) from error


def _asking(live: "Vswitchd") -> Trace:
    """Return who asks the live switch, until it has been asked often enough or does not answer."""
    left = MAX_TRACES

    def trace(bridge: str, packet: Header) -> str:
        nonlocal left
        if not left:
            return ""
        left -= 1
        try:
            return live.trace(bridge, packet)
        except NetAgentError:
            left = 0  # a switch that is slow now is slow for all
            return ""

    return trace


def _compared(
    recorder: Recorder, snapshot: Snapshot, talk: Conversation, trace: Trace
) -> ValidateReply:
    walks = walks_of(snapshot, talk)
    unread = [*snapshot.problems]
    unread += [f"tables: {one.end.reason}" for one in walks if one.end.kind == "cannot_tell"]
    found = of_tables(snapshot, walks)
    crossed, looks, counted = Crossed(), 0, 0
    try:
        layers = _looked(recorder, snapshot, talk)
    except Unreachable as error:
        unread.append(str(error))
    else:
        crossed = crossed_by(layers, talk, key_of(walks, talk))
        looks, counted = len(layers.samples), judged(layers, crossed)
        found += of_copies(layers, crossed, trace)
        unread += [*crossed.problems, *layers.last.problems]
    unread += [
        f"{command}: {reason}"
        for command, reason in recorder.bundle().refused
        if command.startswith(_LOOKED)
    ]
    ordered = sorted(found, key=lambda one: one.severity != "warning")
    return ValidateReply(
        host=snapshot.host,
        wall_ns=snapshot.wall_ns,
        looks=looks,
        flows=len(crossed.flows),
        judged=counted,
        in_hardware=sum(one.offloaded for one in crossed.flows),
        findings=tuple(map(to_wire, ordered[:MAX_FINDINGS])),
        omitted=len(ordered[MAX_FINDINGS:]),
        unread=tuple(map(cut, _unlike(unread)[:MAX_UNREAD])),
    )


def _unlike(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _looked(recorder: Recorder, snapshot: Snapshot, talk: Conversation) -> Layers:
    """Look at the datapath and tc several times; Unreachable if the datapath is not shown."""
    bridges = [bridge.name for bridge in snapshot.bridges]
    datapaths = sorted({bridge.datapath for bridge in snapshot.bridges})
    devices = _devices(recorder, datapaths, snapshot, talk)
    for n in range(LOOKS):
        if n:
            time.sleep(APART_S)
        look(recorder, bridges, datapaths, devices)
    return layers_of(recorder.bundle(), snapshot)


def _devices(
    recorder: Recorder, datapaths: Sequence[str], snapshot: Snapshot, talk: Conversation
) -> list[str]:
    """Return the devices by which the packets come in: the endpoints', and those of tunnels.

    Where nothing is offloaded, tc holds nothing of Open vSwitch's.
    """
    own = {port.name for bridge in snapshot.bridges for port in bridge.ports if not port.is_tunnel}
    known = {name for datapath in datapaths for name in devices_of(recorder, datapath)}
    if snapshot.config.get("hw-offload") != "true":
        return []
    return sorted((known - own) | (known & {talk.port, talk.neighbour}))


def to_wire(one: TableFinding) -> Inconsistency:
    """Return a finding as a message, cut to what one may say."""
    return Inconsistency(
        check=cut(one.check),
        severity=one.severity,
        component=one.component,
        text=cut(one.text),
        quotes=tuple(
            Quoted(what=cut(what), entry=cut(entry)) for what, entry in one.quotes[:MAX_QUOTES]
        ),
    )


def cut(text: str) -> str:
    """Return a text, or its beginning where it is too long."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
