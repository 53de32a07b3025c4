# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz [--minutes N] [--seed N]`: feed damaged dumps to every reader.

Real dumps are cut, spliced and overwritten at random. A reader may return or raise the errors that
it documents; anything else is a crash: its input is written to `build/fuzz`, and the exit status
is 1.
"""

import argparse
import json
import pickle
import random
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from analyzer.detect.operators.judging import judged
from analyzer.intake.controller import check_controller
from analyzer.intake.operators import log_of_replies, reported
from analyzer.localize.tomography.flowfile import COLUMNS, links_of, observed, rows_of_csv
from analyzer.operators.keeper import Keeper
from analyzer.operators.sources import recognise, table
from analyzer.simulate.fattree import FatTree, Silent
from analyzer.store.operations import read_table
from netagent.collect import operators
from netagent.collect.operators import OperatorTally, Process, Said
from netagent.model.errors import NetAgentError
from netagent.model.unixctl import find_reply
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.controller import ControllerState, PluggedPort, Working
from netagent.wire.conversion import walk_from_wire
from netagent.wire.operators import OperatorsRequest
from netagent.wire.walk import LocalWalk
from netagent_torch import form
from ovs_checks.datapath.essence import essence
from ovs_checks.datapath.key import parse_key
from ovs_checks.datapath.layers import parse_filters, parse_megaflows
from ovs_checks.openflow.frame import read_frame
from ovs_checks.openflow.parse import parse_dump, parse_packet
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.bonds import parse_bonds
from ovs_checks.switch.bundle import unpack
from ovs_checks.switch.database_log import rows_of
from ovs_checks.switch.rows import TABLES
from ovs_checks.switch.shows import (
    parse_datapath_ports,
    parse_dpif,
    parse_fdb,
    parse_features,
    parse_fragments,
    parse_groups,
    parse_listeners,
    parse_meters,
    parse_neighbours,
    parse_options,
    parse_ports,
    parse_routes,
    parse_tree,
)
from ovs_checks.switch.underlay import read_underlay

DUMPS = Path(__file__).parent.parent / "ovs_checks" / "dumps"
OPERATORS = Path(__file__).parent.parent / "analyzer" / "operators" / "sources" / "dumps"
CRASHES = Path("build/fuzz")
MAX_CHARACTERS = 4000
MAX_CRASHES = 20
"""In different places; then it stops."""

SYNTAX = (
    *"(),=:/[]{}.-+|\"' \n\t\\\u2028\x00",
    *("0xffffffffffffffff", "18446744073709551616", "-1", "{}", "[]", "null", "NXM_NX_REG0[0..31]"),
    *("actions=", "ct(", "learn(", "set_field:", "->", "resubmit(,", "conjunction(1,2/3)", "note:"),
    *("group_id=", "bucket=", "in_port(", "tunnel(", "geneve({", "cookie=", "priority=65536"),
    "set(tunnel(tun_id=0x64,dst=1.1.1.1))",
)


def _dump(text: str) -> object:
    dump = parse_dump(text)
    return [flow.actions for flow in dump.flows], [str(problem) for problem in dump.problems]


def _walk(text: str) -> object:
    return walk_from_wire(decode(text.encode(errors="replace"), LocalWalk, ContentType.JSON))


def _controller(text: str) -> None:
    body = text.encode(errors="replace")
    check_controller(decode(body, ControllerState, ContentType.JSON))


def _operators(text: str) -> object:
    """Read a text as each kind of file that a log of operators may be in; pickles byte for byte."""
    whole = text.encode(errors="replace")
    for content in (whole, b"\x80\x02" + text.encode("latin-1", "replace")):
        try:
            judged(recognise.read({"rank_0": content, "rank_1": whole}))
        except NetAgentError:
            continue
    return None


def _rings(text: str) -> object:
    """Read a text as a ring behind a head that makes sense: from a file, and as an agent does."""
    lines, _, records = text.encode("latin-1", "replace").partition(b"\0")
    count = len(records) // form.RECORD_BYTES + 1
    head = form.Head(count, len(lines), count, len(lines), 7, 10**18, 10**9, 0)
    ring = form.pack_head(head).ljust(form.HEAD_BYTES, b"\0") + lines + records
    process = Process(head, said=Said.of(form.read_lines(lines)))
    process.take(form.read_records(records))
    tally = OperatorTally()
    tally.processes["1.ring"] = process
    said = tally.close(10**18)
    request = OperatorsRequest(job=process.said.job)
    reply = operators.answer(request, [(process, form.read_records(records))])
    judged(log_of_replies([("h1", reply)]))
    if said is not None:
        keeper = Keeper()
        keeper.take("h1", reported(said), 10**18)
        judged(keeper.log(process.said.job))
    return judged(recognise.read({"1.ring": ring}))


def _table(text: str) -> object:
    with NamedTemporaryFile(suffix=".csv") as file:
        file.write(text.encode(errors="replace"))
        file.flush()
        return judged(table.log(read_table([Path(file.name)])))


_TYPES = (b"\x08\0E", b"\x86\xdd`", b"\x08\x06", b"\x88G", b"\x81\0")
FRAMES = [bytes(12) + begin for begin in _TYPES]
"""Frames as far as what they carry: IPv4, IPv6, ARP, MPLS, a tag."""

READERS: Mapping[str, Callable[[str], object]] = {
    "flows": _dump,
    "packet": parse_packet,
    "datapath key": parse_key,
    "megaflows": parse_megaflows,
    "actions": lambda text: essence(text.rpartition("actions:")[2], {}, exact=False),
    "tc": lambda text: parse_filters(text, "eth0"),
    "groups": lambda text: parse_groups(text, {}),
    "ports": parse_ports,
    "fragments": parse_fragments,
    "tree": parse_tree,
    "bonds": parse_bonds,
    "frame": lambda text: [read_frame(begin + text.encode(errors="replace")) for begin in FRAMES],
    "dpif": parse_dpif,
    "datapath ports": parse_datapath_ports,
    "fdb": parse_fdb,
    "features": parse_features,
    "meters": parse_meters,
    "tlv map": parse_options,
    "routes": parse_routes,
    "neighbours": parse_neighbours,
    "listeners": parse_listeners,
    "database": lambda text: rows_of(text, TABLES),
    "manifest": lambda text: unpack({"manifest.json": text, "ovsdb.json": "{}"}),
    "underlay": lambda text: read_underlay(lambda _: text)[0].fault("1.2.3.4", kind="gre", mtu=9),
    "reply": lambda text: find_reply(text.encode(errors="replace")),
    "walk": _walk,
    "controller": _controller,
    "flow file": lambda text: observed(rows_of_csv(text.splitlines(), [])),
    "operators": _operators,
    "operations": _table,
    "rings": _rings,
    "edges": lambda text: links_of(text.splitlines()),
}
ALLOWED = (NetAgentError, json.JSONDecodeError)


def main() -> int:
    """Fuzz until the time is up; return 1 if a reader crashed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Feed damaged dumps to every reader.",
        epilog="example: python -m tests.fuzz --minutes 10",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    arguments = parser.parse_args()
    rng, corpus = random.Random(arguments.seed), seeds()
    deadline = time.monotonic() + 60 * arguments.minutes
    tried: Counter[str] = Counter()
    crashes: set[str] = set()
    while time.monotonic() < deadline and len(crashes) < MAX_CRASHES:
        text = damaged(rng, corpus)
        for name, read in READERS.items():
            tried[name] += 1
            where = crashed(read, text)
            if where is not None and where not in crashes:
                crashes.add(where)
                _keep(name, text, where)
    said = {"minutes": arguments.minutes, "seed": arguments.seed, "crashes": len(crashes)}
    print(json.dumps({"fuzz": dict(tried), **said}))
    return int(bool(crashes))


