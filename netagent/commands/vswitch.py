# SPDX-License-Identifier: Apache-2.0
"""What the verbs that question a virtual switch share: where it is, or what is kept of it."""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from netagent.commands.asking import print_json
from netagent.host.controllers import ControllerPorts, Rule, Rules
from netagent.host.facts import Port
from netagent.host.ports import ContainerPort
from netagent.host.sources import EndpointSource, Found, Given, OwnPorts, found_by
from netagent.model.endpoint import Endpoint
from netagent.model.errors import ConfigError
from netagent.model.ids import EndpointId
from ovs_checks.lint.finding import TableFinding
from ovs_checks.openflow.kept import KeptTables
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.snapshot import Snapshot

Ports = dict[EndpointId, ContainerPort]

_NAMED = 3
"""Ports, of several, that are named. Chosen: to be read."""


def add_place(
    parser: argparse.ArgumentParser,
    *,
    bundles: Literal["none", "one", "several"] = "none",
    default: str | None = None,
) -> None:
    """Declare how to find Open vSwitch; with `bundles`, also how to do without it.

    A `default` of `argparse.SUPPRESS` leaves what was said before a subcommand as it is.
    """
    parser.add_argument("--db", metavar="unix:FILE", help="OVSDB's socket")
    parser.add_argument(
        "--rundir",
        default=default,
        help="folder of db.sock and the control socket [OVS_RUNDIR]",
    )
    if bundles != "none":
        again = ", may be repeated" if bundles == "several" else ""
        parser.add_argument(
            "--bundle",
            metavar="PATH",
            default=default,
            action="append" if bundles == "several" else "store",
            help=f"ask what netagent bundle or sos report kept, packed or not{again}",
        )


def rundir_of(arguments: argparse.Namespace) -> Path:
    """Return where Open vSwitch's sockets are (ovs-appctl(8))."""
    if arguments.rundir:
        return Path(arguments.rundir)
    if arguments.db:
        kind, _, path = arguments.db.partition(":")
        if kind != "unix" or not path:
            raise ConfigError("--db", f"unix:FILE expected, not {arguments.db}")
        return Path(path).parent
    return Path(os.environ.get("OVS_RUNDIR") or "/var/run/openvswitch")


def snapshot_of(arguments: argparse.Namespace) -> Snapshot:
    """Return what the virtual switch holds, or held when the bundle was made."""
    return _kept(arguments.bundle) if arguments.bundle else _live(arguments)


def snapshots_of(arguments: argparse.Namespace) -> list[Snapshot]:
    """Return the snapshots in several bundles, or that of this host."""
    if not arguments.bundle:
        return [_live(arguments)]
    named = [arguments.bundle] if isinstance(arguments.bundle, str) else arguments.bundle
    found = [_kept(path) for path in named]
    refuse_twins(snapshot.host for snapshot in found)
    return found


def refuse_twins(hosts: Iterable[str]) -> None:
    """Raise ConfigError if two bundles are of one host."""
    known = sorted(hosts)
    if len(set(known)) < len(known):
        raise ConfigError("--bundle", f"two are of one host: {', '.join(known)}")


def _kept(path: str) -> Snapshot:
    from ovs_checks.sources.answers import open_answers  # noqa: PLC0415 - the rim, only when run

    answers = open_answers(Path(path))
    return assemble(answers, answers.host, wall_ns=answers.wall_ns)


def _live(arguments: argparse.Namespace) -> Snapshot:
    return live_snapshot(arguments, None)


def live_snapshot(arguments: argparse.Namespace, kept: dict[str, KeptTables] | None) -> Snapshot:
    """Return what the virtual switch of this host holds; for `kept` see `assemble`."""
    from ovs_checks.sources.vswitchd import Vswitchd  # noqa: PLC0415 - the rim, only when run

    return Vswitchd(rundir_of(arguments)).snapshot(os.uname().nodename, kept=kept)


def ports_of(ports: Iterable[ContainerPort]) -> Ports:
    """Return container ports by endpoint; of several of one endpoint, the last."""
    return {port.id: port for port in ports}


def told_by(snapshot: Snapshot, bridge: str, rules: Rules | None) -> tuple[ContainerPort, ...]:
    """Return the container ports of `bridge`, as far as its external_ids say all of them."""
    told = _found(snapshot, bridge, rules).ports
    return tuple(port for port in told if port.address and port.mac)


def untold_by(snapshot: Snapshot, bridge: str, rules: Rules | None) -> list[str]:
    """Return what external_ids do not say of container ports, so that these are not told."""
    found = _found(snapshot, bridge, rules)
    untold = [f"port {why.port}: {why.text}" for why in found.unusable]
    without = [port.interface for port in found.ports if not (port.address and port.mac)]
    if without:
        untold.append(f"address or hardware address of {_several(without)}: no external_ids")
    if rules and rules.rail is None:
        known = {port.interface for port in found.ports} | {why.port for why in found.unusable}
        whatever = _found(snapshot, bridge, replace(rules, rail=Rule("0")))
        names = {port.interface for port in whatever.ports} | {w.port for w in whatever.unusable}
        if railless := sorted(names - known):
            untold.append(f"rail of {_several(railless)}: it is that of an RNIC, or none")
    return untold


def _found(snapshot: Snapshot, bridge: str, rules: Rules | None) -> Found:
    found = snapshot.by_name.get(bridge)
    ports = tuple(Port(each.name, (each.interface,)) for each in (found.ports if found else ()))
    sources: list[EndpointSource] = [OwnPorts(), *([ControllerPorts(rules)] if rules else [])]
    return found_by(sources, Given(ports))


def _several(names: Sequence[str]) -> str:
    """Name some ports, and count the others."""
    more = len(names) - _NAMED
    return f"port {', '.join(names[:_NAMED])}{f' and {more} more' if more > 0 else ''}"


def known_to(endpoints: Iterable[Endpoint]) -> Iterator[ContainerPort]:
    """Yield the container ports of a host's endpoints, as its agent knows them."""
    for each in endpoints:
        if each.bridge:
            yield ContainerPort(each.id, each.task, each.port, each.address, each.mac, mtu=each.mtu)


def print_findings(
    found: Sequence[TableFinding], problems: Mapping[str, Sequence[str]], *, as_json: bool
) -> int:
    """Print what checks found, and by host what could not be read; return 1 for a warning."""
    warnings = sum(one.severity == "warning" for one in found)
    if as_json:
        print_json({"findings": [one.to_data() for one in found], "problems": problems})
        return int(warnings > 0)
    for one in found:
        print_finding(one)
    for host, unread in problems.items():
        for problem in unread:
            print(f"not read on {host}: {problem}")
    print(f"{warnings} warnings, {len(found) - warnings} notes")
    return int(warnings > 0)


def print_finding(one: TableFinding, mark: str = "") -> None:
    """Print one finding with the entries that it quotes; `mark` goes before its first line."""
    print(f"{mark}{one.severity} {one.check}  {one.component}\n  {one.text}")
    width = max((len(what) for what, _ in one.quotes), default=0)
    for what, entry in one.quotes:
        print(f"    {what:{width}}  {entry}")
