# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: each answer names what the next one begins after."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from litestar.params import QueryParameter

T = TypeVar("T")

LIMIT, MAX_LIMIT = 1_000, 10_000
"""Items of a page, unless asked for otherwise, and at most. Chosen: some megabytes and tens of
milliseconds, within which nobody else is served."""

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="Most items of the answer.")]
After = Annotated[
    str | None, QueryParameter(description="`next` of the page before; without it, the first.")
]


def page(
    items: Iterable[T], key: Callable[[T], Any], after: Any, limit: int
) -> tuple[list[T], T | None]:
    """Return what of `items`, in the order of `key`, is on a page, and its last one.

    The page begins after the key `after`; None is the first one.
    None instead of the last one where the list ends here. What comes and goes between two pages is
    on one of them or on none; nothing else is left out or told twice.
    """
    found: list[T] = []
    for item in items:
        if after is not None and not key(item) > after:
            continue
        if len(found) == limit:
            return found, found[-1]
        found.append(item)
    return found, None
