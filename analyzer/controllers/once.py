# SPDX-License-Identifier: Apache-2.0
"""The process that answers one question by the rows of one host's databases, and ends.

A host chose these rows, so what it takes to make sense of them is bounded from outside: by the
system, and by the analyzer, which ends the process that takes too long.
"""

import json
import resource
import sys
from typing import Any

from analyzer.controllers import messages
from analyzer.controllers.difference import differences
from analyzer.controllers.flows import MOST_TEXT
from analyzer.controllers.meaning import meanings
from analyzer.controllers.messages import (
    HEAD,
    MAX_FRAME_BYTES,
    MOST_FLOWS,
    AskDifference,
    AskFlows,
    AskMeaning,
    AskOfRows,
    Flows,
    NoFlows,
    Up,
)
from analyzer.intent import selected
from analyzer.intent.earlier import Earlier
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.selected import Selected
from netagent.model.errors import NetAgentError, RemoteProtocolError
from netagent.wire.codec import inflated

CPU_S = 10
"""Seconds of CPU that a question may take. Chosen: ten thousand flows take one or two."""
MOST_BYTES = 1 << 30
"""Bytes of memory that it may take. Chosen: rows of 16 MiB take some 200 MiB as values."""

MOST_WHY = 300
"""Characters of why there is no answer. Chosen: to be read."""


def answer(asked: AskOfRows) -> Up:
    """Return the answer to a question; why there is none where rows make no sense."""
    query = asked.asked.query
    try:
        rows = selected.read(_tables(asked.southbound), _tables(asked.northbound))
        match asked.asked:
            case AskFlows():
                return flows_of(rows, asked.asked)
            case AskMeaning():
                return meanings(rows, asked.asked)
            case AskDifference():  # by rows of this one time: what was there before is not known
                return differences(rows, asked.asked, Earlier(), 0.0)
    except NetAgentError as error:
        return NoFlows(query=query, error=str(error)[:MOST_WHY])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return NoFlows(query=query, error=f"rows that are not OVN's: {error!r:.{MOST_WHY}}")


def _tables(body: bytes) -> dict[str, list[dict[str, Any]]]:
    found = json.loads(inflated(body)) if body else {}
    if not isinstance(found, dict):
        raise RemoteProtocolError("rows that are of no tables")
    return found


def flows_of(rows: Selected, asked: AskFlows) -> Flows:
    """Return the flows whose uuids begin as is asked for."""
    wanted = tuple(each.lower() for each in asked.prefixes)
    found = sorted(
        (each for each in rows.flows if each.uuid.startswith(wanted)), key=lambda each: each.uuid
    )
    told, size = list[LogicalFlow](), 0
    for flow in found[: max(0, min(asked.most, MOST_FLOWS))]:
        size += len(flow.match) + len(flow.actions)
        if size <= MOST_TEXT:
            told.append(flow)
    hints = {flow.hint for flow in told} & rows.owners.keys()
    owners = {hint: rows.owners[hint] for hint in sorted(hints)}
    return Flows(query=asked.query, flows=tuple(told), more=len(found) - len(told), owners=owners)


def main() -> int:
    """Read a framed question from stdin, and write the framed answer to stdout."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    (length,) = HEAD.unpack(sys.stdin.buffer.read(HEAD.size))
    if length > 2 * MAX_FRAME_BYTES:
        raise RemoteProtocolError(f"a question of {length} bytes")
    asked = messages.down(sys.stdin.buffer.read(length))
    if not isinstance(asked, AskOfRows):
        raise RemoteProtocolError("no question of rows")
    sys.stdout.buffer.write(messages.framed(answer(asked)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
