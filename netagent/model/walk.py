# SPDX-License-Identifier: Apache-2.0
"""The words for how a packet's way through a host ends."""

from typing import Literal

EndKind = Literal["output", "tunnelled", "controller", "dropped", "missed", "loop", "cannot_tell"]
"""How one copy of a packet ended."""

OpinionKind = Literal["agrees", "differs", "unanswered"]
"""What Open vSwitch itself makes of the packet, beside what its tables as dumped do."""
