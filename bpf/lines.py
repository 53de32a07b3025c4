# SPDX-License-Identifier: Apache-2.0
"""What a worker says to whoever started it: JSON, a line each, on stdout."""

import json
import sys
from typing import Any


def say(document: dict[str, Any]) -> None:
    """Write a line, at once."""
    sys.stdout.write(json.dumps(document, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def refuse(code: int, text: str, remedy: str) -> int:
    """Say why not, and what would help; return `code`, the exit code of who says so."""
    say({"error": text, "remedy": remedy, "code": code})
    return code
