# SPDX-License-Identifier: Apache-2.0
"""What can be done about a verdict, in the words that an operator would type.

Nothing that somebody else owns is ever deleted: there is no verb for it. Hosts and bridges are
named by hosts, and operators paste commands: a name that is more than a word has no remedy.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
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
    DISABLE_PORT = "disable-port"
    """A logical port takes and gives nothing; by a person alone, as nothing is healed by it."""


CORDON, UNCORDON = "cordon", "uncordon"
"""What the command of a configuration is told to do, as kubectl is."""
DISABLE, ENABLE = "disable", "enable"
"""The same of the command for ports."""


@dataclass(frozen=True, slots=True)
class PortWay:
    """How a logical port is disabled."""

    command: tuple[str, ...] = ()
    """Through its owner; empty: in OVN's northbound database, where it is nobody's."""

    def words(self, do: str, port: str) -> str:
        """Return it as an operator would type it."""
        if self.command:
            return shlex.join((*self.command, do, port))
        return shlex.join(("ovn-nbctl", "lsp-set-enabled", port, f"{do}d"))


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that may be done about a verdict."""

    verb: Verb
    host: str
    object: str
    """What it is done to: a bridge, the host, or a port, which stands for a host, too."""
    command: str
    """As an operator would type it on that host, or where the scheduler is."""
    undo: str
    """What takes it back; "" where nothing is left of it."""


PORT = "port "
"""How a controller's component begins that is one of its ports."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def remedies(
    verdict: Verdict,
    *,
    bridge_of: Callable[[str], str],
    cordon: Sequence[str] = (),
    port: PortWay | None = None,
) -> tuple[Remedy, ...]:
    """Return what may be done about a verdict, the gentlest first.

    `bridge_of` says which bridge of a host a controller drives; "" where none does: its flows are
    somebody's own, and nobody would install them again. `cordon` is the command that cordons;
    without a way to disable a port, that is not even advised.
    """
    part = verdict.component
    if part is None or verdict.symptom in {Symptom.SILENCE, Symptom.MISSING}:
        return ()
    if part.kind in {Kind.RNIC, Kind.HOST}:
        found = _cordoned(part, cordon)
    elif part.kind is Kind.CONTROLLER and part.name.startswith(PORT):
        found = _disabled(part, port)
    else:
        found = _REMEDIES.get(part.kind, _none)(part, bridge_of)
    return tuple(r for r in found if _WORD.fullmatch(r.host) and _WORD.fullmatch(r.object))


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
    of = f"ovs-vsctl get Bridge {bridge} protocols"
    to = f"ovs-vsctl set Bridge {bridge} protocols"
    command = f'P=$({of}); {to}=OpenFlow13,OpenFlow14,OpenFlow15; {to}="$P"'
    return (Remedy(Verb.REINSTALL, host, bridge, command, ""),)


def _cordoned(part: Component, command: Sequence[str]) -> tuple[Remedy, ...]:
    host = part.name.partition("/")[0]
    words = command or ("kubectl",)
    do, undo = (shlex.join((*words, verb, host)) for verb in (CORDON, UNCORDON))
    return (Remedy(Verb.CORDON, host, host, do, undo),)


def _disabled(part: Component, way: PortWay | None) -> tuple[Remedy, ...]:
    """Return how to disable a port; each counts as a host of its own, since it may be at two."""
    if way is None:
        return ()
    port = part.name.removeprefix(PORT)
    do, undo = (way.words(verb, port) for verb in (DISABLE, ENABLE))
    return (Remedy(Verb.DISABLE_PORT, port, port, do, undo),)


def _none(_part: Component, _bridge_of: Callable[[str], str]) -> tuple[Remedy, ...]:
    return ()


_REMEDIES: Mapping[Kind, Callable[[Component, Callable[[str], str]], tuple[Remedy, ...]]] = {
    Kind.CONTROLLER: _controller,
    Kind.FLOW: _flow,
}