def seeds() -> list[str]:
    """Return what real programs printed."""
    shown = [*DUMPS.glob("*.txt"), *DUMPS.glob("*.show")]
    texts = [path.read_text() for path in sorted(shown)]
    answers = open_answers(DUMPS / "tc-in-software.tar.gz")
    texts.append(json.dumps(answers.rows()))
    for archive in sorted(DUMPS.glob("*.tar.gz")):
        texts += [answer.text for answer in getattr(open_answers(archive), "answers", ())]
    texts += [_flow_file(), _said_of_a_controller(), *_logs_of_operators()]
    return [text for text in texts if text.strip()]


def _flow_file() -> str:
    rows = [",".join(COLUMNS)]
    for flow in FatTree(4, Silent()).flows(40):
        path = ";".join(map("|".join, flow.ways))
        rows.append(f"{flow.source},{flow.target},{path},{flow.sent},{flow.lost},15.5,2")
    return "\n".join(rows)


def _logs_of_operators() -> list[str]:
    """Return a real dump's beginning, as JSON and as a pickle whose bytes are letters; a table."""
    [path, *_] = sorted(OPERATORS.glob("*/*.json"))
    dump = json.loads(path.read_text())
    dump["entries"] = dump["entries"][-3:]
    columns = ",".join(table.COLUMNS)
    row = "0,collective,all_reduce,1,2,0,dp0,,0,4096,,0,0,0,0"
    pickled = pickle.dumps(dump, 2).decode("latin-1")
    return [json.dumps(dump), pickled, f"{columns}\n{row}\n{row}\n", _ring()]


