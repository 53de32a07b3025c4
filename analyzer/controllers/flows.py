# SPDX-License-Identifier: Apache-2.0
"""Logical flows on demand: rows of a table that is too large to be followed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from analyzer.controllers.messages import MOST_FLOWS, AskFlows, Flows
from analyzer.controllers.selecting import NORTHBOUND, SOUTHBOUND, Select, connected, selecting
from analyzer.intent import selected
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.ovn import flow_of

MOST_TEXT = 4 << 20
"""Characters of matches and actions in an answer. Chosen: it fits into a message, in any script."""

_COLUMNS = ["pipeline", "table_id", "priority", "match", "actions", "external_ids"]


def read_flows(remotes: Sequence[str], asked: AskFlows, northbound: Sequence[str] = ()) -> Flows:
    """Return the flows that are asked for, from the first remote that answers.

    With `northbound` remotes also what they were made for. Raises Unreachable where none answers,
    or RemoteProtocolError.
    """
    with connected(SOUTHBOUND, remotes) as select:
        found = find(select, asked)
    hints = {flow.hint for flow in found.flows} - {""}
    if not northbound or not hints:
        return found
    with connected(NORTHBOUND, northbound) as select:
        tables = selected.NORTHBOUND
        rows = select(*(selecting(name, [], columns) for name, columns in tables.items()))
    owners = selected.read({}, dict(zip(tables, rows, strict=True))).owners
    return msgspec.structs.replace(found, owners={h: owners[h] for h in hints & owners.keys()})


def find(select: Select, asked: AskFlows) -> Flows:
    """Return the flows that are asked for; `select` answers some selects together."""
    wheres = [[]] if asked.datapath is None else _of_datapath(select, asked.datapath)
    if not wheres:
        return Flows(query=asked.query, flows=())
    listed = select(*(selecting("Logical_Flow", where, []) for where in wheres))
    uuids = {row["_uuid"][1] for rows in listed for row in rows}
    wanted = tuple(each.lower() for each in asked.prefixes)
    found = sorted(each for each in uuids if not wanted or each.startswith(wanted))
    most = found[: max(0, min(asked.most, MOST_FLOWS))]
    flows, size = list[LogicalFlow](), 0
    by_uuid = (
        selecting("Logical_Flow", [["_uuid", "==", ["uuid", each]]], _COLUMNS) for each in most
    )
    for rows in select(*by_uuid) if most else ():
        for flow in map(_flow, rows):  # none where it is gone by now
            size += len(flow.match) + len(flow.actions)
            if size <= MOST_TEXT:
                flows.append(flow)
    return Flows(query=asked.query, flows=tuple(flows), more=len(found) - len(flows))


def _of_datapath(select: Select, number: int) -> list[list[Any]]:
    """Return the conditions of a datapath's flows: it alone has them, or shares them in groups."""
    (rows,) = select(selecting("Datapath_Binding", [["tunnel_key", "==", number]], []))
    if not rows:
        return []
    datapath = rows[0]["_uuid"]
    where = [["datapaths", "includes", ["set", [datapath]]]]
    (groups,) = select(selecting("Logical_DP_Group", where, []))
    return [
        [["logical_datapath", "==", datapath]],
        *([["logical_dp_group", "==", each["_uuid"]]] for each in groups),
    ]


def _flow(row: dict[str, Any]) -> LogicalFlow:
    said = row.get("external_ids") or ["map", []]
    return flow_of(row["_uuid"][1], {**row, "external_ids": dict(said[1])})
