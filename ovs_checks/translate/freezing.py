# SPDX-License-Identifier: Apache-2.0
"""Packets that go through the datapath once more, and packets for controllers."""

from ovs_checks.openflow.describe import hex_text

from . import datapath
from .action_set import ordered
from .commit import commit
from .context import Context, Recirculation

CT_KIND, HASH_KIND = "conntrack", "hash"


def wind_up(x: Context) -> None:
    """Do what was left for the end of the pipeline, or freeze."""
    if not x.freezing:
        run_action_set(x)
    if x.freezing:
        finish_freezing(x)


def run_action_set(x: Context) -> None:
    """Do what was written to be done at the end (`xlate_action_set`)."""
    actions = ordered(x.action_set)
    x.action_set = []
    if not actions:
        return
    x.in_action_set = True
    with x.below(x.tell("table", "--. Executing action set:")):
        x.go.execute(x, actions, True)
    x.in_action_set = False


def finish_freezing(x: Context) -> None:
    """Have the datapath look the packet up again (`finish_freezing`)."""
    commit(x)
    kind = "hash" if x.hash is not None else "mpls"
    state, group = x.state(0), x.hash_group
    paused = x.pause is not None
    number = recirculate(x)
    if paused:
        x.finish(x.end("controller", "waits for the controller"))
    else:
        x.recirculations.append(Recirculation(number, kind, x.header, state, group=group))  # type: ignore[arg-type]


def recirculate(x: Context) -> int:
    """Append a recirculation; return its number."""
    number = x.numbers.take()
    if x.pause is not None:
        pause = x.pause
        told = (number, pause.max_len, pause.reason, pause.controller_id)
        x.steps.append(_userspace(x, *told, continuation=True))
    else:
        if x.hash is not None:
            x.steps.append(datapath.hash_step(*x.hash))
        x.steps.append(datapath.recirculate(number))
    x.cancel_freeze()
    return number


INVALID_TTL = 2
"""Reason `OFPR_INVALID_TTL` for sending to the controller."""


def to_controller(
    x: Context,
    max_len: int,
    reason: int,
    controller_id: int,
    meter_id: int | None = None,
    *,
    takes: bool = True,
) -> None:
    """Send the packet to a controller (`xlate_controller_action`).

    It takes the packet on, unless the flow itself goes on with it.
    """
    commit(x)
    rule = x.rule
    if reason == 1 and rule and not rule.priority and not rule.match.terms:
        reason = 6  # a table's default flow is an explicit miss (`OFPR_EXPLICIT_MISS`)
    told = _userspace(x, x.numbers.take(), max_len, reason, controller_id, continuation=False)
    if meter_id is not None:
        text = f"sample(sample=100.0%,actions(meter({meter_id}),{told.text}))"
        told = datapath.Step(text, told.size + 24, "userspace")
    x.steps.append(told)
    if takes and reason != INVALID_TTL:  # that only reports a packet; it does not take it on
        x.finish(x.end("controller", "sent to the controller"))


def _userspace(
    x: Context, number: int, max_len: int, reason: int, controller_id: int, *, continuation: bool
) -> datapath.Step:
    unsent = not continuation and not x.carried
    text = (
        f"userspace(pid=0,controller(reason={reason},dont_send={int(unsent)},"
        f"continuation={int(continuation)},recirc_id={number},"
        f"rule_cookie={hex_text(x.cookie)},controller_id={controller_id},max_len={max_len}))"
    )
    return datapath.Step(text, 64, "userspace")
