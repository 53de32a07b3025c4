# SPDX-License-Identifier: Apache-2.0
"""Flow tables from dump to dump: only what changed is read and indexed again.

Two dumps differ in every line, for counters move and flows grow older; a flow is the same if all
else of its line is. It is brought up to date in place, so a snapshot is good until the next.
"""

import re
from collections.abc import Mapping
from operator import is_not

from .classifier import Table
from .flow import Flow
from .heap import only_growing
from .parse import Dump, FlowReader, MalformedLine, is_flow

_MOVING = re.compile(
    r"\b(?:duration|idle_age|hard_age|n_(?:offload_)?packets|n_(?:offload_)?bytes)=[^,\s]*,?\s?"
)
_COUNTER = re.compile(r"\bn_(packets|bytes)=(\d+)")


class KeptTables:
    """The flows of one bridge."""

    def __init__(self, ports: Mapping[str, int] | None = None) -> None:
        self._ports = dict(ports or {})
        self._reader = FlowReader(self._ports, source="flows")
        self._flows: dict[str, Flow] = {}
        self._tables: dict[int, Table] = {}
        self._members: dict[int, list[Flow]] = {}
        self.read_anew = 0
        """Lines of the last dump that were not known."""

    def fits(self, ports: Mapping[str, int]) -> bool:
        """Tell whether ports have the names and numbers that they had."""
        return self._ports == ports

    def take(self, text: str) -> Dump:
        """Bring the flows up to date with a dump; malformed lines are reported."""
        flows: dict[str, Flow] = {}
        problems: list[MalformedLine] = []
        self.read_anew = 0
        with only_growing():
            for number, line in enumerate(text.splitlines(), start=1):
                if not is_flow(line):
                    continue
                try:
                    self._take_line(line, number, flows)
                except MalformedLine as problem:
                    problems.append(problem)
        self._flows = flows
        self._sort_out()
        return Dump(tuple(flows.values()), tuple(problems))

    def _take_line(self, line: str, number: int, flows: dict[str, Flow]) -> None:
        head, said, actions = line.partition("actions=")
        key = f"{_MOVING.sub('', head)}{said}{actions}"
        flow = self._flows.get(key)
        # What is not understood names its column, and the columns have moved.
        if flow is None or flow.match.unknown or key in flows:
            flow = self._reader.flow(line, line=number)
            self.read_anew += 1
        else:
            flow.recount(line.strip(), number, dict(_COUNTER.findall(head)))
        flows[key if key not in flows else f"{number}:{key}"] = flow

    def _sort_out(self) -> None:
        """Forget the index of each table of which a flow came, went or changed places."""
        before, self._members = self._members, {}
        for flow in self._flows.values():
            self._members.setdefault(flow.table, []).append(flow)
        for number, flows in before.items():
            now = self._members.get(number, [])
            if len(now) != len(flows) or any(map(is_not, now, flows)):
                self._tables.pop(number, None)

    @property
    def tables(self) -> Mapping[int, Table]:
        """The tables, indexed; a table that did not change stays the same object."""
        for number, flows in self._members.items():
            if number not in self._tables:
                self._tables[number] = Table(flows)
        return {number: self._tables[number] for number in self._members}
