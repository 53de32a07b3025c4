# SPDX-License-Identifier: Apache-2.0
"""Whether there is a host behind each record of one."""

from collections.abc import Iterator

from analyzer.intent.differences.contract import Mismatch, Sight, quoted
from analyzer.intent.differences.tunnels import offered, own
from analyzer.intent.model import Chassis
from netagent.model.address import canonical
from netagent.model.finding import FindingKind

REPLACED_NS = 60_000_000_000
"""Nanoseconds for which an old record keeps a host's new instance from writing. Chosen: one that
begins under a new name is refused until somebody deletes the old one."""
GHOST_NS = 300_000_000_000
"""Nanoseconds for which a record has neither instance nor agent. Chosen: a host that joins has both
within minutes, and the record costs others no more than a tunnel."""


def ghosts(sight: Sight) -> Iterator[Mismatch]:
    """Yield records of hosts that are not there, or have another name now."""
    if sight.is_blind:
        return
    for name, chassis in sight.intent.chassis.items():
        if name in sight.owners:
            continue
        addresses = {a for e in chassis.encapsulations if (a := canonical(e.address))}
        read = {
            "hostname": chassis.hostname, "addresses": quoted(addresses),
            "registered": "yes" if chassis.is_registered else "no",
        }  # fmt: skip
        if (host := _taker(chassis, addresses, sight)) is not None:
            own_name = sight.heard[host].chassis
            text = f"{host} is chassis {own_name} now: the old record {name} has its address"
            read["chassis of the host"] = own_name
            yield Mismatch(
                FindingKind.GHOST_CHASSIS, f"chassis {name}", text, REPLACED_NS, read, (host,),
                ports=sight.unplaced((host,)),
            )  # fmt: skip
        elif not chassis.is_registered and not _is_known(chassis, sight):
            text = f"chassis {name} is recorded, and no host says that it is it"
            yield Mismatch(FindingKind.GHOST_CHASSIS, f"chassis {name}", text, GHOST_NS, read)


def _taker(chassis: Chassis, addresses: set[str], sight: Sight) -> str | None:
    """Return the host that has a record's address, and that is not known by its new name."""
    for host, state in sight.heard.items():
        is_new = bool(state.chassis) and state.chassis not in sight.intent.chassis
        if is_new and addresses & offered(state) & own(state):
            return host if not _is_known(chassis, sight, but=host) else None
    return None


def _is_known(chassis: Chassis, sight: Sight, *, but: str = "") -> bool:
    """Return whether a host has a record's hostname, or that of its domain."""
    names = {chassis.hostname, chassis.hostname.partition(".")[0], chassis.name}
    short = {host.partition(".")[0] for host in sight.hosts if host != but}
    return bool(names - {""} & (sight.hosts - {but} | short))
