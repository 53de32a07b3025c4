# SPDX-License-Identifier: Apache-2.0
"""Show what the SDN controller says should be, as the analyzer reads it."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import clock, cut, paragraph, table

EPILOG = """\
examples:
  netagent-analyzer intent
  netagent-analyzer intent --ports --chassis gpu-0417
  netagent-analyzer intent --ports --unplaced
  netagent-analyzer intent --source acme
  netagent-analyzer intent --json | jq -r '.away'

It shows what was read, and judges nothing: what is wrong is among incidents.
What cannot be read now is shown as it was read last.
exit status: 0; 1 if no controller is configured, or one cannot be read now; 3
if the analyzer cannot be reached
"""

_LAGGING = 8
"""Most chassis named that lag behind. Chosen: a screen holds the rest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--ports", action="store_true", help="list ports, instead of chassis")
    parser.add_argument("--chassis", metavar="NAME", help="only of this chassis or host")
    text = "which controller, where several are known"
    parser.add_argument("--source", metavar="NAME", help=text)
    parser.add_argument("--unplaced", action="store_true", help="only ports that are nowhere")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what should be."""
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/intent", "ports", source=args.source)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        is_listed = args.ports or args.unplaced
        for line in report(answer, args.chassis, ports=is_listed, unplaced=args.unplaced):
            print(line)
    return 1 if answer["away"] else 0


def report(
    answer: dict[str, Any], wanted: str | None = None, *, ports: bool, unplaced: bool = False
) -> Iterator[str]:
    """Yield where it was read and how far it has come, then chassis, or ports."""
    yield from _summary(answer)
    names = {
        each["name"]
        for each in answer["chassis"]
        if wanted is None or wanted in {each["name"], each["hostname"]}
    }
    yield ""
    if ports:
        yield from _ports(answer, None if wanted is None else names, unplaced=unplaced)
    else:
        yield from _chassis(answer, names)


def _summary(answer: dict[str, Any]) -> Iterator[str]:
    placed = sum(bool(_place(each)) for each in answer["ports"])
    count = len(answer["ports"])
    yield cut(
        f"{answer['source']}, read {clock(answer['wall_ns'] or None)}: {count} ports, "
        f"{placed} placed, on {len(answer['chassis'])} chassis"
    )
    if "zones" in answer:
        yield from _zones(answer)
        return
    for each in answer["databases"]:
        if each["name"] in answer["away"]:
            text = f"{each['name']} is away: {answer['away'][each['name']]}"
            yield from paragraph(text, hang="  ")
        else:
            yield cut(f"{each['name']} from {each['remote']}")
        if each["lacks"]:
            yield from paragraph(f"its server lacks {', '.join(each['lacks'])}", "  ", "    ")
    yield from _ladder(answer)


def _zones(answer: dict[str, Any]) -> Iterator[str]:
    """Yield how many hosts have databases of their own, and which are away or lag behind."""
    zones, away = answer["zones"], answer["away"]
    yield cut(f"read through the agents of {len(zones)} hosts, {len(away)} away")
    for host, why in sorted(away.items())[:_LAGGING]:
        yield from paragraph(f"{host} is away: {why}", "  ", "    ")
    if len(away) > _LAGGING:
        yield f"  and {len(away) - _LAGGING} more"
    for each in answer["databases"]:
        yield from paragraph(f"{each['name']} lacks {', '.join(each['lacks'])}", "  ", "    ")
    behind = list(_behind(answer))
    if behind:
        more = f" and {len(behind) - _LAGGING} more" if len(behind) > _LAGGING else ""
        yield from paragraph(f"behind: {', '.join(behind[:_LAGGING])}{more}", "  ", "    ")


def _behind(answer: dict[str, Any]) -> Iterator[str]:
    """Yield zones in which less is translated or installed than is asked for."""
    for zone in answer["zones"]:
        ladder, host = zone["ladder"], zone["zone"]
        if (asked := ladder["asked"]) is None or zone["away"]:
            continue
        installed = [each["installed"] for each in answer["chassis"] if each["zone"] == host]
        if (ladder["translated"] or 0) < asked or any((each or 0) < asked for each in installed):
            steps = " and ".join(map(_number, installed)) or "nothing"
            yield f"{host} {asked} asked, {_number(ladder['translated'])} translated, {steps} there"


def _ladder(answer: dict[str, Any]) -> Iterator[str]:
    ladder, chassis = answer["ladder"], answer["chassis"]
    asked = ladder["asked"]
    if asked is None:
        return
    behind = [each for each in chassis if each["installed"] is None or each["installed"] < asked]
    yield cut(
        f"generation {asked} asked since {clock(ladder['asked_ns'])}, "
        f"{_number(ladder['translated'])} translated, "
        f"installed on {len(chassis) - len(behind)} of {len(chassis)} chassis"
    )
    if behind:
        told = ", ".join(
            f"{each['name']} {_number(each['installed'])}" for each in behind[:_LAGGING]
        )
        more = len(behind) - _LAGGING
        yield from paragraph(
            f"behind: {told}" + (f" and {more} more" if more > 0 else ""), "  ", "    "
        )


def _chassis(answer: dict[str, Any], names: set[str]) -> Iterator[str]:
    ports = Counter(map(_place, answer["ports"]))
    header = ("CHASSIS", "HOST", "TUNNELS", "INSTALLED", "SAID", "PORTS")
    rows = [
        (
            each["name"],
            each["hostname"] or "-",
            ",".join(end["address"] for end in each["encapsulations"]) or "-",
            _number(each["installed"]) if each["is_registered"] else "unregistered",
            clock(each["installed_ns"] or None),
            ports[each["name"]],
        )
        for each in answer["chassis"]
        if each["name"] in names
    ]
    yield from table(header, rows) if rows else ("no chassis",)


def _ports(answer: dict[str, Any], names: set[str] | None, *, unplaced: bool) -> Iterator[str]:
    # Names last: those of pods are long, and Neutron's are uuids.
    header = ("STATE", "SINCE", "ADDRESS", "HOST", "PORT", "NETWORK")
    hosts = {each["name"]: each["hostname"] for each in answer["chassis"]}
    rows = []
    for each in answer["ports"]:
        place = _place(each)
        if (unplaced and place) or (names is not None and place not in names):
            continue
        port, placement = each["port"] or {}, each["placement"] or {}
        address = next(iter(port.get("addresses") or port.get("macs") or ()), "-")
        since, host = clock(placement.get("since_ns")), hosts.get(place) or place or "-"
        network = port.get("network") or "-"
        rows.append((_state(each), since, address, host, each["name"], network))
    yield from table(header, rows) if rows else ("no ports",)


def _state(each: dict[str, Any]) -> str:
    port, placement = each["port"], each["placement"]
    if port is None:
        return "unasked"
    if not port["is_enabled"]:
        return "disabled"
    if placement is None:
        return "untranslated"
    if placement["moves"]:
        return f"moved {placement['moves']}x"
    return "up" if placement["is_up"] else "down"


def _place(each: dict[str, Any]) -> str:
    return str((each["placement"] or {}).get("chassis", ""))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
