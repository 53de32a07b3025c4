# SPDX-License-Identifier: Apache-2.0
"""Which host each chassis is. Hosts say what they are called there, and may lie. Pure.

A record has its host's name, which only the controller's own instance writes. Who says that it is
another known host's record is not believed, even while that one is silent. Of several that may be
it, who said so first is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from analyzer.intent.model import Chassis


def owners(
    claims: Mapping[str, str], records: Mapping[str, Chassis], hosts: Iterable[str]
) -> dict[str, str]:
    """Return chassis -> host.

    `claims` has what each host says that its chassis is, those that said it first in front; `hosts`
    are the names of all that are known, as agents have them, with or without a domain.
    """
    called: defaultdict[str, set[str]] = defaultdict(set)
    for host in hosts:
        called[_short(host)].add(host)
    found: dict[str, str] = {}
    for host, name in claims.items():
        if not name or name in found:
            continue
        named = called.get(_short(records[name].hostname)) if name in records else None
        if named is None or host in named:
            found[name] = host
    return found


def _short(name: str) -> str:
    return name.partition(".")[0]
