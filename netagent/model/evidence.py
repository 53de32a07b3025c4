# SPDX-License-Identifier: Apache-2.0
"""What a verdict rests on, as values. Sentences are made of it last, for whoever reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netagent.model.strenum import StrEnum


class EvidenceKind(StrEnum):
    """What was seen; each kind names the keys of its values."""

    TALLY = "tally"
    """`component`, `lost`, `crossed`: probes that cross it; `large`: of the largest size only."""
    BESIDE = "beside"
    """`kind`, `lost`, `sent`: probes that cross other components of that kind; `large`."""
    DIRECTION = "direction"
    """`component`, a link that loses one way: from router `source` to router `target` `lost` of
    `crossed` probes, `back_lost` of the `back_crossed` that cross it the other way only; `large`.
    """
    PARTS = "parts"
    """`parts`: two components that explain the losses better; of earlier versions only, which did
    not name both."""
    POOLED = "pooled"
    """`windows` counted together."""
    SAMPLED = "sampled"
    """`share` of the pairs that was weighed: more lost probes than can be in a window."""
    LARGE_ONLY = "large-only"
    """Smaller probes on the same paths are all answered. `bytes` of the largest, of which `lost` of
    `sent` are lost, and none of `small`; without values where they are not known."""
    SOME_PORTS = "some-ports"
    """Only some flows of the failing pairs lose: `flows` of them, `lost` of `sent` probes, while
    `clean` others of the same `pairs` sent `clean_sent` and lost none; those whose UDP source port
    & `mask` is `value` (0 and 0 where no mask tells them); those that cross `component` (empty
    where it does not tell them)."""
    RHYTHM = "rhythm"
    """It comes and goes: every `period_s`, for `lasts_s`, `cycles` times in a row; `lossy` of
    `windows`."""
    COUNTED = "counted"
    """`source`, `sent`, `routers` as (name, packets that reached it)."""
    TIMED = "timed"
    """`source`, `routers` as (name, round trip in ns, 0 for none), `before_ns`, `now_ns`."""
    PATH = "path"
    """`way` from end to end, `reply`, `lost`, `sent`."""
    TRACE_END = "trace-end"
    """`router` after which the latest trace of the path above ends; empty for a silent one."""
    SHIFT = "shift"
    """`source`, `target`, `port`, `before_ns`, `now_ns`: a flow that became slow."""
    FINDING = "finding"
    """`text` of what a host states."""
    READ = "read"
    """`name`, `text`: what the host read."""
    CROSSED = "crossed"
    """`lost`, `sent`: probes that cross the component of a finding."""
    NO_SUMMARY = "no-summary"
    """`host`, `rpc`: how its agent's RPC answers."""
    LATE = "late"
    """`host`, `delay_ns`: how long it takes on average to send or to answer a probe."""
    AWAITED = "awaited"
    """`task` of a container that never came, `declared_ns`, `begun_ns` of the task."""
    REFUSED = "refused"
    """`probes` answered by ICMP port unreachable."""
    SPARED = "spared"
    """`host`, `lost`: probes that accuse no path."""
    FLOW = "flow"
    """`role` (flow, nearest flow, shadowed flow) and `text` as dumped."""
    WALK = "walk"
    """`source`, `target`, `steps` as (level, text), `hops` as (first of its steps, host, component,
    action); these are not in what was kept before they were."""
    TRACE = "trace"
    """`source`, `target`, `text` of its verdict, `lines` of what was counted; `flows` as (end,
    flow, seconds that were asked for) and `stages` as (end, stage, packets, median ns since the
    stage before, 0 for unknown), where end is ``sender`` or ``receiver``; these two are not in what
    was kept before they were."""
    OPERATORS = "operators"
    """`task`, `lines` of what the job's own operators show."""
    PROBED = "probed"
    """`task`, `pairs` that were probed in the window, of them `sent` probes and `lost` ones, and
    how many of its flows were `slow`."""
    COMPARED = "compared"
    """`host`, `source` and `target` of the packets, `flows` of its datapath that these match, of
    them `judged` and in `hardware`, `lines` of what its copies of the tables disagree about."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen."""

    kind: EvidenceKind
    values: Mapping[str, Any] = field(default_factory=dict)
    """Strings, numbers, booleans, and lists of them; see the kind."""
