# SPDX-License-Identifier: Apache-2.0
"""How a verb answers when the agent itself runs it: one JSON document on stdout, whatever happens.

See `netagent.adapters.vswitch_worker` for the other end.
"""

import json
import sys
from collections.abc import Callable
from typing import TypeVar

from netagent.model.errors import CapabilityMissing, ConfigError, NetAgentError
from netagent.wire.codec import ContentType, encode

MAX_OUTPUT_BYTES = 4 << 20
"""A larger answer would be refused by the agent."""

T = TypeVar("T")


def print_answer(answer: Callable[[], T], *, as_json: bool, show: Callable[[T], None]) -> int:
    """Print what `answer()` returns and return 0.

    With `as_json` also what it raises: then return 2 for a question that makes no sense, 1 for one
    that has no answer.
    """
    try:
        message = answer()
    except NetAgentError as error:
        if not as_json:
            raise
        remedy = error.remedy if isinstance(error, CapabilityMissing) else "see the agent's host"
        print(json.dumps({"error": str(error), "remedy": remedy}))
        return 2 if isinstance(error, ConfigError) else 1
    if as_json:
        sys.stdout.write(encode(message, ContentType.JSON).decode() + "\n")
    else:
        show(message)
    return 0
