# SPDX-License-Identifier: Apache-2.0
"""What the page's views answer of a small cluster with a link that loses, and of a large one."""

import random
from typing import Any

from msgspec import to_builtins

from netagent.wire.messages import Health

Plain = dict[str, Any]

NOW_NS = 1_795_779_600 * 10**9
"""When all of it is said to be: 2026-11-27 11:40 UTC."""
S = 10**9
LINK = "link leaf-s0-r0 -- spine-1"
HOSTS = tuple(f"h{n}" for n in range(4))
ENDS = tuple(f"train-a-{n}/rail{r}" for n in range(4) for r in range(2))
FLOW = (
    "table=8,priority=100,ip,metadata=0x1,nw_dst=10.0.0.12 actions=set_field:172.30.0.12->tun_dst,"
    "set_field:0x65->tun_id,output:vxlan0"
)


def short(**changed: Any) -> Plain:
    """Return an incident as a line of a list."""
    return {
        "id": "5e1f20aa41c2",
        "state": "confirmed",
        "component": LINK,
        "kind": "link",
        "layer": "underlay",
        "symptom": "loss",
        "confidence": 0.93,
        "summary": "link leaf-s0-r0 -- spine-1 loses 19 % of what crosses it",
        "detected_ns": NOW_NS - 190 * S,
        "recovered_ns": None,
        "unobserved_ns": None,
        "tasks": ["train-a", "train-b"],
        "pairs_failing": 6,
        "is_late": False,
        "stored": True,
    } | changed


SILENT = short(
    id="90c1d2aa00b7", state="open", component="agent h3", kind="agent", layer="agent",
    symptom="silence", confidence=0.8, summary="the agent of h3 has sent nothing for 42 s",
    detected_ns=NOW_NS - 42 * S, tasks=["train-a"], pairs_failing=0,
)  # fmt: skip
UNKNOWN = short(
    id="77aa12ff0e55", state="open", component=None, kind=None, layer=None, confidence=0.0,
    summary="pairs of train-b lose probes, and their ways have nothing in common",
    tasks=["train-b"], pairs_failing=2, is_late=True, stored=False,
)  # fmt: skip
OVER = short(
    id="1b20ffc83d10", state="recovered", component="flow h1/br-int/table=8", kind="flow",
    layer="overlay", symptom="unconnectivity", confidence=0.98,
    summary="a flow of h1 drops what train-b-1 sends", detected_ns=NOW_NS - 5000 * S,
    recovered_ns=NOW_NS - 4200 * S, tasks=["train-b"], pairs_failing=3,
)  # fmt: skip


def now() -> Plain:
    return {
        "at_ns": NOW_NS,
        "line": "3 incidents are open; link leaf-s0-r0 -- spine-1 concerns most pairs",
        "state": "incidents",
        "counts": {
            "hosts": 4, "rnics": 8, "tasks": 2, "pairs": 48, "probes_per_s": 192.4,
            "windows_behind": 0,
        },
        "incidents": [short(), SILENT, UNKNOWN],
        "incidents_omitted": 0,
        "unwatched": [
            {
                "what": "hosts silent", "count": 1, "of": 4, "examples": ["h3"],
                "why": "nothing was heard of them for 20 s",
            },
            {
                "what": "paths unknown", "count": 12, "of": 96,
                "why": "no trace has shown the whole way there and back of these flows",
                "examples": ["train-a-0/rail0 to train-a-3/rail0"],
            },
        ],
        "analyzer": ["the disk refuses rows since 11:32: no space left on device"],
        "recovered": [OVER],
    }  # fmt: skip


