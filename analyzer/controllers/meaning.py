# SPDX-License-Identifier: Apache-2.0
"""What ends of walks mean, of which a host's flows and the rows that made them tell."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analyzer.controllers import messages
from analyzer.controllers.messages import AskMeaning
from analyzer.controllers.selecting import NORTHBOUND, SOUTHBOUND, connected, selecting
from analyzer.intent import selected
from analyzer.intent.logical import difference
from analyzer.intent.model import Port
from analyzer.intent.reading import read_end
from analyzer.intent.selected import Selected
from analyzer.questions import CHANGED, Meant
from netagent.model.errors import RemoteProtocolError
from netagent.wire.walk import End

Row = dict[str, Any]
KEPT_S = 3.0
"""Seconds for which rows are kept that were read. Chosen: where a switch fails, many hosts are
asked about in one window, and the database answers once; the next window has what changed."""
BUDGET_S = 1.0
"""Seconds that ends of one host may take, beside what its flows do. Chosen: where few flows are
missing they take milliseconds, and other hosts' questions wait meanwhile."""
_FLOWS = "Logical_Flow"


class Meanings:
    """Answers what ends mean, of both databases' rows as they were seconds ago at most."""

    def __init__(
        self,
        northbound: Sequence[str],
        southbound: Sequence[str],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remotes = {NORTHBOUND: northbound, SOUTHBOUND: southbound}
        self._now_s = now_s
        self._read_s = -KEPT_S
        self._tables: dict[str, dict[str, list[Row]]] = {}
        """Database -> its tables but the logical flows."""
        self._flows: dict[tuple[str, str], list[Row]] = {}
        """Column and identity of a datapath or group -> its logical flows."""

    def read(self, asked: AskMeaning) -> messages.Meanings:
        """Return what is asked for; raises Unreachable, or RemoteProtocolError."""
        if self._now_s() - self._read_s >= KEPT_S:
            self._flows.clear()
            self._tables.clear()
            tables = {name: c for name, c in selected.SOUTHBOUND.items() if name != _FLOWS}
            self._tables[SOUTHBOUND] = self._select(SOUTHBOUND, tables)
            self._tables[NORTHBOUND] = self._select(NORTHBOUND, selected.NORTHBOUND)
            self._read_s = self._now_s()
        south = self._tables[SOUTHBOUND]
        flows = self._flows_of(south, asked.chassis)
        return meanings(selected.read(south | {_FLOWS: flows}, self._tables[NORTHBOUND]), asked)

    def _flows_of(self, south: Mapping[str, list[Row]], chassis: str) -> list[Row]:
        """Return the logical flows of a chassis' datapaths, each of which is read once."""
        numbers = selected.read(south, {}).host(chassis).datapaths.values()
        keys = {
            row["_uuid"][1] for row in south["Datapath_Binding"] if row["tunnel_key"] in numbers
        }
        groups = {
            row["_uuid"][1]
            for row in south["Logical_DP_Group"]
            if keys & {each[1] for each in selected.members(row["datapaths"])}
        }
        wanted = [("logical_datapath", key) for key in sorted(keys)]
        wanted += [("logical_dp_group", key) for key in sorted(groups)]
        new = [each for each in wanted if each not in self._flows]
        if new:
            columns = selected.SOUTHBOUND[_FLOWS]
            with connected(SOUTHBOUND, self._remotes[SOUTHBOUND]) as select:
                found = select(
                    *(
                        selecting(_FLOWS, [[name, "==", ["uuid", key]]], columns)
                        for name, key in new
                    )
                )
            self._flows.update(zip(new, found, strict=True))
        return [row for each in wanted for row in self._flows[each]]

    def _select(self, database: str, tables: Mapping[str, Sequence[str]]) -> dict[str, list[Row]]:
        with connected(database, self._remotes[database]) as select:
            found = select(*(selecting(name, [], columns) for name, columns in tables.items()))
        return dict(zip(tables, found, strict=True))


def meanings(rows: Selected, asked: AskMeaning) -> messages.Meanings:
    """Return what each end means that is asked about, by rows of both databases.

    Raises RemoteProtocolError where that takes too long: a host can make it so, by what it says.
    """
    host, explainer = rows.host(asked.chassis), rows.explainer()
    installed = Counter((cookie, metadata) for _, cookie, metadata in asked.installed)
    missing = difference(rows.flows, host, installed, rows.others).missing
    tables: defaultdict[int, set[int]] = defaultdict(set)
    for table, cookie, _ in asked.installed:
        tables[table].add(cookie)
    places = {explainer.place_of(cookies): table for table, cookies in tables.items()}
    ports = {name: Port(name, is_enabled=False) for name in asked.disabled}

    here = {cookie for cookie, _ in installed}
    until_s = time.monotonic() + BUDGET_S

    def meant(end: End) -> Meant:
        if time.monotonic() > until_s:
            raise RemoteProtocolError(f"{asked.chassis} lacks {len(missing)} flows: too many")
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

    return messages.Meanings(query=asked.query, meant=tuple(map(meant, asked.ends)))
