# SPDX-License-Identifier: Apache-2.0
"""Groups: which buckets a packet goes to (`xlate_group_action`)."""

from collections.abc import Callable

from ovs_checks.openflow.fields import FIELDS, applies, look, read
from ovs_checks.openflow.hashing import hash_boolean, hash_bytes, hash_u64, hash_words, symmetric_l4
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.switch.snapshot import Bridge, Bucket, Group

from .action_set import ordered
from .choose import note_hashed
from .context import Context
from .freezing import finish_freezing
from .lookup import note_loop

_DP_HASH = SLOTS["dp_hash"]
_MAX_LIVENESS = 128
"""Groups that watch each other, followed for liveness (`MAX_LIVENESS_RECURSION`,
ofproto-dpif-xlate.c)."""
_SOFT_ERRORS = frozenset({"Too many MPLS labels", "Unsupported packet type"})


def to_group(x: Context, number: int, *, last: bool) -> bool:
    """Hand over to a group; False where there is none, and nothing more is to be done."""
    if limit := x.exceeded():
        note_loop(x, x.table, limit)
        return True
    group = x.bridge.by_group.get(number)
    if group is None:
        x.tell("warn", f"output to nonexistent group {number}")
        x.excuse(f"group {number} does not exist")
        return False
    if group.type in {"all", "indirect"}:
        for n, one in enumerate(group.buckets):
            _enter(x, one, last=last and n == len(group.buckets) - 1)
        return True
    bucket = _select(x, group) if group.type == "select" else first_live(x, group)
    if bucket is not None:
        x.tell("detail", f"using bucket {bucket.id}")
        _enter(x, bucket, last=last)
        return True
    x.tell("detail", "no live bucket")
    if not x.freezing:
        what = "has no bucket that is live" if group.buckets else "has no buckets"
        x.excuse(f"group {number} {what}")
    return True


def _enter(x: Context, bucket: Bucket, *, last: bool) -> None:
    """Do a bucket's actions to a copy of the packet."""
    flow, was_mpls, origins, ends = list(x.flow), x.was_mpls, x.origins, len(x.ends)
    waiting = len(x.recirculations)
    with x.below(x.tell("bucket", f"bucket {bucket.id}")):
        x.depth += 1
        x.go.execute(x, ordered(bucket.actions), last)
        x.depth -= 1
        if x.freezing:
            finish_freezing(x)
    if len(x.ends) == ends and len(x.recirculations) == waiting and not x.error:
        x.excuse(f"bucket {bucket.id} sends the packet nowhere")
    x.flow[:], x.was_mpls, x.origins = flow, was_mpls, origins
    x.exit = False
    if x.error in _SOFT_ERRORS:
        x.error = ""


# --- which are live ------------------------------------------------------------------------------


def is_live(bridge: Bridge, bucket: Bucket, tell: Callable[[str], object] = str) -> bool:
    """Return whether what a bucket watches is up; True for a bucket that watches nothing.

    Open vSwitch follows groups that watch each other 128 times; the line for them is its own.
    """
    seen: set[int] = set()

    def live(bucket: Bucket, entered: tuple[int, ...]) -> bool:
        if bucket.watch_port is None and bucket.watch_group is None:
            return True
        port = None if bucket.watch_port is None else bridge.by_number.get(bucket.watch_port)
        if port is not None and port.live:
            return True
        watched = bucket.watch_group
        if watched in entered:
            tell(f"bucket chaining exceeded {_MAX_LIVENESS} links")
        if watched is None or watched not in bridge.by_group or watched in seen:
            return False
        seen.add(watched)
        buckets = bridge.by_group[watched].buckets
        return any(live(one, (*entered, watched)) for one in buckets)

    return live(bucket, ())


def _is_live(x: Context, bucket: Bucket) -> bool:
    return is_live(x.bridge, bucket, lambda text: x.tell("error", text))


def first_live(x: Context, group: Group) -> Bucket | None:
    """Return the first bucket that is live (fast failover)."""
    for bucket in group.buckets:
        if _is_live(x, bucket):
            return bucket
        _tell_dead(x, bucket)
    return None


def _tell_dead(x: Context, bucket: Bucket) -> None:
    why = [f"port {bucket.watch_port}"] if bucket.watch_port is not None else []
    if bucket.watch_group is not None:
        why.append(f"port {bucket.watch_group}")
    x.tell("detail", f"bucket {bucket.id}: not live due to {' and '.join(why)}")


# --- which is selected ---------------------------------------------------------------------------


def _select(x: Context, group: Group) -> Bucket | None:
    if x.was_mpls:
        x.freeze()
        return None
    if group.method == "hash" and group.fields:
        return _best(x, group, _hashed(x, group))
    algorithm = hash_algorithm(group)
    if algorithm is None:
        note_hashed(x, "symmetric_l4")
        return _best(x, group, symmetric_l4(x.header, 0))
    if not x.flow[_DP_HASH]:
        kind, basis = algorithm
        kind = kind if kind <= x.features.max_hash_algorithm else 0
        x.freeze(hash_by=(kind, basis), group=group.id)
        return None
    buckets = [one for one in group.buckets if one.weight and _is_live(x, one)]
    if not buckets:
        return None
    return buckets[x.choose([f"bucket {one.id} of group {group.id}" for one in buckets])]


def hash_algorithm(group: Group) -> tuple[int, int] | None:
    """Return (algorithm, basis) of the hash that the datapath computes; None if it computes none.

    It computes one where no method is named, unless the weights need more than 64 values
    (`group_setup_dp_hash_table`).
    """
    weights = [bucket.weight for bucket in group.buckets]
    positive = [weight for weight in weights if weight]
    if group.method not in {"", "dp_hash"} or not positive:
        return None
    slots = -(-sum(positive) // min(positive))
    values = max(16, 1 << (slots - 1).bit_length())
    if group.method == "dp_hash":
        algorithm, basis = group.parameter >> 32, group.parameter & 0xFFFFFFFF
        return (algorithm, basis) if values <= 256 else None
    return (1, 0) if values <= 64 else None


def _hashed(x: Context, group: Group) -> int:
    basis = hash_u64(group.parameter)
    for name, mask in group.fields:
        field = FIELDS[name]
        if not applies(field, x.flow, x.looked):
            continue
        value = read(field, x.flow) & mask
        basis = hash_bytes(value.to_bytes(-(-field.width // 8), "big"), basis)
        if field.present:
            present = bool(x.flow[SLOTS["tun_present"]] & field.present)
            basis = hash_boolean(present, basis)
        look(field, x.looked, mask)
    return basis


def _best(x: Context, group: Group, basis: int) -> Bucket | None:
    best, best_score = None, 0
    for bucket in group.buckets:
        if not _is_live(x, bucket):
            _tell_dead(x, bucket)
            continue
        score = (hash_words(bucket.id, basis) & 0xFFFF) * bucket.weight & 0xFFFFFFFF
        if score >= best_score:
            best, best_score = bucket, score
        x.tell("detail", f"bucket {bucket.id}: score {score}")
    return best
