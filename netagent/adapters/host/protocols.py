# SPDX-License-Identifier: Apache-2.0
"""The only thing that an agent ever writes into OVSDB: which versions of OpenFlow a bridge speaks.

Each change is a transaction that is refused unless the value is what was read (RFC 7047, 5.2.6).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netagent.adapters.host.vswitchd import VswitchdError, exchange
from netagent.concurrency import timeout
from netagent.model.errors import NetAgentError, RemoteProtocolError, Unreachable
from netagent.model.unixctl import Call

ANSWER_S = 3.0
"""Seconds ovsdb-server has to answer. Chosen: it takes milliseconds."""
TAKEN_S = 8.0
"""Seconds ovs-vswitchd has to take a change. Chosen: a large reconfiguration takes about one, and
a request has two of them within its deadline."""
LOOK_S = 0.02
"""Seconds between two looks at whether it did. Chosen: a bridge is on its detour for that long."""
_MAX_ANSWER = 1 << 20
"""Bytes of an answer. Chosen: rows of one bridge."""


class Changed(NetAgentError):
    """Somebody else changed the bridge meanwhile; what they wrote stays."""


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """What is read of a bridge."""

    protocols: tuple[str, ...]
    """In alphabetical order: OVSDB keeps none."""
    external_ids: Mapping[str, str] = field(default_factory=dict)


async def read_bridge(socket: Path, name: str) -> BridgeRow | None:
    """Return the bridge; None where there is none. Raises Unreachable, RemoteProtocolError."""
    columns = ["protocols", "external_ids"]
    select = {"op": "select", "table": "Bridge", "where": _named(name), "columns": columns}
    (answer,) = await _transact(socket, select)
    rows = answer.get("rows") or []
    if not rows:
        return None
    row = rows[0]
    try:
        return BridgeRow(_words(row["protocols"]), dict(row["external_ids"][1]))
    except (LookupError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"bridge {name}: {error!r}") from error


async def exchange_protocols(
    socket: Path, name: str, was: tuple[str, ...], becomes: tuple[str, ...]
) -> None:
    """Change the protocols of a bridge, and return once ovs-vswitchd has taken them.

    Raises Changed where they are not `was`, Unreachable where nobody answers or takes them in
    time, RemoteProtocolError where the change is refused.
    """
    where = _named(name)
    answers = await _transact(
        socket,
        {
            "op": "wait", "timeout": 0, "table": "Bridge", "where": where, "until": "==",
            "columns": ["protocols"], "rows": [{"protocols": ["set", list(was)]}],
        },
        {
            "op": "update", "table": "Bridge", "where": where,
            "row": {"protocols": ["set", list(becomes)]},
        },
        {
            "op": "mutate", "table": "Open_vSwitch", "where": [],
            "mutations": [["next_cfg", "+=", 1]],
        },
        {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]},
        {"op": "comment", "comment": f"netagent: {name} installs its flows anew"},
    )  # fmt: skip
    wanted = _number(answers[3], "next_cfg")
    try:
        async with timeout(TAKEN_S):
            while await _taken(socket) < wanted:  # noqa: ASYNC110 - a monitor for one number
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Unreachable("ovs-vswitchd", f"it took no change within {TAKEN_S:g} s") from None


async def _taken(socket: Path) -> int:
    select = {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"]}
    (answer,) = await _transact(socket, select)
    return _number(answer, "cur_cfg")


async def _transact(socket: Path, *operations: Mapping[str, object]) -> list[Any]:
    call = Call("transact", ["Open_vSwitch", *operations], max_bytes=_MAX_ANSWER)
    try:
        async with timeout(ANSWER_S):
            answers = await exchange(socket, call)
    except TimeoutError:
        raise Unreachable("ovsdb-server", f"no answer within {ANSWER_S:g} s") from None
    except OSError as error:
        raise Unreachable("ovsdb-server", f"{socket}: {error.strerror or error}") from error
    except VswitchdError as error:
        raise Unreachable("ovsdb-server", str(error)) from error
    if not isinstance(answers, list):
        raise RemoteProtocolError(f"ovsdb-server answers {str(answers)[:200]}")
    # Operations after one that failed have none.
    for answer in answers:
        if isinstance(answer, dict) and answer.get("error"):
            if answer["error"] == "timed out":
                raise Changed("somebody else changed the bridge's protocols")
            text = f"{answer['error']}: {answer.get('details', '')}"
            raise RemoteProtocolError(f"ovsdb-server refuses: {text[:500]}")
    if len(answers) < len(operations) or not all(isinstance(each, dict) for each in answers):
        raise RemoteProtocolError(f"ovsdb-server answers {str(answers)[:200]}")
    return answers


def _named(name: str) -> list[object]:
    return [["name", "==", name]]


def _words(value: Any) -> tuple[str, ...]:
    """Return a set of strings as OVSDB writes it; a single one is written alone."""
    if isinstance(value, str):
        return (value,)
    kind, members = value
    if kind != "set":
        raise ValueError(f"{kind!r} is no set")
    return tuple(sorted(str(each) for each in members))


def _number(answer: Any, column: str) -> int:
    try:
        return int(answer["rows"][0][column])
    except (LookupError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"{column}: {str(answer)[:200]}") from error
