# SPDX-License-Identifier: Apache-2.0
"""``netagent flows trace``: what flow tables make of one packet, as `ofproto/trace` says it."""

import argparse

from netagent.commands.asking import print_json
from netagent.commands.vswitch import snapshot_of
from netagent.model.errors import ConfigError
from ovs_checks.datapath_key import is_datapath_key, parse_key
from ovs_checks.fields import FIELDS
from ovs_checks.notation import decode
from ovs_checks.packet import Header
from ovs_checks.parse import MalformedLine, parse_header
from ovs_checks.reach import entry
from ovs_checks.switch import Snapshot
from ovs_checks.trace import trace


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
