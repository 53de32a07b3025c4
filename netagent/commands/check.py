# SPDX-License-Identifier: Apache-2.0
"""``netagent check``: walk this host's flow tables, for a human or as the agent's worker."""

import argparse
import ipaddress
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netagent.commands.asking import CONFIG, endpoint, print_json
from netagent.commands.vswitch import Ports, known_to, ports_of, told_by
from netagent.config import load
from netagent.host.controllers import Rules
from netagent.host.ports import ContainerPort
from netagent.model.errors import ConfigError, NetAgentError
from netagent.model.ids import EndpointId
from netagent.wire.conversion import walk_to_wire
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, IngressQuestion
from netagent.wire.worker import CheckWork
from ovs_checks.openflow.addresses import TwoFamilies, of_protocol, udp_between
from ovs_checks.openflow.notation import mac
from ovs_checks.openflow.packet import Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.ends import End
from ovs_checks.walk.opinion import compare, unanswered
from ovs_checks.walk.reach import egress_entry, ingress_entry, walk_egress, walk_ingress
from ovs_checks.walk.values import LocalWalk, Opinion, Step

if TYPE_CHECKING:
    from ovs_checks.sources.vswitchd import Vswitchd

EPILOG = """\
examples:
  netagent check train-a-0/rail0 10.0.0.12 --mac 02:00:00:01:00:0c
  netagent check train-a-0/rail0 fd00::12 --mac 02:00:00:01:00:0c
  netagent check train-a-0/rail0 train-b-0/rail0     (both on this host)
  netagent check train-a-0/rail0 train-a-1/rail0 \\
      --bundle h0.tar.gz --bundle h1.tar.gz
  netagent check --all --bundle h0.tar.gz --bundle h1.tar.gz

The walk ends where the packet leaves this host, is delivered on it, or is
lost. For both ends of a live path ask the analyzer: netagent-analyzer
diagnose. With bundles of several hosts (netagent bundle), pairs are walked
there and back, tunnel, route, neighbour and MTU included. A bundle tells of
endpoints what external_ids say: netagent's own, with --config also what the
rules of [endpoints] read. Who writes no hardware address or no address (of
controllers all but ovn-kubernetes) leaves endpoints that are not walked, nor
are those whose rail is that of their RNIC, or that files declare. Ports left
out are listed; the analyzer's diagnose knows their endpoints from the agents.

exit status: 0 all arrives; 1 something does not, or cannot be told; 2 the
question is wrong; 3 Open vSwitch, or the agent, does not answer
"""

Place = tuple[Path, str, str]
"""Run directory, integration bridge and host name."""

MAX_TRACES_PER_S = 20
"""Questions per second to the live switch. Chosen: it answers from the thread that serves everybody
else."""

TRACE_TIMEOUT_S = 1.0
"""Seconds the live switch has to answer. Chosen: whoever asked for the walks waits for it."""

MAX_TRACES = 10
"""Walks per request that are held against the live switch. Chosen: half a second at
`MAX_TRACES_PER_S`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", nargs="?", type=endpoint, help="endpoint of this host")
    parser.add_argument("target", nargs="?", help="CONTAINER/railN here, or an overlay address")
    parser.add_argument("--mac", help="MAC address of a target that is not here")
    parser.add_argument("--source-port", type=_port, default=40000, help="UDP (%(default)s)")
    parser.add_argument("--port", type=_port, default=18515, help="UDP destination (%(default)s)")
    parser.add_argument(
        "--bundle", action="append", metavar="PATH", help="a host's bundle; may be repeated"
    )
    parser.add_argument("--pairs", metavar="FILE", help="with --bundle: SOURCE TARGET a line")
    parser.add_argument(
        "--all", action="store_true", help="with --bundle: all pairs of a task and rail"
    )
    parser.add_argument(
        "--config", metavar="FILE", help=f"the agent's file ({CONFIG}; with --bundle none)"
    )
    parser.add_argument("--rundir", help="folder of db.sock and the control socket")
    parser.add_argument("--bridge", help="integration bridge")
    parser.add_argument("--host", help="this host's name")
    parser.add_argument("--json", action="store_true", help="print the walks as JSON")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 0xFFFF:
        raise argparse.ArgumentTypeError(f"no UDP port: {text}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print walks; return 1 if one ends in neither a delivery nor a tunnel."""
    if arguments.bundle:
        from netagent.commands import check_pairs  # noqa: PLC0415 - only where it is used

        return check_pairs.run(arguments)
    reply, walks = _answer(arguments)
    if arguments.json:
        print_json(reply)
    else:
        for walk in walks:
            _show(walk)
    return 0 if all(walk.end.kind in {"output", "tunnelled"} for walk in walks) else 1


