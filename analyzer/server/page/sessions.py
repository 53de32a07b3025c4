# SPDX-License-Identifier: Apache-2.0
"""Who may look at the page without a certificate: links of one use, and what they begin.

A link is asked for with a certificate and opened in a browser, once and soon. That begins a
session, which sees what its name may see. Only hashes are kept, in memory: a restart ends all.
"""

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass

LINK_NS = 5 * 60 * 10**9
"""Nanoseconds until which a link may be opened. Chosen: to carry it to a browser elsewhere."""
SESSION_NS = 12 * 3600 * 10**9
"""Nanoseconds of a session. Chosen: a shift."""
MAX_LINKS, MAX_SESSIONS = 8, 32
"""Most links, and sessions, of one who asks; the oldest end first. Chosen: a team that shares one
certificate; names are those of the configuration, so that all together are bounded."""
TOKEN_BYTES = 32
"""Random bytes of a link, and of a session: 256 bits."""
REFUSALS = ("session", "link", "site", "requests", "connection")
"""Why the page refuses: no session, no such link, another site asks, too many at once of one name,
too many connections of one address or in all."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who looks."""

    name: str | None
    """As whom, as a certificate would name it; None without TLS, where nobody has a name."""
    asked: str | None = None
    """Who asked for the link."""
    serial: str = ""
    """Of the certificate that it was asked with: where that is revoked, the session ends."""


class Sessions:
    """Links and sessions of one analyzer; instants are nanoseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._links = _Held(LINK_NS, MAX_LINKS)
        self._sessions = _Held(SESSION_NS, MAX_SESSIONS)
        self.refused = Counter(dict.fromkeys(REFUSALS, 0))
        """What the page refused, by why."""

    def invite(self, holder: Holder, now_ns: int) -> str:
        """Return the token of a new link."""
        return self._links.begin(holder, now_ns)

    def enter(self, token: str, now_ns: int) -> str | None:
        """Return the token of the session that a link begins; None where it begins none."""
        holder = self._links.end(token, now_ns)
        return None if holder is None else self._sessions.begin(holder, now_ns)

    def holder(self, token: str, now_ns: int) -> Holder | None:
        """Return whose session a token is; None where it is nobody's, or is over."""
        return self._sessions.of(token, now_ns)

    def clear(self) -> None:
        """End all: who signs certificates is another."""
        self._links.clear()
        self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)


class _Held:
    """Tokens that hold for a while, by their hash, in the order given."""

    def __init__(self, lasts_ns: int, most: int) -> None:
        self._lasts_ns, self._most = lasts_ns, most
        self._known: dict[bytes, tuple[int, Holder]] = {}
        """Hash -> when it ends, and whose it is."""

    def begin(self, holder: Holder, now_ns: int) -> str:
        self._expire(now_ns)
        theirs = [key for key, (_, each) in self._known.items() if each.asked == holder.asked]
        for key in theirs[: max(0, len(theirs) - self._most + 1)]:
            del self._known[key]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._known[_hash(token)] = now_ns + self._lasts_ns, holder
        return token

    def of(self, token: str, now_ns: int) -> Holder | None:
        until_ns, holder = self._known.get(_hash(token), (0, None))
        return holder if now_ns < until_ns else None

    def end(self, token: str, now_ns: int) -> Holder | None:
        holder = self.of(token, now_ns)
        self._known.pop(_hash(token), None)
        return holder

    def clear(self) -> None:
        self._known.clear()

    def _expire(self, now_ns: int) -> None:
        self._known = {key: each for key, each in self._known.items() if now_ns < each[0]}

    def __len__(self) -> int:
        return len(self._known)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