def fabric() -> Plain:
    leaves = [(f"leaf-s{s}-r{r}", s, r) for s in range(2) for r in range(2)]
    nodes = [
        {
            "id": name, "kind": "leaf", "rail": r, "tier": 1, "members": 1,
            "suspects": [], "state": "well",
        }
        for name, _, r in leaves
    ]  # fmt: skip
    nodes += [
        {"id": f"spine-{n}", "kind": "spine", "rail": None, "tier": 2, "members": 1,
         "suspects": [], "state": "well"}
        for n in range(2)
    ]  # fmt: skip
    nodes += [
        {"id": host, "kind": "host", "rail": None, "tier": 0, "members": 1,
         "suspects": [SILENT["id"]] if host == "h3" else [],
         "state": "silent" if host == "h3" else "well"}
        for host in HOSTS
    ]  # fmt: skip
    links = []
    for name, s, _ in leaves:
        for spine in range(2):
            bad = name == "leaf-s0-r0" and spine == 1
            lost, back = (171, 163) if bad else (0, 0)
            links.append({
                "a": name, "b": f"spine-{spine}", "sent": 880, "lost": lost, "rtt_ns": 61_000,
                "back": {"sent": 874, "lost": back, "rtt_ns": 64_200}, "members": 1,
                "suspects": [short()["id"]] if bad else [], "is_uplink": False,
            })  # fmt: skip
        for n in range(2):
            host = HOSTS[2 * s + n]
            silent = host == "h3"
            links.append({
                "a": host, "b": name, "sent": 0 if silent else 440, "lost": 0 if silent else 2 * n,
                "rtt_ns": None if silent else 60_400, "back": None, "members": 1,
                "suspects": [], "is_uplink": True,
            })  # fmt: skip
    return {
        "at_ns": NOW_NS - 5 * S, "window_ns": NOW_NS - 5 * S, "width_ns": 5 * S, "nodes": nodes,
        "links": links, "omitted": {"nodes": 0, "links": 0}, "aggregated": False,
    }  # fmt: skip


def matrix(by: str = "leaf", row: str | None = None, col: str | None = None) -> Plain:
    names = {
        "leaf": [f"leaf-s{s}-r{r}" for s in range(2) for r in range(2)],
        "rail": ["rail0", "rail1"],
        "host": list(HOSTS),
        "task": ["train-a", "train-b"],
    }[by]
    opens: str | None = {"leaf": "host", "host": "pair"}.get(by)
    if by == "host" and {row, col} <= {*HOSTS}:
        by, names, opens = "endpoint", list(ENDS), "pair"
    cells = [
        [r, c, 240, 46 if (r, c) in {(0, 2), (2, 0)} else 1 if (r, c) == (1, 3) else 0,
         61_200 + 900 * r + (240_000 if (r, c) == (0, 2) else 0), 88_000 + 1_500 * c, 6]
        for r in range(len(names))
        for c in range(len(names))
        if r != c
    ]  # fmt: skip
    return {
        "by": by, "rows": names, "cols": names, "cells": cells, "opens": opens,
        "omitted": {"rows": 0, "cols": 0}, "at_ns": NOW_NS - 5 * S, "width_ns": 5 * S,
    }  # fmt: skip


def tasks() -> Plain:
    told = [
        {"id": "train-a", "hosts": 4, "endpoints": 8, "list": "skeleton", "confidence": 0.91,
         "incidents": [short()["id"], SILENT["id"]], "innocent": None,
         "at_fault": [short()["component"], SILENT["component"]]},
        {"id": "train-b", "hosts": 4, "endpoints": 8, "list": "basic", "confidence": None,
         "incidents": [], "at_fault": [], "innocent": True},
    ]  # fmt: skip
    return {"tasks": told, "omitted": 0}


def series(before: int, after: int) -> list[list[Any]]:
    """Return an hour with so many columns of round trips before and behind the quantiles.

    In its first minutes, written by an analyzer of before, quantiles are not known.
    """
    made: list[list[Any]] = []
    for n in range(60):
        start_ns = NOW_NS - (60 - n) * 60 * S
        if 20 <= n < 23:
            made.append([start_ns, 0, 0, *[None] * (before + 3 + after)])
            continue
        lost = 340 if n > 56 else 0
        trips = [60_000 * 3**k + 900 * (n % 7) for k in range(before + after)]
        spread = [61_000, 88_000, 301_000] if n > 10 else [None] * 3
        made.append([start_ns, 11_520, lost, *trips[:before], *spread, *trips[before:]])
    return made


