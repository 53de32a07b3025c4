# SPDX-License-Identifier: Apache-2.0
"""Questions to agents, and one to the analyzer itself, with their answers.

Whoever needs to know more is a generator: it yields questions, is sent the replies in the same
order, and returns what it found. Nothing in it waits; the rim does (`analyzer.server.asker`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from netagent.wire.messages import CheckReply, CheckRequest, PathReply, PathRequest, Status
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.walk import End

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Asks an agent for its status, to learn whether it answers."""


class MeaningRequest(Struct, frozen=True, kw_only=True):
    """Asks, of ends of walks on a host, what the controller of its virtual switch wants there.

    It is for the analyzer itself, which reads the controller and the host's flows.
    """

    bridge: str
    ends: tuple[End, ...]
    ports: tuple[str, ...] = ()
    """By which port of the bridge each one's packet came in; "" where nobody knows."""


CHANGED = "changed"
"""What it means that a flow is not there any more which a walk ended at: what is wanted, or what
is there, changed meanwhile, and the next window tells."""


class Meant(Struct, frozen=True, kw_only=True):
    """What one end means."""

    meaning: str = ""
    """A value of `analyzer.intent.reading.Meaning`, or `CHANGED`."""
    text: str = ""
    """One sentence for people."""
    by: str = ""
    """What intends it, or what the missing flow was made for."""
    table: int = -1
    """OpenFlow table that lacks a flow; -1 where none does."""
    part: str = ""
    """Part of the controller that is why, as `netagent.model.path.controller` has it."""


class MeaningReply(Struct, frozen=True, kw_only=True):
    """One for each end that was asked about."""

    meant: tuple[Meant, ...]


Request = (
    StatusRequest | CheckRequest | PathRequest | TraceRequest | ValidateRequest | MeaningRequest
)
Answer = Status | CheckReply | PathReply | TraceReply | ValidateReply | MeaningReply


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the agent of `host`."""

    host: str
    request: Request


class Why(StrEnum):
    """Why there is no answer."""

    REFUSED = "refused"
    """Nothing listens on the RPC port: the host answers, the agent does not run."""
    TIMEOUT = "timeout"
    """The connection was accepted, and nobody answered in time."""
    UNREACHABLE = "unreachable"
    """Not even the host answered, or nobody knows where it is."""
    CANNOT = "cannot"
    """The agent says that its host is not able to."""
    BUSY = "busy"
    """The agent says that it was asked for the same just before."""
    ODD = "odd"
    """The agent answered something else."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer; `text` is the reason, for people."""

    why: Why
    text: str


Reply = Answer | Failed
Asking = Generator[Sequence[Ask], Sequence[Reply], T]
"""Yields questions, is sent one reply for each, returns a T."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to put to an agent now."""

    id: int
    host: str
    request: Request
    deadline_ns: int
    """Instant until which an answer counts, by the clock of `step`."""
