# SPDX-License-Identifier: Apache-2.0
"""What can be asked of the newest window. Values, as they go to the judge."""

from typing import Literal

from msgspec import Struct

from netagent.model.ids import EndpointId

By = Literal["leaf", "rail", "host", "task"]


class Asked(Struct, frozen=True, kw_only=True):
    """Of which tasks' flows something is asked."""

    tasks: tuple[str, ...] | None = None
    """Patterns, as `fnmatch` has them; None: of all, and of endpoints that are in no task."""


class Totals(Asked, frozen=True, kw_only=True, tag="totals"):
    """How much was probed, and of how much of it the way is not known."""


class Fabric(Asked, frozen=True, kw_only=True, tag="fabric"):
    """Switches, links and hosts."""

    apart: tuple[str, ...] = ()
    """Hosts, and switches, that are shown by themselves, however many there are."""


class Matrix(Asked, frozen=True, kw_only=True, tag="matrix"):
    """From whom to whom."""

    by: By = "leaf"
    row: str | None = None
    """A leaf, or a host: what is in it."""
    col: str | None = None
    within: str | None = None
    """A task: its endpoints, or its hosts where these are too many, whatever `by` says."""


class Between(Asked, frozen=True, kw_only=True, tag="between"):
    """What a pair's flows did, each by its port."""

    source: EndpointId
    target: EndpointId


Question = Totals | Fabric | Matrix | Between
