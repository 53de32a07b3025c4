# SPDX-License-Identifier: Apache-2.0
"""Walk from one endpoint to another now, or between all that a task uses."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.text import paragraph, table
from netagent.model.errors import ConfigError
from netagent.terminal import NEGATIVE, USAGE

EPILOG = """\
examples:
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0 --json
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0 --layers
  netagent-analyzer diagnose pod:default/web-0 pod:default/web-1 --rail 0
  netagent-analyzer diagnose port:ab12 ip:10.0.0.11 --task train-a
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0 --protocol tcp \\
      --port 443
  netagent-analyzer diagnose --task train-a

An end is CONTAINER/railN, or pod:NAMESPACE/NAME, port:NAME (the logical port
of a controller, its iface-id) or ip:ADDRESS. --task and --rail say of which
task and rail both ends are, where a name stands for several. Pods and ports
are known where the analyzer reads a controller.

With --protocol or --port the first packet of such a connection is walked, and
the reply; else a probe. --address says where the source sends to, where the
target stands behind a load balancer. By ICMP it is an echo.

--layers also has both hosts hold their datapath and the filters of their RNIC
against their flow tables. It dumps what forwards traffic, and takes seconds.

Without ends, --task looks at the pairs that its open incidents say fail, and
at those that the task uses, 256 of them at most, one batch after the other:
agents have other work.

What becomes of a packet: it is delivered, dropped, or missed (no flow matches
it), runs in a loop or to something wrong; it is refused where somebody wants
that. "incident": all tables deliver, but an open incident is about this pair.

exit status: 0 if all walks deliver; 1 if one ends elsewhere or cannot tell; 2
usage, or there is no such end or task; 3 the analyzer cannot be reached
"""

TIMEOUT_S = 30.0
"""Seconds that a diagnosis may take. Chosen: above the two rounds of walks that the analyzer asks
of agents, 5 s each."""
LAYERS_S = 60.0
"""The same with `--layers`. Chosen: above the 30 s that hosts may take to compare besides."""
POLL_S = 10.0
"""Seconds that the analyzer holds a question about progress. Chosen: a batch takes less."""
WIDE = 33
"""Most characters of a name in a table. Chosen: two of them leave room for what became of it."""
TABLES = 9
"""Columns of margin from which on a tree has tables alone: above are ways, hosts, first tables."""
DEEP = 36
"""Most columns of margin. Chosen: the rest holds a flow's match in a few lines."""

