# SPDX-License-Identifier: Apache-2.0
"""``netagent flows trace``: what flow tables make of one packet, as `ofproto/trace` says it."""

import argparse
import re
import sys

from netagent.commands.asking import print_json
from netagent.commands.vswitch import add_place, snapshot_of
from netagent.model.errors import ConfigError
from ovs_checks.datapath.key import is_datapath_key, parse_question
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.frame import MIN_BYTES, read_frame
from ovs_checks.openflow.notation import decode
from ovs_checks.openflow.packet import Header, limit_tags
from ovs_checks.openflow.parse import MalformedLine, parse_packet
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.text import trace
from ovs_checks.walk.reach import entry

EPILOG = """\
examples:
  netagent flows trace br-int in_port=veth3,udp,nw_dst=10.0.0.12,udp_dst=4791
  netagent flows trace br-int in_port=3,tcp --ct-next trk,est --ct-next trk,new
  netagent flows trace --bundle h0.tar.gz br-int in_port=3,udp
  netagent flows trace br-int in_port=3 "$(cat frame.hex)"
  netagent flows trace 'in_port(2),eth(),eth_type(0x0800),ipv4(proto=17),udp()'

Prints what ovs-appctl ofproto/trace prints, from one dump and without
loading the vSwitch further. FLOW is in the notation of flows, with names or
numbers of ports; or in the datapath's, as ovs-appctl dpctl/dump-flows has it,
and then needs no BRIDGE, but may name the datapath. FRAME is an Ethernet frame
in hexadecimal; FLOW then says only how it came in. Nothing is learned from the
packet, and no controller gets it.

Open vSwitch is found like the ovs-* tools do: by --db, or OVS_RUNDIR.
exit status: 0 traced; 1 it met what it cannot decide; 2 the question is wrong;
3 Open vSwitch does not answer
"""


_HEX = re.compile(r"[0-9a-fA-F]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "packet", nargs="+", metavar="[BRIDGE] FLOW [FRAME]", help="the packet; see below"
    )
    parser.add_argument(
        "--ct-next",
        action="append",
        default=[],
        metavar="FLAGS",
        help="what connection tracking says next (trk,new)",
    )
    parser.add_argument(
        *("-generate", "--generate"), action="store_true", help="a whole packet, not only headers"
    )
    parser.add_argument(
        *("-names", "--names"), action="store_true", help="print names of ports, not numbers"
    )
    for option in ("--l7", "--l7-len"):
        parser.add_argument(option, metavar="PAYLOAD", help=argparse.SUPPRESS)
    add_place(parser, bundles="one", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the trace; return 1 if it met something that it cannot decide."""
    states = [_ct_state(text) for text in arguments.ct_next]
    *entered, flow, frame = _words(arguments.packet, generate=arguments.generate)
    snapshot = snapshot_of(arguments)
    bridge, packet = _packet(snapshot, entered[0] if entered else None, flow)
    if frame:
        packet = limit_tags(read_frame(bytes.fromhex(frame), packet), snapshot.max_tags)
    carried = arguments.generate or bool(frame)
    traced = trace(snapshot, bridge, packet, states, carried=carried, names=arguments.names)
    if arguments.json:
        print_json(
            {
                "bridge": bridge,
                "datapath_actions": traced.datapath_actions,
                "cannot_tell": traced.unknown,
                "problems": list(snapshot.problems),
                "text": traced.text,
            }
        )
    else:
        print(traced.text)
        for problem in snapshot.problems:
            print(f"not read: {problem}", file=sys.stderr)
    return 1 if traced.unknown else 0


def _words(words: list[str], *, generate: bool) -> list[str]:
    """Return what was said as bridge (or nothing), flow, and frame, which may be empty.

    Raises
    ------
    ConfigError
        For more than that.
    """
    frame = "".join(words[-1].split()) if len(words) > 1 and not generate else ""
    if len(frame) < 2 * MIN_BYTES or len(frame) % 2 or not _HEX.fullmatch(frame):
        frame = ""
    said = words[:-1] if frame else words
    if len(said) > 2:
        raise ConfigError("FRAME", f"no Ethernet frame in hexadecimal: {words[-1][:60]}")
    return [*said, frame]


def _ct_state(text: str) -> int:
    try:
        return decode(FIELDS["ct_state"], text.replace(" ", "").replace(",", "|"))[0]
    except ValueError as e:
        raise ConfigError("--ct-next", f"{text}: {e}") from e


def _packet(snapshot: Snapshot, name: str | None, text: str) -> tuple[str, Header]:
    """Return the bridge that a packet enters, and the packet.

    Raises
    ------
    ConfigError
        If the packet is not understood, or there is no such bridge or port.
    """
    try:
        if is_datapath_key(text):
            kinds = {bridge.datapath_type or "system" for bridge in snapshot.bridges}
            if name is not None and name.removeprefix("ovs-") not in kinds:
                known = ", ".join(f"ovs-{kind}" for kind in sorted(kinds)) or "none"
                raise ConfigError("BRIDGE", f"no datapath {name!r} (there is: {known})")
            return entry(snapshot, parse_question(text))
        if name is None:
            raise ConfigError("BRIDGE", "name the bridge that the packet enters")
        bridge = snapshot.by_name.get(name)
        if bridge is None:
            known = ", ".join(sorted(snapshot.by_name)) or "none"
            raise ConfigError("BRIDGE", f"no bridge {name!r} (there is: {known})")
        ports = {port.name: port.ofport for port in bridge.ports if port.ofport >= 0}
        return bridge.name, parse_packet(text, ports)
    except (MalformedLine, LookupError) as e:
        raise ConfigError("FLOW", str(e)) from e
