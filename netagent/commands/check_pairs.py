# SPDX-License-Identifier: Apache-2.0
"""``netagent check --bundle``: pairs of endpoints over the bundles of several hosts."""

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netagent.commands.asking import print_json
from netagent.commands.vswitch import refuse_twins, told_by, untold_by
from netagent.config import AgentConfig, OvsConfig, load
from netagent.host.controllers import Rules
from netagent.model.errors import ConfigError
from netagent.model.ids import EndpointId
from ovs_checks.openflow.addresses import TwoFamilies
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.underlay import read_underlay
from ovs_checks.walk.pairs import Attached, PairReach, Site, check_pair
from ovs_checks.walk.reach import Reach

Pair = tuple[EndpointId, EndpointId]


def run(arguments: argparse.Namespace) -> int:
    """Print what becomes of the pairs' packets; return 1 unless all arrive, there and back."""
    config = load(arguments.config) if arguments.config else None
    bridge = arguments.bridge or (config.ovs if config else OvsConfig()).integration_bridge
    rules = config.endpoints.rules() if config else None
    sites, problems = [], {}
    for path in arguments.bundle:
        site, unread = _site(path, bridge, rules)
        sites.append(site)
        problems[site.snapshot.host] = unread
    refuse_twins(site.snapshot.host for site in sites)
    found = []
    for number, (source, target) in enumerate(_pairs(arguments, sites), start=1):
        if sys.stderr.isatty() and not number % 100:
            print(f"\r{number} pairs", end="", file=sys.stderr)
        try:
            ports = {"source_port": arguments.source_port, "port": arguments.port}
            found.append(check_pair(sites, source, target, **ports))
        except LookupError as e:
            known = ", ".join(site.snapshot.host for site in sites)
            message = f"{e} (bundles of: {known}){_reasons(problems, config)}"
            raise ConfigError("command line", message) from e
        except TwoFamilies as e:
            raise ConfigError("command line", f"{source} -> {target}: {e}") from e
    if not found and arguments.pairs:
        raise ConfigError(arguments.pairs, "has no pairs")
    if not found:
        message = f"no pairs: no endpoints of one task on {bridge}"
        raise ConfigError("command line", message + _reasons(problems, config))
    if arguments.json:
        print_json({"pairs": [_data(one) for one in found], "problems": problems})
    else:
        _show(found, trees=bool(arguments.source), problems=problems)
    return int(not all(one.delivered for one in found))


def _reasons(problems: dict[str, list[str]], config: AgentConfig | None) -> str:
    """Say why an endpoint that one expects may not be known."""
    unread = [f"not read on {host}: {each}" for host, said in problems.items() for each in said]
    if config is None:
        unread.append("a controller's external_ids are read with --config")
    return "".join(f"; {each}" for each in unread)


def _site(path: str, bridge: str, rules: Rules | None) -> tuple[Site, list[str]]:
    answers = open_answers(Path(path))
    snapshot = assemble(answers, answers.host, wall_ns=answers.wall_ns)
    endpoints = {}
    for one in told_by(snapshot, bridge, rules):
        port = snapshot.port(one.interface)
        mtu = port.mtu if port and port.mtu else one.mtu
        endpoints[one.id] = Attached(one.interface, one.address, one.mac, mtu, one.task)
    underlay, unread = read_underlay(answers.told)
    untold = untold_by(snapshot, bridge, rules)
    return Site(snapshot, endpoints, underlay), [*snapshot.problems, *untold, *unread]


def _pairs(arguments: argparse.Namespace, sites: Sequence[Site]) -> list[Pair]:
    if sum(map(bool, (arguments.source, arguments.pairs, arguments.all))) > 1:
        raise ConfigError("command line", "SOURCE TARGET, --pairs or --all, not several of these")
    if arguments.pairs:
        return list(_listed(Path(arguments.pairs)))
    if arguments.all:
        everyone = [(one, at) for site in sites for one, at in site.endpoints.items()]
        return [
            (a, b)
            for (a, at_a), (b, at_b) in itertools.combinations(everyone, 2)
            if (a.rail, at_a.task) == (b.rail, at_b.task) and a.container != b.container
            if (":" in at_a.address) == (":" in at_b.address)  # else no packet goes between them
        ]
    try:
        return [(arguments.source, EndpointId.parse(arguments.target))]
    except (TypeError, AttributeError, ValueError) as e:
        message = "name SOURCE and TARGET (CONTAINER/railN), --pairs or --all"
        raise ConfigError("command line", message) from e


def _listed(path: Path) -> Iterable[Pair]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(str(path), getattr(e, "strerror", "") or str(e)) from e
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        try:
            if words:
                source, target = map(EndpointId.parse, words)
                yield source, target
        except ValueError as e:
            raise ConfigError(str(path), f"SOURCE TARGET expected: {e}", number) from e


def _show(found: Sequence[PairReach], *, trees: bool, problems: dict[str, list[str]]) -> None:
    for pair in found:
        ways = ((pair.source, pair.target, pair.there), (pair.target, pair.source, pair.back))
        for source, target, reach in ways:
            if trees:
                print(f"{source} -> {target}")
                print(reach.tree())
            elif reach.outcome != "delivered":
                print(f"{source} -> {target}: {reach.verdict}", *reach.quotes, sep="\n")
    for host, unread in problems.items():
        for problem in unread:
            print(f"not read on {host}: {problem}")
    arrived = sum(pair.delivered for pair in found)
    print(f"{arrived} of {len(found)} pairs arrive, there and back")


def _data(pair: PairReach) -> dict[str, Any]:
    return {
        "source": str(pair.source),
        "target": str(pair.target),
        "there": _reach_data(pair.there),
        "back": _reach_data(pair.back),
    }


def _reach_data(reach: Reach) -> dict[str, Any]:
    named = {"component": str(reach.component or ""), "tunnel": str(reach.tunnel or "")}
    return {**asdict(reach), **named, "tree": reach.tree()}
