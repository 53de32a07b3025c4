# SPDX-License-Identifier: Apache-2.0
"""Show what the SDN controller says should be, as the analyzer reads it; how a host differs."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

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
  netagent-analyzer intent diff gpu-0417
  netagent-analyzer intent diff gpu-0417 --json | jq '.compared.found.missing'

It shows what was read, and judges nothing: what is wrong is among incidents.
What cannot be read now is shown as it was read last.

diff holds the flows of a host against what the controller wants there: which
logical flows have none, and whose they are, or fewer than when this was asked
before; which ports lack flows that those of their kind have; flows that
nothing stands for. It takes some seconds where something differs, as it looks
twice. Then it names the first two layers that differ from each other, from
the intent down. It compares what OVN wants, and no other controller.
exit status: 0; 1 if no controller is configured, or one cannot be read now,
with diff also if something differs or cannot be told; 3 if the analyzer
cannot be reached, or others are being compared
"""

_LAGGING = 8
"""Most chassis named that lag behind. Chosen: a screen holds the rest."""
_WAIT_S = 60.0
"""Seconds that a comparison may take. Chosen: longer than the analyzer takes for one."""
_ROUTE = "/v1/intent/{host}/difference"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("what", choices=("diff",), nargs="?", help="by default: what should be")
    parser.add_argument("host", metavar="HOST", nargs="?", help="with diff: whose flows")
    parser.add_argument("--ports", action="store_true", help="list ports, instead of chassis")
    parser.add_argument("--chassis", metavar="NAME", help="only of this chassis or host")
    text = "which controller, where several are known"
    parser.add_argument("--source", metavar="NAME", help=text)
    parser.add_argument("--unplaced", action="store_true", help="only ports that are nowhere")
    connection.add_arguments(parser)
    parser.set_defaults(fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Print what should be, or how a host differs from it."""
    if args.what == "diff":
        return _diff(args)
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/intent", "ports", source=args.source)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        is_listed = args.ports or args.unplaced
        for line in report(answer, args.chassis, ports=is_listed, unplaced=args.unplaced):
            print(line)
    return 1 if answer["away"] else 0


def _diff(args: argparse.Namespace) -> int:
    if args.host is None:
        args.fail("write diff HOST")
    if args.source or args.ports or args.unplaced or args.chassis:
        args.fail("diff HOST compares all of OVN's flows there: leave the other options out")
    with Connection(args) as analyzer:
        path = _ROUTE.format(host=quote(args.host, safe=""))
        answer = analyzer.get(path, wait_s=_WAIT_S)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for line in difference(answer):
            print(line)
    found = answer["compared"]["found"]
    differs = answer["first"] is not None or answer["compared"]["cannot"] or found["unclear"]
    return 1 if differs else 0


def difference(answer: dict[str, Any]) -> Iterator[str]:
    """Yield how a host differs, what was not compared, and the first layer that differs."""
    compared = answer["compared"]
    if compared["cannot"]:
        yield from paragraph(
            f"{compared['host']} cannot be compared: {compared['cannot']}", "", "  "
        )
    else:
        yield from _differences(compared)
    yield ""
    for each in answer["layers"]:
        yield cut(f"{each['name']}: {each['state']}")
        yield from (f"  look {text}" for text in [each.get("see")] if text)
        yield from (f"  incident {i['id']}: {i['component']}" for i in each.get("incidents", ()))
    yield cut(f"first that differs, as far as is known here: {answer['first'] or 'none'}")


def _differences(compared: dict[str, Any]) -> Iterator[str]:
    found = compared["found"]
    yield cut(
        f"{compared['host']}, compared {clock(compared['wall_ns'])}: {found['compared']} logical "
        f"flows, {found['compared_ports']} ports"
    )
    for note in compared["notes"]:
        yield from paragraph(note, "  but ", "    ")
    for each in found["missing"]:
        stage = each["stage"] or f"{each['pipeline']} {each['logical_table']}"
        table_of = f", OpenFlow table {each['table']}" if each["table"] >= 0 else ""
        yield from paragraph(f"missing: {stage}{table_of}, for {each['owner']}", "", "  ")
        text = f"{each['match']} (priority {each['priority']}) of {', '.join(each['networks'])}"
        yield from paragraph(text, "  ", "    ")
        yield f"  cookie {each['cookie']:#x}"
    for each in found["fewer"]:
        text = f"fewer: {each['stage']} has {each['has']} flows and had {each['had']}"
        yield from paragraph(f"{text}, for {each['owner']}", "", "  ")
        yield from paragraph(each["match"], "  ", "    ")
        yield f"  cookie {each['cookie']:#x}"
    for each in found["ports"]:
        whose = "its own" if each["is_here"] else "another host's"
        tables = ", ".join(map(str, each["tables"]))
        text = f"missing: flows of {whose} port {each['port']} in OpenFlow table {tables}"
        yield from paragraph(text, "", "  ")
        yield f"  cookie {each['cookie']:#x}"
    for each in found["stale"]:
        tables = ", ".join(map(str, each["tables"]))
        text = f"stale: {each['flows']} flows of cookie {each['cookie']:#x} in table {tables}"
        yield from paragraph(f"{text}: nothing asks for them", "", "  ")
    for each in found["unclear"]:
        text = f"cannot tell: {each['stage']}, for {each['owner']}: {each['match']}"
        yield from paragraph(text, "", "  ")
    if found["more"]:
        yield f"and {found['more']} more"
    text = f"not compared: {compared['fixed']} flows without a cookie, which are fixed; "
    if not found["is_remembered"]:
        text += f"whether all flows are there of {found['several']} logical ones with several; "
    text += f"{found['alone']} ports that are like too few others"
    yield from paragraph(text, "", "  ")


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
