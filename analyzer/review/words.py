# SPDX-License-Identifier: Apache-2.0
"""What people say of verdicts, and how often these were right."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from netagent.model.verdict import Incident

MAX_WORDS = 8
"""Most people whose word is kept of an incident; the oldest goes first. Chosen: a shift has fewer.
"""
MAX_NOTE = 1_000
"""Most characters of a note. Chosen: a paragraph."""
MAX_COMPONENT = 300
"""Most characters of a component's name. Chosen: a host, a bridge and a table fit."""


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody said of a verdict."""

    by: str
    """Name in the certificate; empty where there is none."""
    wall_ns: int
    right: bool
    component: str = ""
    """What was at fault, ``KIND NAME``; empty where it was not said."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """What was said of one incident, the oldest first: of each person the last word."""

    incident: str
    words: tuple[Word, ...] = ()

    def add(self, word: Word) -> "Words":
        """Return them with one more, in place of that person's earlier one."""
        others = tuple(each for each in self.words if each.by != word.by)
        return Words(self.incident, (*others, word)[-MAX_WORDS:])


class Book:
    """What was said of every incident that is kept."""

    def __init__(self, stored: Iterable[Words] = ()) -> None:
        self._known = {each.incident: each for each in stored}

    def of(self, incident: str) -> Words:
        """Return what was said of one."""
        return self._known.get(incident, Words(incident))

    def take(self, words: Words) -> None:
        """Remember this instead of what was said before."""
        self._known[words.incident] = words

    def forget(self, is_kept: Callable[[str], bool]) -> None:
        """Drop what was said of incidents that are kept no more."""
        self._known = {name: each for name, each in self._known.items() if is_kept(name)}


@dataclass(frozen=True, slots=True)
class Tally:
    """How many verdicts were right by the newest word of each."""

    right: int = 0
    wrong: int = 0
    unjudged: int = 0

    @property
    def share(self) -> float | None:
        """Share of the judged ones that were right; None where none was judged."""
        judged = self.right + self.wrong
        return self.right / judged if judged else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How many verdicts were right, of all, and by layer ("" for those without one)."""

    whole: Tally = field(default_factory=Tally)
    layers: dict[str, Tally] = field(default_factory=dict)


def accuracy(incidents: Iterable[Incident], words_of: Callable[[str], Words]) -> Accuracy:
    """Return how often verdicts were right, as people said."""
    said: dict[str, list[bool | None]] = {}
    for each in incidents:
        layer = each.verdict.layer.value if each.verdict.layer else ""
        said.setdefault(layer, []).append(last_of(words_of(each.id)))
    every = [each for some in said.values() for each in some]
    return Accuracy(_tally(every), {layer: _tally(some) for layer, some in sorted(said.items())})


def last_of(words: Words) -> bool | None:
    """Return whether the newest word says that a verdict was right; None where nobody spoke."""
    return words.words[-1].right if words.words else None


def _tally(said: Sequence[bool | None]) -> Tally:
    return Tally(said.count(True), said.count(False), said.count(None))
