# SPDX-License-Identifier: Apache-2.0
"""Run a function where an endpoint's device can be opened."""

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from netagent.adapters.rdma.messages import Place

T = TypeVar("T")


def call_at(place: Place, function: Callable[[], T]) -> T:
    """Return `function()` as run in the namespace of `place`; raises OSError where that is gone."""
    if not place.path:
        return function()
    # Imported when needed: it brings pyroute2, which would be half of a helper process.
    enter: Callable[..., T] = import_module("netagent.adapters.host.setns").call_in_namespace
    return enter(place.path, function, inode=place.inode)
