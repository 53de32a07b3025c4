# SPDX-License-Identifier: Apache-2.0
"""``netagent answer``: what the agent starts to have `check` and `flows` answered at once.

It imports what they need, and forks for each question: an answer then costs no start of Python, and
what it took is given back whole when its fork ends. It ends when its standard input does.
"""

import argparse
import json
import os
import signal
import sys
from importlib import import_module
from types import ModuleType

from netagent.commands import check, flows
from netagent.commands.worker import MAX_OUTPUT_BYTES
from netagent.model.errors import ConfigError

VERBS: dict[str, ModuleType] = {"check": check, "flows": flows}
MISUSE = 2
_IMPORTED_LATE = "ovs_checks.vswitchd"
"""What the verbs import when they are at work."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no arguments: questions come on standard input, a line of JSON each."""


def run(_arguments: argparse.Namespace) -> int:
    """Say `ready`; answer each line with exit code and length on a line, and so many bytes."""
    import_module(_IMPORTED_LATE)
    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        code, output = _in_fork(asked["arguments"], asked["body"].encode())
        out.write(b"%d %d\n" % (code, len(output)) + output)
        out.flush()
    return 0


def _in_fork(arguments: list[str], body: bytes) -> tuple[int, bytes]:
    read_end, write_end = os.pipe()
    source = os.memfd_create("question")
    os.write(source, body)
    os.lseek(source, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        os.dup2(source, 0)
        os.dup2(write_end, 1)
        os.close(read_end)
        os._exit(_answer(arguments))
    os.close(write_end)
    os.close(source)
    output = bytearray()
    while len(output) <= MAX_OUTPUT_BYTES and (chunk := os.read(read_end, 1 << 16)):
        output += chunk
    os.close(read_end)
    if len(output) > MAX_OUTPUT_BYTES:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), bytes(output)


def _answer(arguments: list[str]) -> int:
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115 - the fork's own, to its end
    try:
        module = VERBS[arguments[0]]
        parser = argparse.ArgumentParser(prog=f"netagent {arguments[0]}")
        module.add_arguments(parser)
        code: int = module.run(parser.parse_args(arguments[1:]))
        sys.stdout.flush()
    except SystemExit:  # argparse has said why on stderr
        return MISUSE
    except ConfigError as error:
        print(error, file=sys.stderr)
        return MISUSE
    except BaseException as error:  # noqa: BLE001 - a fork must not return into the loop
        print(repr(error), file=sys.stderr)
        return 1
    return code
