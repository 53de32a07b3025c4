# SPDX-License-Identifier: Apache-2.0
"""What ends of walks mean, of which a host's flows and the rows that made them tell."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.controllers.messages import AskMeaning, Meanings
from analyzer.controllers.selecting import NORTHBOUND, SOUTHBOUND, Select, connected, selecting
from analyzer.intent import selected
from analyzer.intent.logical import difference
from analyzer.intent.model import Port
from analyzer.intent.reading import read_end
from analyzer.intent.selected import Selected
from analyzer.questions import CHANGED, Meant
from netagent.wire.walk import End

_FLOWS = "Logical_Flow"


def read_meaning(
    northbound: Sequence[str], southbound: Sequence[str], asked: AskMeaning
) -> Meanings:
    """Return what is asked for, of both databases' rows.

    Raises Unreachable, or RemoteProtocolError.
    """
    with connected(SOUTHBOUND, southbound) as select:
        south = _southbound(select, asked.chassis)
    with connected(NORTHBOUND, northbound) as select:
        north = _tables(select, selected.NORTHBOUND)
    return meanings(selected.read(south, north), asked)


def meanings(rows: Selected, asked: AskMeaning) -> Meanings:
    """Return what each end means that is asked about, by rows of both databases."""
    host, explainer = rows.host(asked.chassis), rows.explainer()
    installed = Counter((cookie, metadata) for _, cookie, metadata in asked.installed)
    missing = difference(rows.flows, host, installed, rows.others).missing
    tables: defaultdict[int, set[int]] = defaultdict(set)
    for table, cookie, _ in asked.installed:
        tables[table].add(cookie)
    places = {explainer.place_of(cookies): table for table, cookies in tables.items()}
    ports = {name: Port(name, is_enabled=False) for name in asked.disabled}

    here = {cookie for cookie, _ in installed}

    def meant(end: End) -> Meant:
        if end.flow and end.flow.cookie not in here:
            return Meant(meaning=CHANGED, text="the flow that dropped it is gone")
        reading = read_end(end, explainer, host, missing, ports=ports)
        if reading is None:
            return Meant()
        flow = reading.flow
        place = (flow.pipeline, flow.table) if flow is not None else None
        return Meant(
            meaning=reading.meaning.value,
            text=reading.text,
            by=reading.by,
            table=places.get(place, -1) if place is not None else -1,
            part=f"port {reading.port}" if reading.port else "",
        )

    return Meanings(query=asked.query, meant=tuple(map(meant, asked.ends)))


def _southbound(select: Select, chassis: str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows but logical flows, and of these those of the chassis' datapaths."""
    tables = {name: c for name, c in selected.SOUTHBOUND.items() if name != _FLOWS}
    rows = _tables(select, tables)
    names = selected.read(rows, {}).host(chassis).datapaths
    keys = {key for key, number in _numbers(rows).items() if number in names.values()}
    groups = [
        row["_uuid"][1]
        for row in rows["Logical_DP_Group"]
        if keys & {each[1] for each in selected.members(row["datapaths"])}
    ]
    wheres = [
        *([["logical_datapath", "==", ["uuid", key]]] for key in sorted(keys)),
        *([["logical_dp_group", "==", ["uuid", key]]] for key in sorted(groups)),
    ]
    columns = selected.SOUTHBOUND[_FLOWS]
    found = select(*(selecting(_FLOWS, where, columns) for where in wheres)) if wheres else []
    rows[_FLOWS] = [row for of in found for row in of]
    return rows


def _tables(select: Select, tables: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    found = select(*(selecting(name, [], columns) for name, columns in tables.items()))
    return dict(zip(tables, found, strict=True))


def _numbers(rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, int]:
    return {row["_uuid"][1]: row["tunnel_key"] for row in rows["Datapath_Binding"]}