def task(name: str = "train-a") -> Plain:
    return {
        "id": name,
        "at_ns": NOW_NS,
        "parallelism": None,
        "list": "skeleton",
        "containers": [f"{name}-{n}" for n in range(4)],
        "rnics_per_container": 2,
        "rails": [0, 1],
        "hosts": list(HOSTS),
        "declared": True,
        "source": "operator",
        "endpoints_expected": 8,
        "endpoints_registered": 7,
        "endpoints_up": 6,
        "skeleton": {
            "confidence": 0.91, "dp": 2, "pp": 2, "tp": 2, "ep": 1, "period_s": 4.0,
            "reason": "bursts every 4 s between the same pairs",
            "groups": {"dp": [[ENDS[0], ENDS[2]], [ENDS[1], ENDS[3]]], "pp": [[ENDS[0], ENDS[4]]]},
            "pairs": 12, "groups_omitted": 0,
        },
        "matrix": matrix("host", "h0", "h2"),
        "series": series(1, 0),
        "incidents": [short(), SILENT],
        "inquiry": {
            "at_ns": NOW_NS - 61 * S,
            "since_ns": NOW_NS - 1861 * S,
            "until_ns": NOW_NS - 61 * S,
            "verdict": "not innocent",
            "looked_at": [
                "24 of 24 pairs were probed", "3 of 4 hosts sent all 360 windows, the least 352",
                "691,200 probes, of which 2,040 were lost; loss is below 0.3062 %, 95 % sure",
                "round trips: median 0.061 ms, p99 0.301 ms, longest 4.120 ms",
                "16 walks through flow tables: delivered",
            ],
            "against": ["6 pairs lost probes in 3 windows"],
            "not_looked_at": ["h3 was silent in 8 windows"],
        },
        "may_inquire": True,
        "rhythm": {"period_s": 4.0, "confidence": 0.91, "since_ns": NOW_NS - 7200 * S},
        "missing": [{"container": "train-a-4", "declared_ns": NOW_NS - 900 * S}],
    }  # fmt: skip


def incident(name: str = "5e1f20aa41c2") -> Plain:
    pair = {"source": ENDS[0], "target": ENDS[4], "sent": 40, "lost": 8}
    known = short(id=name)
    return {
        **{key: known[key] for key in known.keys() - {"pairs_failing", "is_late"}},
        "localized_ns": NOW_NS - 188 * S,
        "updated_ns": NOW_NS - 5 * S,
        "late_ns": 0,
        "failing": [pair, pair | {"source": ENDS[2], "target": ENDS[6], "lost": 11}],
        "healthy": [pair | {"source": ENDS[1], "target": ENDS[5], "lost": 0}],
        "alternatives": [
            {"component": "switch spine-1", "layer": "underlay", "score": 0.31, "lost": 334,
             "crossed": 3520},
        ],
        "evidence": [
            "334 of 1754 probes that cross link leaf-s0-r0 -- spine-1 were lost (19 %)",
            "0 of 5266 probes on the other links of spine-1 were lost",
            f"h0 sends them by\n{FLOW}",
        ],
        "remarks": ["h2 has another firmware of mlx5_0 than 3 of 4 hosts: 28.39.1002"],
        "missing": ["counters of the switch itself"],
        "notes": ["revised: before, switch spine-1 was named"],
        "actions": [
            {"id": f"{name}-3f2a91c0", "incident": name, "verb": "cordon", "host": "h3",
             "object": "", "command": "kubectl cordon h3", "undo": "kubectl uncordon h3",
             "why": "so that no new job comes there", "became": None, "problem": ""},
        ],
        "omitted": {"failing": 0, "healthy": 12},
        "timeline": [
            {"at_ns": NOW_NS - 190 * S, "what": "detected: 8 of 40 probes lost between 6 pairs"},
            {"at_ns": NOW_NS - 188 * S, "what": "opened: link leaf-s0-r0 -- spine-1"},
            {"at_ns": NOW_NS - 183 * S, "what": "confirmed by a second window"},
        ],
        "walks": [
            {
                "source": ENDS[0], "target": ENDS[4], "text": "the overlay delivers both ways",
                "hops": [
                    {"component": "vswitch h0", "action": "forwarded", "host": "h0",
                     "layer": "overlay", "quote": ["h0: in by train-a-0-r0"]},
                    {"component": "flow h0/br-int/table=0", "action": "forwarded", "host": "h0",
                     "layer": "overlay", "quote": [FLOW, "-> output vxlan0"]},
                    {"component": "flow h2/br-int/table=0", "action": "delivered", "host": "h2",
                     "layer": "overlay", "quote": ["table=0 actions=output:train-a-2-r0"]},
                ],
                "command": f"netagent-analyzer diagnose {ENDS[0]} {ENDS[4]}",
            },
            {
                "source": ENDS[4], "target": ENDS[0], "text": "as an older analyzer kept it",
                "hops": [
                    {"component": None, "action": None, "host": None, "layer": "overlay",
                     "quote": ["h2: in by train-a-2-r0", f"  {FLOW}"]},
                ],
            },
        ],
        "traces": [
            {
                "source": ENDS[0], "target": ENDS[4], "text": "packets vanish: the tunnel",
                "lines": ["sender: lookup 40, output 40"],
                "stages": [
                    {"end": "sender", "host": "h0", "stage": "lookup", "packets": 40,
                     "p50_ns": None},
                    {"end": "sender", "host": "h0", "stage": "output", "packets": 40,
                     "p50_ns": 4_200},
                ],
                "commands": [
                    {"text": "on h0: count again",
                     "command": "netagent trace drops udp,nw_dst=10.0.0.12 --duration 3"},
                ],
            },
        ],
        "decide": ["trace the paths of flows that avoid leaf-s0-r0 and cross spine-1"],
        "commands": [
            {"text": "Walk the first failing pair again",
             "command": f"netagent-analyzer diagnose {ENDS[0]} {ENDS[4]}"},
            {"text": "See its path from h0", "command": "netagent path train-a-0/rail0 10.0.0.12"},
        ],
        "runbook": {"title": "A link loses", "href": "https://example.com/runbooks/link-loss"},
        "hit": [{"task": "train-a", "endpoints": 4}],
        "recording": {
            "command": "netagent-analyzer replay recording.zst --incident 5e1f20aa41c2",
            "href": "/v1/views/incident/5e1f20aa41c2/recording", "bytes": 48_211,
        },
    }  # fmt: skip


