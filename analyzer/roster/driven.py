# SPDX-License-Identifier: Apache-2.0
"""What hosts said last of their part of a controller. Pure.

A host speaks for itself alone: that it calls itself by another's name there, or claims a logical
port, is what it says and no more.
"""

from analyzer.roster.newest import FORGET_NS, Newest, Said
from netagent.wire.controller import ControllerState

__all__ = ["FORGET_NS", "DrivenHosts", "Said"]


class DrivenHosts(Newest[ControllerState]):
    """The newest state of each host; a host that no controller drives says it no more."""