def done(work: CheckWork) -> CheckReply:
    """Return the answer to what the agent asks."""
    place, known = (Path(work.rundir), work.bridge, work.host), known_to(work.endpoints)
    reply, _ = _walked(place, None, known, lambda _: work.request)
    return reply


def _answer(arguments: argparse.Namespace) -> tuple[CheckReply, list[LocalWalk]]:
    place, rules = _place(arguments)
    return _walked(place, rules, (), lambda ports: _request(arguments, ports))


def _walked(
    place: Place,
    rules: Rules | None,
    known: Iterable[ContainerPort],
    ask: Callable[[Ports], CheckRequest],
) -> tuple[CheckReply, list[LocalWalk]]:
    from ovs_checks.sources.vswitchd import Vswitchd  # noqa: PLC0415 - the rim, only when run

    rundir, bridge, host = place
    snapshot = Vswitchd(rundir).snapshot(host)
    ports = ports_of([*told_by(snapshot, bridge, rules), *known])
    request = ask(ports)
    walks = [answer_one(question, snapshot, ports) for question in request.questions]
    live = Vswitchd(rundir, timeout_s=TRACE_TIMEOUT_S)
    for n in _to_confirm(walks):
        entered = _entry(request.questions[n], snapshot, ports)
        if entered is None:
            continue
        time.sleep(1 / MAX_TRACES_PER_S)
        opinion = _second(live, snapshot, *entered)
        walks[n] = replace(walks[n], opinion=opinion)
        if opinion.kind == "unanswered":  # a switch that is slow now is slow for all
            break
    sent = tuple(map(walk_to_wire, walks))
    return CheckReply(walks=sent, wall_ns=snapshot.wall_ns), walks


def _to_confirm(walks: Sequence[LocalWalk]) -> list[int]:
    """Return which walks to hold against Open vSwitch: first those that lose the packet."""
    fine = {"output", "tunnelled"}
    ranked = sorted(range(len(walks)), key=lambda n: walks[n].end.kind in fine)
    return ranked[:MAX_TRACES]


def _second(vswitchd: "Vswitchd", snapshot: Snapshot, bridge: str, packet: Header) -> Opinion:
    try:
        return compare(snapshot, bridge, packet, vswitchd.trace(bridge, packet))
    except NetAgentError as error:
        return unanswered(str(error))


def _place(arguments: argparse.Namespace) -> tuple[Place, Rules | None]:
    """Return where to look, and how to read the external_ids there."""
    if arguments.rundir and arguments.bridge and arguments.host:
        return (Path(arguments.rundir), arguments.bridge, arguments.host), None
    config = load(arguments.config or CONFIG)
    place = (
        Path(arguments.rundir or config.ovs.rundir),
        arguments.bridge or config.ovs.integration_bridge,
        arguments.host or config.host,
    )
    return place, config.endpoints.rules()


def _request(arguments: argparse.Namespace, ports: Ports) -> CheckRequest:
    if not arguments.source or not arguments.target:
        raise ConfigError("command line", "name a source and a target")
    address, address_mac = _target(arguments, ports)
    question = EgressQuestion(
        source=arguments.source,
        target_address=address,
        target_mac=address_mac,
        source_port=arguments.source_port,
        destination_port=arguments.port,
    )
    return CheckRequest(questions=(question,))


