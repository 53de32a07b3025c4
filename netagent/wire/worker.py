# SPDX-License-Identifier: Apache-2.0
"""What the agent and the processes that work for it say to each other.

`netagent answer` says READY, then takes questions, a line of JSON each (`Asked`), and answers each
with a head, `CODE LENGTH` and a newline, and LENGTH bytes of output: the reply as JSON, or a
`Problem` where CODE is not 0. A trace (`bpf.worker`) takes one question, prints the same as lines,
and ends with the code. CODE is an exit code (PROBLEM, MISUSE or BUSY of `netagent.model.errors`),
or the negative number of the signal that ended the work.
"""

from typing import TypeVar

from msgspec import Struct

from netagent.model.endpoint import Endpoint
from netagent.model.errors import (
    BUSY,
    MISUSE,
    PROBLEM,
    CapabilityMissing,
    NetAgentError,
    RemoteProtocolError,
    TooSoon,
    Unreachable,
)

from .codec import ContentType, decode, encode
from .messages import CheckRequest
from .validate import ValidateRequest

READY = b"ready\n"
"""What `netagent answer` says before it takes questions."""

MAX_OUTPUT_BYTES = 4 << 20
"""Bytes of an answer; a larger one is refused. Chosen: a larger one would not fit beside the
agent."""

T = TypeVar("T")


class CheckWork(Struct, frozen=True, kw_only=True, tag="check"):
    """Walk the flow tables of this host; the answer is a CheckReply."""

    rundir: str
    """Folder of Open vSwitch's sockets."""
    bridge: str
    """The integration bridge, whose ports are the endpoints'."""
    host: str
    request: CheckRequest
    endpoints: tuple[Endpoint, ...] = ()
    """The host's endpoints as its agent knows them."""


class FlowsWork(Struct, frozen=True, kw_only=True, tag="flows"):
    """Dump the flows of a bridge; the answer is a FlowsReply."""

    rundir: str
    bridge: str
    table: int | None = None
    """None: all tables."""


class ValidateWork(Struct, frozen=True, kw_only=True, tag="validate"):
    """Compare the copies of this host's flow tables; the answer is a ValidateReply."""

    rundir: str
    bridge: str
    host: str
    request: ValidateRequest
    endpoints: tuple[Endpoint, ...] = ()
    """The host's endpoints as its agent knows them."""


Work = CheckWork | FlowsWork | ValidateWork


class Asked(Struct, frozen=True, kw_only=True):
    """A question to `netagent answer`."""

    work: Work


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says instead of an answer."""

    error: str
    remedy: str
    code: int = PROBLEM
    """The exit code, for whoever is no parent of the worker."""


def problem_of(error: NetAgentError) -> Problem:
    """Return what a worker says where `error` is all it has."""
    remedy = error.remedy if isinstance(error, CapabilityMissing) else "see the agent's host"
    return Problem(error=str(error), remedy=remedy)


def question(work: Work) -> bytes:
    """Return the line that asks for `work`."""
    return encode(Asked(work=work), ContentType.JSON) + b"\n"


def read_question(line: bytes) -> Work:
    """Return what a line asks for; RemoteProtocolError if it is no question."""
    return decode(line, Asked, ContentType.JSON).work


def head(code: int, length: int) -> bytes:
    """Return the line before an answer of `length` bytes."""
    return b"%d %d\n" % (code, length)


def read_head(line: bytes) -> tuple[int, int] | None:
    """Return exit code and length in bytes of what follows; None if the line is no head."""
    try:
        code, length = map(int, line.split())
    except ValueError:
        return None
    return (code, length) if length >= 0 else None


def stated_code(output: bytes) -> int:
    """Return the exit code that goes with `output`: of a `Problem` its own, else 0."""
    try:
        return decode(output, Problem, ContentType.JSON).code
    except RemoteProtocolError:
        return 0


def read_answer(worker: str, code: int, output: bytes, kind: type[T]) -> T:
    """Return the `kind` that `worker` answered.

    Raises
    ------
    RemoteProtocolError
        If the question makes no sense, or the output is no answer.
    CapabilityMissing
        If this host cannot.
    TooSoon
        If another worker is at work.
    Unreachable
        If the work ended without a word.
    """
    if code == 0:
        return decode(output, kind, ContentType.JSON)
    try:
        problem = decode(output, Problem, ContentType.JSON)
    except RemoteProtocolError as error:
        raise Unreachable(worker, f"ended with code {code}") from error
    if code == MISUSE:
        raise RemoteProtocolError(problem.error)
    if code == BUSY:
        raise TooSoon(worker, f"{problem.error}: {problem.remedy}")
    raise CapabilityMissing(problem.error, problem.remedy)
