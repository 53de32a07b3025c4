# SPDX-License-Identifier: Apache-2.0
"""How a verb answers the agent: one JSON document, whatever happens."""

from collections.abc import Callable

from netagent.model.errors import NetAgentError, exit_code
from netagent.wire.codec import ContentType, encode
from netagent.wire.worker import problem_of


def answered(answer: Callable[[], object]) -> tuple[int, bytes]:
    """Return exit code and JSON of what `answer()` returns or, as a Problem, raises."""
    try:
        message = answer()
    except NetAgentError as error:
        return exit_code(error), encode(problem_of(error), ContentType.JSON)
    return 0, encode(message, ContentType.JSON)