def _target(arguments: argparse.Namespace, ports: Ports) -> tuple[str, str]:
    """Return address and MAC of the target."""
    try:
        address = str(ipaddress.ip_address(arguments.target))
    except ValueError:
        try:
            port = ports[EndpointId.parse(arguments.target)]
        except (ValueError, KeyError) as error:
            message = f"{arguments.target} is no endpoint of this host; give address and --mac"
            raise ConfigError("command line", message) from error
        return port.address, port.mac
    if not arguments.mac:
        raise ConfigError("command line", "an address needs the --mac that goes with it")
    return address, arguments.mac


def answer_one(
    question: EgressQuestion | IngressQuestion, snapshot: Snapshot, ports: Ports
) -> LocalWalk:
    """Walk the tables for one question; raises ConfigError for addresses that are none.

    Of ends of two families the walk says that it cannot tell: other questions have answers.
    """
    try:
        if isinstance(question, IngressQuestion):
            return _ingress(question, snapshot)
        return _egress(question, snapshot, ports)
    except TwoFamilies as error:
        return _untold(snapshot, str(error))
    except ValueError as error:
        raise ConfigError("question", str(error)) from error


def _untold(snapshot: Snapshot, why: str) -> LocalWalk:
    end = End("cannot_tell", "", -1, why)
    return LocalWalk(snapshot.host, "", "", (end,), (Step(0, "", f"cannot_tell: {why}"),))


def _entry(
    question: EgressQuestion | IngressQuestion, snapshot: Snapshot, ports: Ports
) -> tuple[str, Header] | None:
    """Return the bridge that a question's packet enters, and the packet there, if there is one."""
    try:
        if isinstance(question, IngressQuestion):
            header = _packet(question, question.source_address, question.source_mac)
            return ingress_entry(snapshot, **_outer(question), header=header)
        port = ports.get(question.source)
        if port is None or question.untold:
            return None
        return egress_entry(snapshot, port.interface, _sent(question, port))
    except TwoFamilies:
        return None


def _outer(question: IngressQuestion) -> dict[str, Any]:
    return {
        "tun_dst": question.tun_dst,
        "tun_src": question.tun_src,
        "tun_id": question.tun_id,
        "options": question.options,
    }


def _egress(question: EgressQuestion, snapshot: Snapshot, ports: Ports) -> LocalWalk:
    port = ports.get(question.source)
    if port is None:
        return walk_egress(snapshot, f"of {question.source}", Header())
    if question.untold:
        return _untold(snapshot, question.untold)
    header = _sent(question, port)
    return walk_egress(snapshot, port.interface, header, question.connection)


def _ingress(question: IngressQuestion, snapshot: Snapshot) -> LocalWalk:
    header = _packet(question, question.source_address, question.source_mac)
    outer = _outer(question)
    return walk_ingress(snapshot, **outer, header=header, connection=question.connection)


def _sent(question: EgressQuestion, port: ContainerPort) -> Header:
    """Return a packet as its container sends it: to its router, where one is between."""
    header = _packet(question, port.address, port.mac)
    return header._replace(eth_dst=mac(question.next_hop)) if question.next_hop else header


def _packet(question: EgressQuestion | IngressQuestion, address: str, address_mac: str) -> Header:
    """Return the header of a probe, or of what else is asked for."""
    header = udp_between(
        (address_mac, address),
        (question.target_mac, question.target_address),
        source_port=question.source_port,
        destination_port=question.destination_port,
    )
    return of_protocol(header, question.protocol, is_reply=question.connection == "reply")


def _show(walk: LocalWalk) -> None:
    print(f"{walk.host}: in by {walk.port}")
    for step in walk.steps:
        where = f"{step.where}: " if step.where else "-> "
        print(f"{'  ' * (step.level + 1)}{where}{step.text}")
    end = walk.end
    to = f" to {end.tun_dst} with VNI {end.tun_id}" if end.kind == "tunnelled" else ""
    print(f"{end.kind}{to}: {end.reason or end.port}")
    if walk.opinion is not None:
        print(walk.opinion)
