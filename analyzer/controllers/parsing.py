# SPDX-License-Identifier: Apache-2.0
"""Where a JSON-RPC message ends in a stream, so that Python's own parser may read it. Pure.

python-ovs comes from its registry without its parser in C, and the one in Python takes a function
call for each character: of all that a replica of ten thousand ports costs, the larger half.
"""

import json
import re
from typing import Any

_MARK = re.compile(r'[{}]|"(?:[^"\\]|\\.)*(")?', re.DOTALL)
"""A brace, or a string and the quotation mark that ends it, if that came already."""


class MessageParser:
    """Takes the place of `ovs.json.Parser`; for objects, which messages are."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._rest = ""
        """A string that what came so far has cut."""
        self._depth = 0
        self._is_done = False

    def feed(self, text: str) -> int:
        """Take what came; return how many characters of it belong to this message."""
        held, text = len(self._rest), self._rest + text
        self._rest, end = "", len(text)
        if not self._depth and text.strip() and not text.lstrip().startswith("{"):
            self._is_done = True  # no message: `finish` says so
        for found in _MARK.finditer(text):
            mark = found[0]
            if mark == "{":
                self._depth += 1
            elif mark == "}":
                self._depth -= 1
                if self._depth <= 0:
                    self._is_done = True
                    self._parts.append(text[: found.end()])
                    return found.end() - held
            elif found[1] is None:
                self._rest = text[found.start() :]
                self._parts.append(text[: found.start()])
                return end - held
        self._parts.append(text)
        return end - held

    def is_done(self) -> bool:
        """Return whether the message is whole."""
        return self._is_done

    def finish(self) -> Any:
        """Return the message; or, as python-ovs wants it, a text that says why there is none."""
        try:
            return json.loads("".join(self._parts))
        except ValueError as error:
            return str(error)
