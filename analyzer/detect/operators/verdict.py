# SPDX-License-Identifier: Apache-2.0
"""What a log of operators says of who holds its job up."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Holdup(StrEnum):
    """What is wrong with a job, after the four syndromes of C4D (HPCA '25), and what is not."""

    HANG_COMMUNICATION = "communication hang"
    """All of a group entered an operator, and it does not end."""
    HANG_RANK = "non-communication hang"
    """Some never entered what the others wait in."""
    MISMATCH = "mismatch"
    """Ranks of a group are in different operators, or of different sizes: a bug of the job."""
    SLOW_COMMUNICATION = "communication slow"
    SLOW_RANK = "non-communication slow"
    """A rank, or all of a stage, enters late what the others wait in."""
    IMBALANCE = "imbalance"
    """Work is dealt unevenly, by chance and over all: nobody's fault."""
    ALL_SLOW = "all slow"
    """All ranks alike, at the same time: garbage collection, storage, a checkpoint."""
    DISAGREEMENT = "sources disagree"
    NOTHING = "nothing"
    """Nobody holds the job up, as far as the log shows."""
    INSUFFICIENT = "insufficient evidence"


class Who(StrEnum):
    """What a culprit is."""

    RANK = "rank"
    GROUP = "group"
    HOST = "host"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Culprit:
    """One who holds the job up."""

    kind: Who
    ranks: tuple[int, ...]
    """Of an edge the sender first."""
    confidence: float
    """0 to 1."""
    why: str
    host: str | None = None
    network: bool = False
    """Whether it is what lies between these ranks that is at fault, and none of them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who holds the job up, best first; nobody where the tuple is empty."""

    holdup: Holdup
    summary: str
    """One sentence for people."""
    culprits: tuple[Culprit, ...] = ()
    innocent: bool = True
    """Whether the network is, as far as the log shows."""
    evidence: tuple[str, ...] = ()
    iterations: int = 0
    """How many were looked at."""
    missing: tuple[str, ...] = ()
    """What would be needed to say more."""


def as_json(verdict: Verdict) -> Mapping[str, Any]:
    """Return the verdict as `netagent-analyzer operators --json` prints it."""
    return {
        "verdict": verdict.holdup.value,
        "summary": verdict.summary,
        "culprits": [
            {
                "kind": each.kind.value, "ranks": list(each.ranks), "host": each.host,
                "confidence": round(each.confidence, 3), "why": each.why,
            }
            for each in verdict.culprits
        ],
        "innocent": verdict.innocent,
        "evidence": list(verdict.evidence),
        "iterations": verdict.iterations,
        "missing": list(verdict.missing),
    }  # fmt: skip


def verdict_of(said: Mapping[str, Any]) -> Verdict:
    """Return the verdict that `as_json` gave; what is between ranks and what not is not in it."""
    culprits = tuple(
        Culprit(Who(each["kind"]), tuple(each["ranks"]), each["confidence"], each["why"],
                each["host"])
        for each in said["culprits"]
    )  # fmt: skip
    return Verdict(
        Holdup(said["verdict"]), said["summary"], culprits, innocent=said["innocent"],
        evidence=tuple(said["evidence"]), iterations=said["iterations"],
        missing=tuple(said["missing"]),
    )  # fmt: skip