def _ring() -> str:
    """Return a ring's lines and records, whose bytes are letters."""
    said = (
        {"job": "train-a", "rank": 0, "world": 2}, {"op": 0, "name": "all_reduce"},
        {"group": 0, "name": "0:world", "size": 2, "members": [0, 1]},
    )  # fmt: skip
    records = [
        form.RECORD.pack(n, 10**6 * n, 10**6 * n, 10**6 * n + 9, 64, n, n, -1, 0, 0, 2, 0)
        for n in range(1, 8)
    ]
    lines = b"\n".join(json.dumps(each).encode() for each in said)
    return (lines + b"\0" + b"".join(records)).decode("latin-1")


def _said_of_a_controller() -> str:
    port = PluggedPort(name="ns_pod-0", interface="veth0", mac="0a::1", addresses=("10.0.0.1",))
    said = ControllerState(
        source="ovn", chassis="h1", central="tcp:10.9.0.1:6642", kinds=("geneve",),
        encapsulations=("10.99.0.1",), addresses=("10.99.0.1", "fd00::1"),
        working=Working.CONNECTED, generation=7, ports=(port,),
    )  # fmt: skip
    return encode(said, ContentType.JSON).decode()


def damaged(rng: random.Random, corpus: Sequence[str]) -> str:
    """Return a piece of a dump with some damage."""
    text = _piece(rng, corpus)
    for _ in range(rng.randrange(8)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 4, 40)))
        patch = rng.choice(
            (
                "",
                rng.choice(SYNTAX),
                chr(rng.randrange(1, 0x250)),
                _piece(rng, corpus)[: rng.randrange(60)],
                text[at:end] * rng.randrange(4),
            )
        )
        text = text[:at] + patch + text[end:]
    return text[:MAX_CHARACTERS]


def _piece(rng: random.Random, corpus: Sequence[str]) -> str:
    text = rng.choice(corpus)
    lines = text.splitlines(keepends=True)
    start = rng.randrange(len(lines))
    return "".join(lines[start : start + rng.choice((1, 1, 3, 12))])


def crashed(read: Callable[[str], object], text: str) -> str | None:
    """Read a text; return where that ends in an error that nobody documents, if it does."""
    try:
        read(text)
    except ALLOWED:
        return None
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{Path(last.filename).name}:{last.lineno}: {error!r}"[:300]
    return None


def _keep(name: str, text: str, where: str) -> None:
    CRASHES.mkdir(parents=True, exist_ok=True)
    path = CRASHES / f"{name.replace(' ', '-')}-{zlib.crc32(text.encode(errors='replace')):08x}.txt"
    path.write_text(text, errors="replace")
    print(f"{name}: {where}\n  {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
