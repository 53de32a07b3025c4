# SPDX-License-Identifier: Apache-2.0
"""What waits for one receiver: what is sent now, what later, what is given up. Pure.

Theory of operation. Letters wait in lines, one for each incident. Only the first of a line is sent;
the next one follows once it was taken, or refused for good. So a receiver hears of an incident in
order, and one that is not taken keeps no other incident waiting.

A letter that failed waits twice as long after each attempt. Where several in a row fail, whichever
they are, the receiver counts as down: then one at a time is sent, letters that were never tried a
second apart, the others at the pace of one that failed that often. With the first that is taken all
of them are due.

What waits is bounded. Where it is more, the oldest letters that a later one of their incident
supersedes go first; the last of each incident never goes. Where bytes still are too many, the last
ones, oldest first, lose their body, which whoever sends them makes anew of the incident as it then
is: so there are at most as many letters as bounds allow or incidents are kept, and of these no body
beyond the bound.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from analyzer.webhooks.answers import Outcome

FIRST_NS = 1_000_000_000
"""Nanoseconds before the second attempt, at most, and between attempts at a receiver that is down.
Chosen: a receiver that restarts loses no time, and one that is dead costs a connection a second."""
LONGEST_NS = 300_000_000_000
"""Most nanoseconds before the next attempt. Chosen: who comes back after a night is told within
five minutes, unless something new happens before."""
AFTER_NS = 600_000_000_000
"""Most nanoseconds for which Retry-After is obeyed. Chosen: what is told is for people who mend."""
DOWN = 3
"""Failures in a row, with nothing taken in between, from which the receiver counts as down. Chosen:
one incident's that it cannot take and one by chance do not slow the others."""
PATIENCE_NS = 3_600_000_000_000
"""Nanoseconds for which a letter is sent that a receiver turns away (401, 404, 410, ...). Chosen: a
secret or an address is corrected within an hour, if somebody is there."""
SPARE = 16
"""Part of a bound that is free after something was given up. Chosen: looking through all that waits
takes milliseconds, and is not done with each letter."""
CONNECTIONS = 4
"""Most letters that are under way at once. Chosen: a receiver that takes a second each keeps up
with the start of a large outage, and none is flooded."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One event for one receiver."""

    webhook: str
    seq: int
    """Of the journal: it grows."""
    incident: str
    event: str
    component: str
    """Empty where nobody knows."""
    wall_ns: int
    """When it happened, Unix nanoseconds."""
    body: bytes
    """As it is sent; empty: it is made anew."""

    @property
    def key(self) -> str:
        """By what it is stored."""
        return f"{self.webhook} {self.seq}"

    @property
    def id(self) -> str:
        """By what its receiver knows it, however often it is sent."""
        return f"{self.incident}.{self.seq}"


@dataclass(slots=True)
class Counts:
    """Numbers since the start."""

    sent: int = 0
    """Letters that were taken."""
    retried: int = 0
    """Attempts that failed, so that another one follows."""
    refused: int = 0
    """Letters that the receiver did not want."""
    dropped: int = 0
    """Letters given up for room, each superseded, or of an incident that is kept no more."""


@dataclass(slots=True)
class _Line:
    letters: deque[Letter] = field(default_factory=deque)
    attempts: int = 0
    """Failed ones of the first letter, and of those dropped before it since one was taken."""
    unwelcome_ns: int | None = None
    """When the first letter was turned away first."""
    is_flying: bool = False


Due = tuple[int, int, str]
"""When a line is due, the number of its first letter, its incident."""


