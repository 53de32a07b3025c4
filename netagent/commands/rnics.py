# SPDX-License-Identifier: Apache-2.0
"""``netagent rnics``: what this host's RDMA devices are, and what they have counted."""

import argparse
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec

from netagent.adapters.host.rnics import RnicReader
from netagent.adapters.rdma import verbs
from netagent.commands.asking import print_json
from netagent.host.rdma_facts import ACTIVE, RdmaDevice, RdmaPort, RdmaView
from netagent.model.errors import CapabilityMissing

EPILOG = """\
examples:
  netagent rnics
  netagent rnics --counters
  netagent rnics --json | jq '.devices[] | {name, pci, physical_function}'
  ip netns exec NAME netagent rnics    (a container's, in exclusive mode)

exit status: 0 well; 1 there is no RDMA device, or a port is not active
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--counters", action="store_true", help="show counters that are not zero")
    parser.add_argument("--json", action="store_true", help="print all that was read as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the devices; return 1 if there is none, or a port of one is not active."""
    view = RnicReader().read((), whole=True)
    view = replace(view, devices=tuple(map(_with_mtu, view.devices)))
    if arguments.json:
        print_json({"mode": view.mode, "devices": [msgspec.to_builtins(d) for d in view.devices]})
    else:
        for line in lines(view, counters=arguments.counters):
            print(line)
    states = [port.state for device in view.devices for port in device.ports]
    return 0 if states and set(states) == {ACTIVE} else 1


def _with_mtu(device: RdmaDevice) -> RdmaDevice:
    mtu = _mtu_bytes(device.name)  # of port 1, the only one of any RoCE device
    return replace(
        device,
        ports=tuple(replace(p, active_mtu_bytes=mtu) if p.port == 1 else p for p in device.ports),
    )


def _mtu_bytes(name: str) -> int | None:
    # Neither sysfs nor netlink has it.
    with suppress(CapabilityMissing, OSError):
        device = verbs.Device(name)
        try:
            return device.mtu()
        finally:
            device.close()
    return None


def lines(view: RdmaView, *, counters: bool) -> Iterator[str]:
    """Return what a human reads, in lines of at most 79 characters."""
    width = max((len(device.name) for device in view.devices), default=0)
    if not view.devices:
        yield "no RDMA device is visible here: load the RNIC's driver (docs/rdma.md)"
    else:
        yield _row(width, "DEVICE", "PORT", "STATE", "RATE", "MTU", "DRIVER", "NETDEV")
    for device in view.devices:
        for port in device.ports:
            mtu = str(port.active_mtu_bytes or "-")
            place = ",".join(port.netdevs) or "-"
            rate = f"{port.rate_bps / 1e9:g} Gb/s" if port.rate_bps else "-"
            state = port.state if port.state == ACTIVE else f"{port.state} {port.phys_state}"
            yield _row(width, device.name, str(port.port), state, rate, mtu, device.driver, place)
            yield from _wrapped("; ".join(_hardware(device, port)))
            if counters:
                yield from _counted(port)
    if view.mode == "exclusive":
        yield "RDMA is in exclusive mode: devices inside containers' namespaces are not shown."


def _hardware(device: RdmaDevice, port: RdmaPort) -> Iterator[str]:
    if device.pci:
        yield f"PCI {device.pci}"
    if device.physical_function:
        yield f"virtual function of {device.physical_function}"
    if device.virtual_functions:
        yield f"{device.virtual_functions} virtual functions"
    if port.lanes:
        yield f"{port.lanes} lane{'s' * (port.lanes != 1)}"
    if device.bond:
        yield f"bond {device.bond}"
    if device.firmware:
        yield f"firmware {device.firmware}"
    yield "GIDs " + ("unreadable" if port.gids is None else str(len(port.gids)))


def _counted(port: RdmaPort) -> Iterator[str]:
    for name, value in sorted(port.counters.items()):
        if value:
            yield f"  {name:40} {value:>20}"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, 79, initial_indent="  ", subsequent_indent="  ")


def _row(width: int, *cells: str) -> str:
    *most, last = cells
    widths = (max(width, 6), 4, 13, 9, 5, 9)
    line = " ".join(f"{c:{w}.{w}}" for c, w in zip(most, widths, strict=True))
    return f"{line} {last}"[:79]
