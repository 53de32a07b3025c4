# SPDX-License-Identifier: Apache-2.0
"""What can be done about a verdict, in the words that an operator would type.

Nothing that somebody else owns is ever deleted: there is no verb for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from netagent.model.path import Component, Kind
from netagent.model.strenum import StrEnum
from netagent.model.verdict import Symptom, Verdict


class Verb(StrEnum):
    """What can be done."""

    RECOMPUTE = "recompute"
    """A host's instance of a controller computes all of its flows anew."""
    REINSTALL = "reinstall"
    """A bridge's flows are all installed anew."""
    CORDON = "cordon"
    """A scheduler places nothing new on a host."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that may be done about a verdict."""

    verb: Verb
    host: str
    object: str
    """What it is done to: a bridge, or the host."""
    command: str
    """As an operator would type it on that host, or where the scheduler is."""
    undo: str
    """What takes it back; "" where nothing is left of it."""


def remedies(verdict: Verdict, *, bridge_of: Callable[[str], str]) -> tuple[Remedy, ...]:
    """Return what may be done about a verdict, the gentlest first.

    `bridge_of` says which bridge of a host a controller drives; "" where none does: its flows are
    somebody's own, and nobody would install them again.
    """
    part = verdict.component
    if part is None or verdict.symptom in {Symptom.SILENCE, Symptom.MISSING}:
        return ()
    return _REMEDIES.get(part.kind, _none)(part, bridge_of)


def _controller(part: Component, bridge_of: Callable[[str], str]) -> tuple[Remedy, ...]:
    bridge = bridge_of(part.name)
    if not bridge:
        return ()  # its translation, or something that it says: no host's
    command = "ovn-appctl -t ovn-controller inc-engine/recompute"
    return (Remedy(Verb.RECOMPUTE, part.name, bridge, command, ""),)


def _flow(part: Component, bridge_of: Callable[[str], str]) -> tuple[Remedy, ...]:
    host, _, rest = part.name.partition("/")
    bridge = bridge_of(host)
    if not bridge or rest.partition("/")[0] != bridge:
        return ()
    command = f"ovs-vsctl set Bridge {bridge} protocols=OpenFlow13,OpenFlow15"
    undo = f"ovs-vsctl set Bridge {bridge} protocols=<as before>"
    return (Remedy(Verb.REINSTALL, host, bridge, command, undo),)


def _rnic(part: Component, _: Callable[[str], str]) -> tuple[Remedy, ...]:
    host = part.name.partition("/")[0]
    return (Remedy(Verb.CORDON, host, host, f"kubectl cordon {host}", f"kubectl uncordon {host}"),)


def _none(_part: Component, _bridge_of: Callable[[str], str]) -> tuple[Remedy, ...]:
    return ()


_REMEDIES: Mapping[Kind, Callable[[Component, Callable[[str], str]], tuple[Remedy, ...]]] = {
    Kind.CONTROLLER: _controller,
    Kind.FLOW: _flow,
    Kind.RNIC: _rnic,
    Kind.HOST: _rnic,
}
