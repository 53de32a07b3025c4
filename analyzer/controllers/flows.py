# SPDX-License-Identifier: Apache-2.0
"""Logical flows on demand: a few rows of a table that is too large to be followed.

A connection of its own, for one question: what is asked are selects, and nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ovs.jsonrpc
import ovs.poller
import ovs.stream
import ovs.timeval

from analyzer.controllers.messages import MOST_FLOWS, AskFlows, Flows
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.ovn import flow_of
from netagent.model.errors import RemoteProtocolError, Unreachable

WAIT_MS = 10_000
"""Milliseconds that an answer may take. Chosen: a list of the uuids of a million flows takes a
server a second or two, and whoever asks waits."""
MOST_BYTES = 128 << 20
"""Bytes of answers to one question. Chosen: a million uuids are half of it; bounds memory."""
MOST_TEXT = 4 << 20
"""Characters of matches and actions in an answer. Chosen: it fits into a message, in any script."""

_DATABASE = "OVN_Southbound"
_COLUMNS = ["_uuid", "pipeline", "table_id", "priority", "match", "actions", "external_ids"]

Select = Callable[..., list[list[dict[str, Any]]]]


def read_flows(remotes: Sequence[str], asked: AskFlows) -> Flows:
    """Return the flows that are asked for, from the first remote that answers.

    Raises Unreachable where none does, or RemoteProtocolError.
    """
    failed = Unreachable(_DATABASE, "it has no remote")
    for remote in remotes:
        try:
            connection = _Connection(remote)
        except Unreachable as error:
            failed = error
            continue
        try:
            return find(connection.select, asked)
        finally:
            connection.close()
    raise failed


def find(select: Select, asked: AskFlows) -> Flows:
    """Return the flows that are asked for; `select` answers some selects together."""
    wheres = [[]] if asked.datapath is None else _of_datapath(select, asked.datapath)
    if not wheres:
        return Flows(query=asked.query, flows=())
    listed = select(*(_select("Logical_Flow", where, ["_uuid"]) for where in wheres))
    uuids = {row["_uuid"][1] for rows in listed for row in rows}
    wanted = tuple(each.lower() for each in asked.prefixes)
    found = sorted(each for each in uuids if not wanted or each.startswith(wanted))
    most = found[: max(0, min(asked.most, MOST_FLOWS))]
    flows, size = list[LogicalFlow](), 0
    by_uuid = (_select("Logical_Flow", [["_uuid", "==", ["uuid", each]]]) for each in most)
    for rows in select(*by_uuid) if most else ():
        for flow in map(_flow, rows):  # none where it is gone by now
            size += len(flow.match) + len(flow.actions)
            if size <= MOST_TEXT:
                flows.append(flow)
    return Flows(query=asked.query, flows=tuple(flows), more=len(found) - len(flows))


def _of_datapath(select: Select, number: int) -> list[list[Any]]:
    """Return the conditions of a datapath's flows: it alone has them, or shares them in groups."""
    (rows,) = select(_select("Datapath_Binding", [["tunnel_key", "==", number]], ["_uuid"]))
    if not rows:
        return []
    datapath = rows[0]["_uuid"]
    where = [["datapaths", "includes", ["set", [datapath]]]]
    (groups,) = select(_select("Logical_DP_Group", where, ["_uuid"]))
    return [
        [["logical_datapath", "==", datapath]],
        *([["logical_dp_group", "==", each["_uuid"]]] for each in groups),
    ]


def _select(table: str, where: list[Any], columns: list[str] = _COLUMNS) -> dict[str, Any]:
    return {"op": "select", "table": table, "where": where, "columns": columns}


def _flow(row: dict[str, Any]) -> LogicalFlow:
    said = row.get("external_ids") or ["map", []]
    return flow_of(row["_uuid"][1], {**row, "external_ids": dict(said[1])})


class _Connection:
    """One connection to a server, for some selects."""

    def __init__(self, remote: str) -> None:
        self._remote = remote
        self._deadline_ms = ovs.timeval.msec() + WAIT_MS
        try:
            stream = ovs.stream.Stream
            error, opened = stream.open_block(stream.open(remote), WAIT_MS)
        except OSError as why:  # of certificates
            raise Unreachable(remote, str(why)) from why
        if error:
            raise Unreachable(remote, "it refuses, or does not answer")
        self._rpc = ovs.jsonrpc.Connection(opened)

    def select(self, *operations: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Return the rows of each select, in one transaction."""
        asked = ovs.jsonrpc.Message.create_request("transact", [_DATABASE, *operations])
        self._rpc.send(asked)
        said = self._answer(asked.id)
        results = said.result
        if said.type != ovs.jsonrpc.Message.T_REPLY or not isinstance(results, list):
            raise RemoteProtocolError(f"{self._remote}: {said.error or 'no rows'}")
        if any(not isinstance(each, dict) or "rows" not in each for each in results):
            raise RemoteProtocolError(f"{self._remote}: {results!r:.200}")
        return [each["rows"] for each in results]

    def _answer(self, wanted: object) -> Any:
        rpc = self._rpc
        while ovs.timeval.msec() < self._deadline_ms and rpc.get_received_bytes() < MOST_BYTES:
            rpc.run()
            _, said = rpc.recv()
            if said is not None:
                if said.id == wanted:
                    return said
                continue
            if rpc.get_status():
                raise Unreachable(self._remote, "the connection was closed")
            poller = ovs.poller.Poller()
            rpc.wait(poller)
            rpc.recv_wait(poller)
            poller.timer_wait_until(self._deadline_ms)
            poller.block()
        raise Unreachable(self._remote, "it takes too long, or says too much")

    def close(self) -> None:
        self._rpc.close()
