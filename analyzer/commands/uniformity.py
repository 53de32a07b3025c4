# SPDX-License-Identifier: Apache-2.0
"""Say what RNICs and hosts have that most of their kind have not."""

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import cut, paragraph

EPILOG = """\
examples:
  netagent-analyzer uniformity
  netagent-analyzer uniformity --json | jq -r '.properties[].odd[].name'

RNICs are compared with those of their model, hosts with those whose RNICs are
of the same one. Who differs is named where nine in ten of the other hosts
agree, and eight at least. "cannot tell" is no fault: halves, or too few hosts.
In a rollout hosts turn from one value to another; who has neither is named.
It says what is now: hosts tell it once a minute.
exit status: 0; 1 if an RNIC or a host differs; 3 if the analyzer cannot be
reached
"""

MAX_ODD = 8
"""Most lines of who differs in one property: RNICs, or a host's together. Chosen: a screen holds
several properties."""
MAX_MODELS = 4
"""Most models of too few hosts that are named. Chosen: two lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    again.add_arguments(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what differs."""
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/uniformity", "properties")
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for line in report(answer):
            print(line)
    return 1 if any(each["odd"] for each in answer["properties"]) else 0


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a summary, then each model, RNICs before hosts, then models of too few hosts."""
    known = answer["properties"]
    yield f"{answer['hosts']} of {answer['agents']} agents say what their hosts have"
    if not known:
        return
    enough = [each for each in known if each["state"] != "few"]
    yield _summary(enough, len(known) - len(enough))
    enough.sort(key=lambda each: each["kind"] != "rnic")
    for (kind, model), same in groupby(enough, key=lambda each: (each["kind"], each["model"])):
        yield ""
        yield from _model(kind, model, list(same))
    yield from _few([each for each in known if each["state"] == "few"])


def _summary(enough: list[dict[str, Any]], few: int) -> str:
    def count(state: str) -> int:
        return sum(each["state"] == state for each in enough)

    told = f"{len(enough) + few} properties compared: {count('alike')} alike everywhere"
    for state, text in (("different", "{} not"), ("rollout", "{} in a rollout")):
        told += f", {text.format(count(state))}" if count(state) else ""
    unknown = count("split") + few
    return cut(told + (f", {unknown} cannot be told" if unknown else ""))


def _model(kind: str, model: str, same: list[dict[str, Any]]) -> Iterator[str]:
    most = max(same, key=lambda each: each["parts"])
    if kind == "rnic":
        yield cut(f"RNICs {model}: {most['parts']} in {most['hosts']} hosts")
    else:
        yield cut(f"hosts with {model or 'no RNIC'}: {most['parts']}")
    for each in same:
        if each["state"] != "alike":
            yield from paragraph(f"{each['property']}: {_said(each)}", "  ", "    ")
            yield from _odd(each)
    alike = [
        f"{each['property']} {each['values'][0]['value']}"
        for each in same
        if each["state"] == "alike"
    ]
    if alike:
        yield from paragraph(f"alike: {', '.join(alike)}", "  ", "    ")


def _said(of: dict[str, Any]) -> str:
    values = list(of["values"])
    if of["state"] == "split":
        return f"cannot tell: {_have(values, of['more_values'])}"
    usual = _have([each for each in values if each["usual"]], 0)
    if of["state"] == "rollout":
        return f"{usual}: a rollout, {of['turned']} hosts turned within a day"
    return f"{usual}, but {len(of['odd']) + of['more_odd']} not"


def _have(values: Iterable[dict[str, Any]], more: int) -> str:
    told = [f"{each['parts']} have {each['value']}" for each in values]
    return ", ".join(told) + (f", others {more} more values" if more else "")


def _odd(of: dict[str, Any]) -> Iterator[str]:
    more = len(of["odd"]) + of["more_odd"]
    alike = groupby(of["odd"], key=lambda each: (each["name"].partition("/")[0], each["value"]))
    for (host, value), same in islice(alike, MAX_ODD):
        names = [each["name"] for each in same]
        more -= len(names)
        who = names[0] if len(names) == 1 else f"{host} ({len(names)} RNICs)"
        yield cut(f"    {who}  {value}")
    if more:
        yield f"    and {more} more; --json lists {len(of['odd'])}"


def _few(few: list[dict[str, Any]]) -> Iterator[str]:
    models = sorted({each["model"] for each in few if each["kind"] == "rnic"})
    if models:
        named = ", ".join(models[:MAX_MODELS])
        more = len(models) - MAX_MODELS
        yield ""
        text = f"cannot tell of models that too few hosts have: {named}"
        yield from paragraph(text + (f" and {more} more" if more > 0 else ""), hang="  ")
