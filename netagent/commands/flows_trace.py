# SPDX-License-Identifier: Apache-2.0
"""``netagent flows trace``: what flow tables make of one packet, as `ofproto/trace` says it."""

import argparse

from netagent.commands.asking import print_json
from netagent.commands.vswitch import add_place, snapshot_of
from netagent.model.errors import ConfigError
from ovs_checks.datapath_key import is_datapath_key, parse_key
from ovs_checks.fields import FIELDS
from ovs_checks.notation import decode
from ovs_checks.packet import Header
from ovs_checks.parse import MalformedLine, parse_header
from ovs_checks.reach import entry
from ovs_checks.switch import Snapshot
from ovs_checks.trace import trace

EPILOG = """\
examples:
  netagent flows trace br-int in_port=veth3,udp,nw_dst=10.0.0.12,udp_dst=4791
  netagent flows trace br-int in_port=3,tcp --ct-next trk,est --ct-next trk,new
  netagent flows trace --bundle h0.tar.gz br-int in_port=3,udp
  netagent flows trace 'in_port(2),eth(),eth_type(0x0800),ipv4(proto=17),udp()'

Prints what ovs-appctl ofproto/trace prints, from one dump and without
loading the vSwitch further. FLOW is in the notation of flows, with names or
numbers of ports; or in the datapath's, as ovs-appctl dpctl/dump-flows has it,
and then needs no BRIDGE. Nothing is learned from the packet.

Open vSwitch is found like the ovs-* tools do: by --db, or OVS_RUNDIR.
Exit code 0: traced; 1: it met what it cannot decide, or Open vSwitch does
not answer; 2: the question is wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("entered", nargs="?", metavar="BRIDGE", help="that the packet enters")
    parser.add_argument("flow", metavar="FLOW", help="the packet; see below")
    parser.add_argument(
        "--ct-next",
        action="append",
        default=[],
        metavar="FLAGS",
        help="what connection tracking says next (trk,new)",
    )
    parser.add_argument(
        *("-generate", "--generate"), action="store_true", help="accepted, and changes nothing"
    )
    add_place(parser, bundles="one", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the trace; return 1 if it met something that it cannot decide."""
    states = [_ct_state(text) for text in arguments.ct_next]
    snapshot = snapshot_of(arguments)
    bridge, packet = _packet(snapshot, arguments.entered, arguments.flow)
    traced = trace(snapshot, bridge, packet, states)
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
    return 1 if traced.unknown else 0


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
            return entry(snapshot, parse_key(text))
        if name is None:
            raise ConfigError("BRIDGE", "name the bridge that the packet enters")
        bridge = snapshot.by_name.get(name)
        if bridge is None:
            known = ", ".join(sorted(snapshot.by_name)) or "none"
            raise ConfigError("BRIDGE", f"no bridge {name!r} (there is: {known})")
        ports = {port.name: port.ofport for port in bridge.ports if port.ofport >= 0}
        return bridge.name, parse_header(text, ports)
    except (MalformedLine, LookupError) as e:
        raise ConfigError("FLOW", str(e)) from e
