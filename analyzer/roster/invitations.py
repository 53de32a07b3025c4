# SPDX-License-Identifier: Apache-2.0
"""Hosts that may ask for their first certificate: once each, and for a while. Pure."""

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from netagent.model.errors import RemoteProtocolError

MOST = 20_000
"""Invitations that are open at once. Chosen: all hosts of the largest cluster, twice."""


class Invitation(Struct, frozen=True):
    """One of them, without the secret."""

    digest: str
    """SHA-256 of the secret, in hex: who reads this cannot use it."""
    host: str
    until_ns: int
    """Unix time at which it ends."""
    address: str = ""
    """For which the host gets a certificate; "": the one that it asks from."""


class Invitations:
    """Those that are open."""

    def __init__(self, known: Iterable[Invitation] = ()) -> None:
        self._open = {each.digest: each for each in known}

    def invite(
        self, host: str, secret: str, address: str = "", *, until_ns: int, now_ns: int
    ) -> None:
        """Let who knows the secret enrol as `host`; what it was invited by before ends.

        Raises RemoteProtocolError where there are too many.
        """
        self._open = {
            digest: each
            for digest, each in self._open.items()
            if each.until_ns > now_ns and each.host != host
        }
        if len(self._open) >= MOST:
            raise RemoteProtocolError(f"{MOST} invitations are open; wait until some end")
        digest = _digest(secret)
        self._open[digest] = Invitation(digest, host, until_ns, address)

    def redeem(self, secret: str, *, now_ns: int) -> Invitation | None:
        """Return whom a secret invites, which is good no longer; None if there is nobody."""
        invitation = self._open.pop(_digest(secret), None)
        return invitation if invitation is not None and invitation.until_ns > now_ns else None

    def __iter__(self) -> Iterator[Invitation]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