class Outbox:
    """Letters of one receiver. All instants are nanoseconds of one monotonic clock."""

    def __init__(self, *, most_letters: int, most_bytes: int, jitter: Callable[[], float]) -> None:
        """Hold so much at most; `jitter` returns numbers from 0 to 1 by chance."""
        self._most_letters, self._most_bytes, self._jitter = most_letters, most_bytes, jitter
        self.counts = Counts()
        self.waiting = self.bytes = 0
        """Letters, and the bytes of their bodies."""
        self._lines: dict[str, _Line] = {}
        self._long: dict[str, _Line] = {}
        """Those of them with more than one letter."""
        # Each line is in one of these two, or flies.
        self._fresh: deque[Due] = deque()
        """Lines whose first letter was never tried, in the order in which they became due."""
        self._failed: list[Due] = []
        """A heap of the others."""
        self._flying = self._failures = 0
        self._tried_ns = self._retry_ns = self._resume_ns = 0
        self._gone: list[str] = []
        self._emptied: list[Letter] = []

    @property
    def is_down(self) -> bool:
        """Whether the newest attempts all failed."""
        return self._failures >= DOWN

    @property
    def is_retrying(self) -> bool:
        """Whether something waits that was tried before."""
        return any(line.attempts for line in self._lines.values())

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest event happened that waits, Unix nanoseconds; None where none does."""
        return min((line.letters[0].wall_ns for line in self._lines.values()), default=None)

    def take(self, letter: Letter, now_ns: int) -> None:
        """Have a letter sent after the others of its incident."""
        line = self._lines.setdefault(letter.incident, _Line())
        if not line.letters:
            self._fresh.append((now_ns, letter.seq, letter.incident))
        else:
            self._long[letter.incident] = line
        line.letters.append(letter)
        self.waiting += 1
        self.bytes += len(letter.body)
        self._fit()

    def due(self, now_ns: int) -> list[Letter]:
        """Return what is to be sent now; each is `answered` or `given_up` later."""
        found = []
        while (next_ := self._next()) is not None and next_[0] <= now_ns:
            _, is_fresh = next_
            _, _, incident = self._fresh.popleft() if is_fresh else heappop(self._failed)
            line = self._lines[incident]
            line.is_flying = True
            self._flying += 1
            self._tried_ns = now_ns
            found.append(line.letters[0])
        return found

    def deadline(self) -> int | None:
        """Return when something is due next; None: not before a letter comes, or an answer."""
        next_ = self._next()
        return next_[0] if next_ is not None else None

    def answered(
        self, letter: Letter, outcome: Outcome, now_ns: int, retry_after_ns: int | None = None
    ) -> Outcome:
        """Take what became of a letter that was due; return what that comes to.

        One that was turned away for long enough is refused.
        """
        line = self._landed(letter)
        speaks = outcome in {Outcome.TAKEN, Outcome.REFUSED}
        if outcome is Outcome.UNWELCOME:
            line.unwelcome_ns = now_ns if line.unwelcome_ns is None else line.unwelcome_ns
            if now_ns - line.unwelcome_ns >= PATIENCE_NS:
                outcome = Outcome.REFUSED
        if outcome in {Outcome.TAKEN, Outcome.REFUSED}:
            self.counts.sent += outcome is Outcome.TAKEN
            self.counts.refused += outcome is Outcome.REFUSED
            self._settle(letter, now_ns)
            if speaks:
                self._came_back(now_ns)
        else:
            self._postpone(line, now_ns)
            self._fit()  # it may be dropped now that it flies no more
        if retry_after_ns is not None and outcome is not Outcome.TAKEN:
            self._resume_ns = max(self._resume_ns, now_ns + min(retry_after_ns, AFTER_NS))
        return outcome

    def given_up(self, letter: Letter, now_ns: int) -> None:
        """Drop a letter that was due, and cannot be made any more."""
        self._landed(letter)
        self.counts.dropped += 1
        self._settle(letter, now_ns)

    def changes(self) -> tuple[list[Letter], list[str]]:
        """Return letters that are stored otherwise now, and keys of those that are gone; once."""
        emptied, self._emptied = self._emptied, []
        gone, self._gone = self._gone, []
        return emptied, gone

    def _next(self) -> tuple[int, bool] | None:
        """Return when the next line is due, and whether its first letter was never tried."""
        if self._flying >= (1 if self.is_down else CONNECTIONS):
            return None
        found = []
        if self._fresh:
            rest_ns = self._tried_ns + FIRST_NS if self.is_down else 0
            found.append((max(self._fresh[0][0], rest_ns), True))
        if self._failed:
            found.append((max(self._failed[0][0], self._retry_ns if self.is_down else 0), False))
        if not found:
            return None
        due_ns, is_fresh = min(found)
        return max(due_ns, self._resume_ns), is_fresh

    def _landed(self, letter: Letter) -> _Line:
        line = self._lines[letter.incident]
        line.is_flying = False
        self._flying -= 1
        return line

    def _settle(self, letter: Letter, now_ns: int) -> None:
        """Be done with the first letter of a line; the next one is due."""
        line = self._lines[letter.incident]
        self._remove(line, 0)
        line.attempts, line.unwelcome_ns = 0, None
        if line.letters:
            self._fresh.append((now_ns, line.letters[0].seq, letter.incident))
        else:
            del self._lines[letter.incident]

    def _postpone(self, line: _Line, now_ns: int) -> None:
        self.counts.retried += 1
        line.attempts += 1
        self._failures += 1
        first = line.letters[0]
        heappush(self._failed, (now_ns + self._pause(line.attempts), first.seq, first.incident))
        self._retry_ns = now_ns + self._pause(self._failures)

    def _pause(self, failures: int) -> int:
        longest_ns: int = min(FIRST_NS << min(failures - 1, 20), LONGEST_NS)
        return int(longest_ns * (1 + self._jitter()) / 2)

    def _came_back(self, now_ns: int) -> None:
        if self.is_down:
            waited = sorted(self._failed, key=lambda due: due[1])
            self._failed = [(now_ns, seq, incident) for _, seq, incident in waited]
        self._failures = 0

    def _fit(self) -> None:
        """Give up what is too much, and a little more, so that it is seldom looked for."""
        if self.waiting > self._most_letters or self.bytes > self._most_bytes:
            for _, incident, letter in self._superseded():
                if (
                    self.waiting <= self._most_letters - self._most_letters // SPARE
                    and self.bytes <= self._most_bytes - self._most_bytes // SPARE
                ):
                    break
                line = self._lines[incident]
                self._remove(line, line.letters.index(letter))
                self.counts.dropped += 1
        if self.bytes > self._most_bytes:
            self._empty()

    def _superseded(self) -> list[tuple[int, str, Letter]]:
        """Return letters that are not the last of their line, and do not fly, oldest first."""
        return sorted(
            (letter.seq, incident, letter)
            for incident, line in self._long.items()
            for letter in list(line.letters)[line.is_flying : -1]
        )

    def _empty(self) -> None:
        """Take the bodies of the oldest letters away."""
        lines = self._lines.values()
        whole = [(letter.seq, letter) for line in lines for letter in line.letters if letter.body]
        for _, letter in sorted(whole):
            if self.bytes <= self._most_bytes - self._most_bytes // SPARE:
                break
            letters = self._lines[letter.incident].letters
            hollow = replace(letter, body=b"")
            letters[letters.index(letter)] = hollow
            self.bytes -= len(letter.body)
            self._emptied.append(hollow)

    def _remove(self, line: _Line, place: int) -> None:
        letter = line.letters[place]
        del line.letters[place]
        if len(line.letters) == 1:
            del self._long[letter.incident]
        self.waiting -= 1
        self.bytes -= len(letter.body)
        self._gone.append(letter.key)
