# SPDX-License-Identifier: Apache-2.0
"""`enum.StrEnum` of Python 3.11, also for 3.10."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Members are strings, and are written as what they are."""

        __str__ = str.__str__

        def __format__(self, format_spec: str) -> str:
            """Write it as other strings are."""
            return str.__format__(self, format_spec)


__all__ = ["StrEnum"]
