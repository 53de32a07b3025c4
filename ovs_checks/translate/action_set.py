# SPDX-License-Identifier: Apache-2.0
"""The order in which what was written for the end of the pipeline is done (OpenFlow 1.5, 5.6)."""

from collections.abc import Sequence

from ovs_checks.openflow.actions import (
    Action,
    Ct,
    DecTtl,
    Move,
    Plain,
    PopMpls,
    PushMpls,
    PushVlan,
    Resubmit,
    SetQueue,
    SetTunnel,
    ToGroup,
    ToPort,
    Write,
    WriteMpls,
    WritePort,
    WriteTag,
)

_SETS = (Write, WriteTag, WritePort, WriteMpls, SetTunnel, Move)
_FINAL = (ToPort, Resubmit, Ct, ToGroup)
"""What ends it, each before the next if several were written; only one is done."""


def ordered(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return what is to be done; nothing if the packet would go nowhere.

    Of each kind the last one written counts, except of those that set fields, which all count.
    """
    final = _final(actions)
    if final is None:
        return ()
    first = [
        _last(actions, lambda one: isinstance(one, Plain) and one.verb == "pop_vlan"),
        _last(actions, lambda one: isinstance(one, PopMpls)),
        _last(actions, lambda one: isinstance(one, PushMpls)),
        _last(actions, lambda one: isinstance(one, PushVlan)),
        _last(actions, lambda one: isinstance(one, DecTtl)),
        _last(actions, lambda one: isinstance(one, Plain) and one.verb == "dec_mpls_ttl"),
    ]
    sets = [action for action in actions if isinstance(action, _SETS)]
    queue = _last(actions, lambda one: isinstance(one, SetQueue))
    return tuple(action for action in (*first, *sets, queue, final) if action is not None)


def _last(actions: Sequence[Action], wanted) -> Action | None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return next((action for action in reversed(actions) if wanted(action)), None)


def _final(actions: Sequence[Action]) -> Action | None:
    best, rank = None, -1
    for action in actions:
        kind = next((n for n, one in enumerate(_FINAL) if isinstance(action, one)), -1)
        if kind >= rank and kind >= 0:
            best, rank = action, kind
    return best
