# SPDX-License-Identifier: Apache-2.0
"""What a pair's flows did in the window, each by its port, and the ways that they take."""

from typing import Any

import numpy as np

from analyzer.localize.routes import NO_ROUTE
from analyzer.picture.asked import Between
from analyzer.picture.scene import Mask, Scene
from analyzer.picture.sums import COUNT, LN, LOST, SENT, mean_ns, quantiles
from netagent.model.ids import EndpointId

MAX_PORTS = 64
"""Most ports that are told of. Chosen: the most that agents probe a pair by."""

Plain = dict[str, Any]


def between(scene: Scene, asked: Between) -> Plain:
    """Return a pair's probes, with its round trips where there are any."""
    mask = scene.seen(asked.tasks) & _mask(scene, asked.source, asked.target)
    rows = np.flatnonzero(mask)
    columns, of = scene.columns[:, rows], scene.table.rows
    count = columns[COUNT].sum()
    spread = quantiles(scene, mask, np.zeros(len(rows), np.int64), 1, (0.5, 0.95, 0.99))
    hosts = [
        round(float((each[rows] * columns[COUNT]).sum() / count)) if count else None
        for each in (of.prober_ns, of.responder_ns)
    ]
    network_ns = mean_ns(count, columns[LN].sum())
    return {
        "at_ns": scene.start_ns,
        "width_ns": scene.width_ns,
        "sent": int(columns[SENT].sum()),
        "lost": int(columns[LOST].sum()),
        "rtt": {"prober_ns": hosts[0], "network_ns": network_ns, "responder_ns": hosts[1]}
        if count
        else None,
        **{name: of[0] for name, of in zip(("p50_ns", "p95_ns", "p99_ns"), spread, strict=True)},
        "ports": [_port(scene, row) for row in rows[:MAX_PORTS].tolist()],
        "ports_omitted": max(0, len(rows) - MAX_PORTS),
    }


def _mask(scene: Scene, source: EndpointId, target: EndpointId) -> Mask:
    ends = [scene.table.numbers.end(each) for each in (source, target)]
    if None in ends:
        return np.zeros(scene.table.ends.shape[1], np.bool_)
    a, b = ends
    found: Mask = (scene.table.ends[0] == a) & (scene.table.ends[1] == b)
    return found


def _port(scene: Scene, row: int) -> Plain:
    sent, lost, count, ln = scene.columns[:, row].tolist()
    ways = [
        list(scene.routes[way]) if way != NO_ROUTE else None for way in scene.ways[:, row].tolist()
    ]
    flow = scene.table.rows.flow[row : row + 1]
    return {
        "port": int(scene.table.numbers.ports(flow)[0]),
        "sent": int(sent),
        "lost": int(lost),
        "rtt_ns": mean_ns(count, ln),
        "path": ways[0],
        "back": ways[1],
    }
