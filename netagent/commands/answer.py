# SPDX-License-Identifier: Apache-2.0
"""``netagent answer``: what the agent starts to have questions on flow tables answered at once.

It imports what they need, and forks for each question: an answer then costs no start of Python, and
what it took is given back whole when its fork ends. It ends when its standard input does. What is
said is in `netagent.wire.worker`.
"""

import argparse
import os
import signal
import sys
from importlib import import_module

from netagent.adapters.workers.privileges import DAC_OVERRIDE, DAC_READ_SEARCH, keep_only
from netagent.commands import check, validate
from netagent.commands.flows import dump
from netagent.commands.worker import answered
from netagent.model.errors import MISUSE, PROBLEM, RemoteProtocolError
from netagent.wire.messages import CheckReply, FlowsReply
from netagent.wire.validate import ValidateReply
from netagent.wire.worker import (
    MAX_OUTPUT_BYTES,
    READY,
    CheckWork,
    FlowsWork,
    ValidateWork,
    Work,
    head,
    read_question,
)

_IMPORTED_LATE = "ovs_checks.sources.vswitchd"
"""What the verbs import when they are at work."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no arguments: questions come on standard input, a line of JSON each."""


def run(_arguments: argparse.Namespace) -> int:
    """Say `ready`; answer each line with a line of exit code and length, and the answer's bytes."""
    # Open vSwitch's sockets are all that it needs.
    keep_only((DAC_OVERRIDE, DAC_READ_SEARCH))
    import_module(_IMPORTED_LATE)
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    for line in sys.stdin.buffer:
        code, output = _in_fork(line)
        out.write(head(code, len(output)) + output)
        out.flush()
    return 0


def _in_fork(line: bytes) -> tuple[int, bytes]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # further questions are not the fork's
        os.dup2(write_end, 1)
        os.close(read_end)
        os._exit(_answer(line))
    os.close(write_end)
    output = bytearray()
    while len(output) <= MAX_OUTPUT_BYTES and (chunk := os.read(read_end, 1 << 16)):
        output += chunk
    os.close(read_end)
    if len(output) > MAX_OUTPUT_BYTES:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), bytes(output)


def _answer(line: bytes) -> int:
    try:
        work = read_question(line)
        code, output = answered(lambda: _done(work))
        with open(1, "wb", closefd=False) as out:
            out.write(output)
    except RemoteProtocolError as error:
        print(error, file=sys.stderr)
        return MISUSE
    except BaseException as error:  # noqa: BLE001 - a fork must not return into the loop
        print(repr(error), file=sys.stderr)
        return PROBLEM
    return code


def _done(work: Work) -> CheckReply | FlowsReply | ValidateReply:
    match work:
        case CheckWork():
            return check.done(work)
        case ValidateWork():
            return validate.done(work)
        case FlowsWork():
            return dump.done(work)
