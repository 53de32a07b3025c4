# SPDX-License-Identifier: Apache-2.0
"""Rows of both databases, read when somebody asks what they say of a host's flows."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from analyzer.controllers import difference, meaning
from analyzer.controllers.messages import AskDifference, AskMeaning, Differences, Meanings
from analyzer.controllers.selecting import NORTHBOUND, SOUTHBOUND, connected, selecting
from analyzer.intent import selected
from analyzer.intent.earlier import Earlier
from analyzer.intent.selected import Selected
from netagent.model.errors import RemoteProtocolError

Row = dict[str, Any]
KEPT_S = 3.0
"""Seconds for which rows are kept that were read. Chosen: where a switch fails, many hosts are
asked about in one window, and the database answers once; the next window has what changed."""
_FLOWS = "Logical_Flow"


class Rows:
    """Answers of both databases' rows as they were seconds ago at most."""

    def __init__(
        self,
        northbound: Sequence[str],
        southbound: Sequence[str],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remotes = {NORTHBOUND: northbound, SOUTHBOUND: southbound}
        self._now_s = now_s
        self._read_s = -KEPT_S
        self._earlier = Earlier()
        self._tables: dict[str, dict[str, list[Row]]] = {}
        """Database -> its tables but the logical flows."""
        self._flows: dict[tuple[str, str], list[Row]] = {}
        """Column and identity of a datapath or group -> its logical flows."""

    def meanings(self, asked: AskMeaning) -> Meanings:
        """Return what ends mean; raises Unreachable, or RemoteProtocolError."""
        return meaning.meanings(self._read(asked.chassis), asked)

    def differences(self, asked: AskDifference) -> Differences:
        """Return how a host differs; raises Unreachable, or RemoteProtocolError."""
        rows = self._read(asked.chassis)
        return difference.differences(rows, asked, self._earlier, self._now_s())

    def _read(self, chassis: str) -> Selected:
        if self._now_s() - self._read_s >= KEPT_S:
            self._flows.clear()
            self._tables.clear()
            tables = {name: c for name, c in selected.SOUTHBOUND.items() if name != _FLOWS}
            self._tables[SOUTHBOUND] = self._select(SOUTHBOUND, tables, selected.YOUNG)
            self._tables[NORTHBOUND] = self._select(NORTHBOUND, selected.NORTHBOUND)
            self._read_s = self._now_s()
        south = self._tables[SOUTHBOUND]
        flows = self._flows_of(south, chassis)
        return selected.read(south | {_FLOWS: flows}, self._tables[NORTHBOUND])

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

    def _select(
        self,
        database: str,
        tables: Mapping[str, Sequence[str]],
        young: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> dict[str, list[Row]]:
        """Return the rows of tables; those of `young` ones where the server has them."""
        with connected(database, self._remotes[database]) as select:
            found = select(*(selecting(name, [], columns) for name, columns in tables.items()))
            read = dict(zip(tables, found, strict=True))
            for name, columns in young.items():
                with suppress(RemoteProtocolError):
                    (read[name],) = select(selecting(name, [], columns))
        return read