_PREFIXES = {"pod": "pod", "port": "port", "ip": "address"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    for name, metavar in (("source", "SRC"), ("target", "DST")):
        text = "CONTAINER/railN, pod:NS/NAME, port:NAME or ip:ADDRESS"
        parser.add_argument(name, metavar=metavar, nargs="?", help=text)
    parser.add_argument("--task", metavar="TASK", help="task of both ends, or to look at whole")
    parser.add_argument("--rail", type=int, metavar="N", help="rail of both ends")
    parser.add_argument(
        "--protocol", choices=("udp", "tcp", "icmp"), help="what SRC asks DST for (probes)"
    )
    for option, text in (("--port", "destination"), ("--source-port", "source")):
        parser.add_argument(option, type=_number, metavar="N", help=f"{text} port")
    parser.add_argument("--address", help="where SRC sends to, if a load balancer's")
    parser.add_argument(
        "--layers", action="store_true", help="also compare flow tables, datapath and RNIC"
    )
    parser.add_argument(
        "--budget", type=float, metavar="S", help="seconds a whole task may take (default: 120)"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the walk as a tree and hop by hop, or what became of each pair of a task."""
    if bool(args.source) != bool(args.target) or not (args.source or args.task):
        raise ConfigError("command line", "give two ends, or --task TASK")
    if not args.source:
        if _service(args):
            raise ConfigError("command line", "a protocol or port goes with two ends")
        return _run_task(args)
    question: dict[str, object] = {
        "source": _end(args.source, args), "target": _end(args.target, args),
    }  # fmt: skip
    if args.layers:  # an older analyzer knows no such field
        question["layers"] = True
    if service := _service(args):
        question["service"] = service
    with Connection(args) as analyzer:
        timeout_s = LAYERS_S if args.layers else TIMEOUT_S
        diagnosis = _asked(analyzer, question, timeout_s)
    if args.json:
        print(json.dumps(diagnosis, indent=2))
    else:
        for line in report(diagnosis):
            print(line)
    return 0 if diagnosis["outcome"] == "delivered" else 1


def _asked(analyzer: Connection, question: dict[str, object], timeout_s: float) -> Any:
    try:
        return analyzer.post("/v1/diagnose", question, timeout_s=timeout_s)
    except Refused as error:
        if error.exit_status == NEGATIVE:
            error.exit_status = USAGE  # a slip of the pen is no packet that ends elsewhere
        raise


def _run_task(args: argparse.Namespace) -> int:
    question = {"task": args.task} | ({"budget_s": args.budget} if args.budget else {})
    with Connection(args) as analyzer:
        known = _asked(analyzer, question, TIMEOUT_S)
        results = list(known["results"])
        while known["phase"] == "running":
            _progress(known)
            path = f"/v1/diagnoses/{known['id']}"
            known = analyzer.get(path, wait_s=POLL_S, after=known["next"])
            results += known["results"]
        _progress(known)
    known["results"] = results
    if args.json:
        print(json.dumps(known, indent=2))
    else:
        for line in pairs(known):
            print(line)
    is_well = known["phase"] == "succeeded" and all(r["outcome"] == "delivered" for r in results)
    return 0 if is_well else 1


def _progress(known: dict[str, Any]) -> None:
    print(f"{known['done']} of {known['all']} pairs", file=sys.stderr)


def _service(args: argparse.Namespace) -> dict[str, object]:
    """Return what the source asks the target for; nothing where that is a probe."""
    names = ("protocol", "port", "source_port", "address")
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) > 0xFFFF:
        raise argparse.ArgumentTypeError(f"no port: {text}")
    return int(text)


def _end(text: str, args: argparse.Namespace) -> object:
    """Return an end as the API takes it: as it is written, where it is netagent's own name."""
    prefix, _, name = text.partition(":")
    way = _PREFIXES.get(prefix) if name else None
    narrowed: dict[str, object] = {}
    if args.task:
        narrowed["task"] = args.task
    if args.rail is not None:
        narrowed["rail"] = args.rail
    if way is None and not narrowed:
        return text
    return ({way: name} if way else {"endpoint": text}) | narrowed


def report(diagnosis: dict[str, Any]) -> Iterator[str]:
    """Yield the tree, then hop by hop what became of packets, then the conclusion."""
    yield f"{diagnosis['source']} -> {diagnosis['target']}"
    yield from _branches(diagnosis["tree"], "")
    if hops := diagnosis.get("observations"):
        yield ""
        yield from table(("WAY", "HOP", "DOES", "WHAT IS KNOWN"), map(_hop, hops))
    at = diagnosis.get("component")
    layer = diagnosis.get("layer")
    place = f" at {at}" if at else ""
    place += f" ({layer})" if layer else ""
    yield ""
    yield from paragraph(f"{diagnosis['outcome']}{place}", hang="  ")
    yield from paragraph(diagnosis["text"], "  ")
    yield from _besides(diagnosis)


def _besides(diagnosis: dict[str, Any]) -> Iterator[str]:
    """Yield what open incidents say of the way, else where to look for a flow that is missing."""
    hops = diagnosis.get("observations") or []
    accused = {hop["incident"]: hop for hop in hops if hop["incident"]}
    told = [hop for hop in accused.values() if diagnosis["text"] not in hop["text"]]
    for hop in told:
        yield from paragraph(f"{hop['text']} [{hop['component']}]", "  ", "    ")
    if told or diagnosis["outcome"] not in {"dropped", "missed"}:
        return
    ends = [hop for hop in hops if hop["component"] == diagnosis["component"]]
    # A cookie is a controller's; 0 is nobody's.
    if ends and ends[0]["cookie"] not in {"", "0x0"}:
        yield "  whether a flow is missing, and whose:"
        yield f"    netagent-analyzer intent diff {ends[0]['host']}"


def pairs(known: dict[str, Any]) -> Iterator[str]:
    """Yield a line per pair, those that are not well first, and how many are."""
    results = sorted(known["results"], key=lambda each: each["outcome"] == "delivered")
    header = ("SOURCE", "TARGET", "OUTCOME", "AT")
    yield from table(header, map(_pair, results))
    counts = Counter(each["outcome"] for each in results)
    yield ""
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    yield from paragraph(f"{known['done']} of {known['all']} pairs: {told or 'nothing known'}")
    if known["left_out"]:
        yield f"{known['left_out']} more pairs of the task were not looked at"
    if known["error"]:
        yield from paragraph(f"ended early: {known['error']}", hang="  ")


def _hop(hop: dict[str, Any]) -> tuple[str, ...]:
    known = f"by {hop['by']}" if hop["by"] else hop["text"]
    return hop["way"], _short(hop["component"]), hop["action"], known


def _pair(found: dict[str, Any]) -> tuple[str, ...]:
    at = found["component"] or (found["text"] if found["outcome"] != "delivered" else "")
    outcome = found["outcome"].replace("_", " ")
    return _short(found["source"], 24), _short(found["target"], 24), outcome, at


def _short(name: str, most: int = WIDE) -> str:
    """Return a name without its middle, where it is long: its ends tell what it is."""
    if len(name) <= most:
        return name
    kept = most - 3
    return f"{name[: kept // 2]}...{name[len(name) - (kept - kept // 2) :]}"


def _branches(nodes: list[dict[str, Any]], margin: str) -> Iterator[str]:
    if len(margin) >= TABLES:
        nodes = list(_chained(nodes))
    for i, node in enumerate(nodes):
        last = i == len(nodes) - 1
        below = margin + ("   " if last else "|  ")
        text = node["text"]
        deeper = " " * (len(text) - len(text.lstrip()) + 2)
        yield from paragraph(text, margin + ("`- " if last else "|- "), below + deeper)
        yield from _branches(node.get("children") or [], below if len(below) <= DEEP else margin)


def _chained(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield nodes, an only child beside its parent: OVN has dozens of tables in a row."""
    for node in nodes:
        children = node.get("children") or []
        if len(children) == 1:
            yield {**node, "children": []}
            yield from _chained(children)
        else:
            yield node
