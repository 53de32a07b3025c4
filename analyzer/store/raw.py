# SPDX-License-Identifier: Apache-2.0
"""Windows and incidents as Parquet, row by row, for other tools.

Summaries are taken one after the other; what is written down at once is bounded, and so is memory.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import widest
from analyzer.intake.few import filled
from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.store.parquet import Parquet
from netagent.wire.messages import FlowColumns, Summary

ROWS = 1_000_000
"""Flows in a file, about. Chosen: a hundred megabytes of memory, and some ten on disk."""
WIDTHS: Mapping[str, str] = {
    "sent": "sent", "lost": "lost", "refused": "refused", "sent_large": "sent_large",
    "lost_large": "lost_large", "count": "rtt_count", "min_ns": "rtt_min_ns",
    "max_ns": "rtt_max_ns", "prober_ns": "prober_ns", "responder_ns": "responder_ns",
}  # fmt: skip
"""Columns of a window that are written as they are -> their names there."""
WINDOWS = """
SELECT start_ns, width_ns, list_extract($hosts::VARCHAR[], host + 1) AS host,
    list_extract($ends::VARCHAR[], source + 1) AS source,
    list_extract($ends::VARCHAR[], target + 1) AS target, source_port,
    sent, lost, refused, sent_large, lost_large, rtt_count, rtt_min_ns,
    rtt_mean_ns, rtt_max_ns, prober_ns, responder_ns
FROM columns
"""
INCIDENTS = """
SELECT unnest($id::VARCHAR[]) AS id, unnest($state::VARCHAR[]) AS state,
    unnest($component::VARCHAR[]) AS component, unnest($layer::VARCHAR[]) AS layer,
    unnest($symptom::VARCHAR[]) AS symptom, unnest($confidence::DOUBLE[]) AS confidence,
    unnest($summary::VARCHAR[]) AS summary, unnest($detected_ns::BIGINT[]) AS detected_ns,
    unnest($localized_ns::BIGINT[]) AS localized_ns, unnest($updated_ns::BIGINT[]) AS updated_ns,
    unnest($recovered_ns::BIGINT[]) AS recovered_ns, unnest($body::VARCHAR[]) AS body
"""
OF_INCIDENT = (
    "id", "state", "component", "layer", "symptom", "confidence", "summary", "detected_ns",
    "localized_ns", "updated_ns", "recovered_ns", "body",
)  # fmt: skip
"""Columns of an incident; `body` is all of it, as JSON."""


class Windows:
    """Writes summaries to files of a folder, one row for each flow of a window."""

    def __init__(self, folder: Path, parquet: Parquet) -> None:
        self._folder, self._parquet = folder, parquet
        self._numbers = FlowNumbers()
        self._rows: list[WindowRows] = []
        self._waiting = 0
        self.rows = self.files = 0
        """Numbers of what was written."""

    def add(self, summary: Summary) -> None:
        """Take a summary. Raises RemoteProtocolError where it is odd, CapabilityMissing."""
        rows = filled(self._numbers.decode(summary))
        self._rows.append(rows)
        self._waiting += len(rows.flow)
        if self._waiting >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises CapabilityMissing where the disk refuses."""
        if self._waiting:
            path = self._folder / f"{self.files:06d}.parquet"
            hosts = list(dict.fromkeys(each.host for each in self._rows))
            numbers = self._numbers
            ends = [str(numbers.endpoint(n)) for n in range(numbers.endpoints)]
            values, columns = {"hosts": hosts, "ends": ends}, self._columns(hosts)
            self._parquet.write(path, WINDOWS, values, {"columns": columns})
            self.rows += self._waiting
            self.files += 1
        self._rows, self._waiting, self._numbers = [], 0, FlowNumbers()

    def _columns(self, hosts: list[str]) -> dict[str, NDArray[Any]]:
        place = {host: n for n, host in enumerate(hosts)}
        lengths = [len(each.flow) for each in self._rows]

        def repeated(values: Iterable[int]) -> NDArray[np.int64]:
            return np.repeat(np.array(list(values), np.int64), lengths)

        flow = np.concatenate([each.flow for each in self._rows])
        source, target = self._numbers.ends(flow)
        columns: dict[str, NDArray[Any]] = {
            "start_ns": repeated(each.window.start_ns for each in self._rows),
            "width_ns": repeated(each.window.width_ns for each in self._rows),
            "host": repeated(place[each.host] for each in self._rows),
            "source": source,
            "target": target,
            "source_port": self._numbers.ports(flow).astype(np.uint16),
        }
        columns |= {to: self._joined(name) for name, to in WIDTHS.items()}
        mean = np.exp(self._joined("mean_ln").astype(np.float64))
        columns["rtt_mean_ns"] = np.where(columns["rtt_count"] > 0, mean, 0).astype(np.uint32)
        return columns

    def _joined(self, name: str) -> NDArray[Any]:
        dtype = widest(FlowColumns, name)
        return np.concatenate([getattr(each, name) for each in self._rows], dtype=dtype)


def write_incidents(path: Path, parquet: Parquet, incidents: Iterable[Mapping[str, Any]]) -> None:
    """Write incidents by the names of OF_INCIDENT. Raises CapabilityMissing."""
    incidents = list(incidents)
    values = {name: [each[name] for each in incidents] for name in OF_INCIDENT}
    parquet.write(path, INCIDENTS, values)