def incidents(after: str = "") -> Plain:
    """Return a page of those kept; behind the first there is another one."""
    return {
        "at_ns": NOW_NS,
        "incidents": [OVER] if after else [SILENT, UNKNOWN, short()],
        "next": None if after else f"{short()['detected_ns']}.{short()['id']}",
        "states": ["active", "open", "confirmed", "recovered"],
        "layers": ["underlay", "rnic", "overlay", "container", "agent", "host", "controller"],
    }


def pair() -> Plain:
    return {
        "source": ENDS[0],
        "target": ENDS[4],
        "source_host": "h0",
        "target_host": "h2",
        "task": "train-a",
        "now": {
            "at_ns": NOW_NS - 5 * S, "width_ns": 5 * S, "sent": 40, "lost": 8,
            "p50_ns": 60_800, "p95_ns": 88_000, "p99_ns": 301_000,
            "rtt": {"prober_ns": 8_100, "network_ns": 61_000, "responder_ns": 14_900},
        },
        "series": series(0, 3),
        "ports": [
            {"port": 49153, "sent": 10, "lost": 8, "rtt_ns": 61_300,
             "path": ["leaf-s0-r0", "spine-1", "leaf-s1-r0"],
             "back": ["leaf-s1-r0", "spine-0", "leaf-s0-r0"]},
            {"port": 49154, "sent": 10, "lost": 0, "rtt_ns": 60_100, "path": None, "back": None},
        ],
        "incidents": [short()],
    }  # fmt: skip


def host(name: str = "h3") -> Plain:
    return {
        "id": name,
        "state": "silent",
        "silent_ms": 42_300,
        "version": "1.4.0",
        "health": to_builtins(Health(sent=960, answered=951, queue_us=180, rss_kb=47_104, shed=1)),
        "limits": {"level": 1, "left_out": "traces of paths"},
        "cost": {"cpu_share": 0.012, "rss_bytes": 48_234_496},
        "rnics": [
            {"device": "mlx5_0", "state": None,
             "counters": {"out_of_sequence": [12, 0.4], "rx_bytes": [91_823_371_231, 1.2e8]}},
            {"device": "mlx5_1", "state": None, "counters": {}},
        ],
        "endpoints": [
            {"id": ENDS[6], "container": "train-a-3", "rail": 0, "task": "train-a", "host": name,
             "state": "up", "address": "10.0.0.13", "mac": "02:00:00:01:00:0d",
             "underlay": "172.30.0.13", "rnic": "mlx5_0", "bridge": "br-int",
             "port": "train-a-3-r0", "mtu": 9000, "bond": None, "rdma": None, "stamps": "kernel",
             "registered_ns": NOW_NS - 3600 * S, "since_ns": NOW_NS - 3600 * S,
             "deregistered_ns": None},
        ],
        "findings": [
            {"kind": "rnic_mtu", "component": "rnic h3/mlx5_1", "layer": "rnic",
             "text": "mlx5_1 has an MTU of 1500, its endpoints 9000", "wall_ns": NOW_NS,
             "evidence": []},
        ],
        "incidents": [SILENT],
    }  # fmt: skip


def hosts() -> Plain:
    told = [
        {"id": each, "state": "silent" if each == "h3" else "well",
         "silent_ms": 42_300 if each == "h3" else 900, "version": "1.4.0"}
        for each in HOSTS
    ]  # fmt: skip
    return {"hosts": told, "omitted": 0}


