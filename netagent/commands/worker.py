# SPDX-License-Identifier: Apache-2.0
"""How a verb answers a program: one JSON document, whatever happens."""

import sys
from collections.abc import Callable
from typing import TypeVar

from netagent.model.errors import NetAgentError, exit_code
from netagent.wire.codec import ContentType, encode
from netagent.wire.worker import problem_of

T = TypeVar("T")


def answered(answer: Callable[[], object]) -> tuple[int, bytes]:
    """Return exit code and JSON of what `answer()` returns or, as a Problem, raises."""
    try:
        message = answer()
    except NetAgentError as error:
        return exit_code(error), encode(problem_of(error), ContentType.JSON)
    return 0, encode(message, ContentType.JSON)


def print_answer(answer: Callable[[], T], *, as_json: bool, show: Callable[[T], None]) -> int:
    """Print what `answer()` returns and return 0.

    With `as_json` also what it raises: then return 2 for a question that makes no sense, 1 for one
    that has no answer.
    """
    if not as_json:
        show(answer())
        return 0
    code, output = answered(answer)
    sys.stdout.write(output.decode() + "\n")
    return code