def endpoints() -> Plain:
    told = [{"id": each, "task": "train-a", "host": "h0"} for each in ENDS]
    return {"endpoints": told, "omitted": 0}


def diagnosis() -> Plain:
    seen = [
        {"way": way, "component": component, "action": action, "text": text, "host": host,
         "by": "", "incident": incident, "cookie": ""}
        for way in ("there", "back")
        for component, action, text, host, incident in (
            (f"endpoint {ENDS[0]}", "forwarded", "it has a neighbour for 10.0.0.12", "h0", ""),
            ("vswitch h0", "forwarded", "output to vxlan0", "h0", ""),
            (LINK, "dropped", "8 of 40 probes lost", "", "5e1f20aa41c2"),
            (f"endpoint {ENDS[4]}", "delivered", "", "h2", ""),
        )
    ]  # fmt: skip
    return {
        "source": ENDS[0],
        "target": ENDS[4],
        "outcome": "incident",
        "component": LINK,
        "layer": "underlay",
        "text": short()["summary"],
        "observations": seen,
        "tree": [
            {"text": f"{ENDS[0]} -> {ENDS[4]} (overlay)", "children": [
                {"text": "h0 br-int", "children": [{"text": FLOW, "children": []}]}]},
        ],
    }  # fmt: skip


def large_fabric(leaves: int = 64, spines: int = 16) -> Plain:
    """Return as much as `fabric` shows at most, of 8 rails."""
    rng = random.Random(1)
    nodes: list[Plain] = [
        {"id": f"spine-{n}", "kind": "spine", "rail": None, "tier": 2, "members": 1,
         "suspects": [], "state": "well"}
        for n in range(spines)
    ]  # fmt: skip
    links: list[Plain] = []
    for n in range(leaves):
        name = f"leaf-{n}"
        nodes.append({"id": name, "kind": "leaf", "rail": n % 8, "tier": 1, "members": 1,
                      "suspects": ["5e1f20aa41c2"] if n == 9 else [],
                      "state": "well"})  # fmt: skip
        nodes.append({"id": f"group {name}", "kind": "group", "rail": n % 8, "tier": 0,
                      "members": 64, "suspects": [], "state": "well"})  # fmt: skip
        ends = [(f"group {name}", name), *((name, f"spine-{k}") for k in range(spines))]
        for a, b in ends:
            lost = rng.randrange(300, 900) if n == 9 and b != name else rng.random() < 0.02
            back = {"sent": 40_000, "lost": 0, "rtt_ns": 58_200}
            is_suspect = n == 9 and b == "spine-3"
            links.append({
                "a": a, "b": b, "sent": 40_000, "lost": int(lost), "rtt_ns": 58_000,
                "back": None if b == name else back, "is_uplink": b == name,
                "members": 64 if b == name else 1,
                "suspects": ["5e1f20aa41c2"] if is_suspect else [],
            })  # fmt: skip
    return {
        "at_ns": NOW_NS, "window_ns": NOW_NS - 5 * S, "width_ns": 5 * S, "nodes": nodes,
        "links": links, "omitted": {"nodes": 448, "links": 7680}, "aggregated": True,
    }  # fmt: skip


def large_matrix() -> Plain:
    """Return as many cells as a matrix has at most."""
    rng = random.Random(2)
    names = [f"leaf-{n}" for n in range(64)]
    cells = [
        [r, c, 24_000, rng.randrange(2_000, 9_000) if r == 9 else int(rng.random() < 0.05) * 7,
         61_200, 88_000, 64]
        for r in range(64)
        for c in range(64)
        if r != c
    ]  # fmt: skip
    return {
        "by": "leaf", "rows": names, "cols": names, "cells": cells, "opens": "host",
        "omitted": {"rows": 448, "cols": 448}, "at_ns": NOW_NS - 5 * S, "width_ns": 5 * S,
    }  # fmt: skip


UNDER_WAY: Plain = {
    "id": "5d2c7a90be1f4a36", "phase": "running", "error": "", "done": 0, "all": 2, "left_out": 0,
    "results": [], "next": 0,
}  # fmt: skip
WALKED: Plain = UNDER_WAY | {
    "phase": "succeeded",
    "done": 2,
    "next": 2,
    "results": [
        {name: value for name, value in diagnosis().items() if name != "tree"},
        {name: value for name, value in diagnosis().items() if name != "tree"}
        | {"source": ENDS[1], "target": ENDS[5], "outcome": "delivered", "component": None,
           "layer": None, "text": "the overlay delivers both ways", "observations": []},
    ],
}  # fmt: skip
