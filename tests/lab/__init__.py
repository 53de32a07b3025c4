# SPDX-License-Identifier: Apache-2.0
"""A fabric, hosts, tenants and faults in network namespaces, with real Open vSwitch.

>>> from tests.lab import Lab, Shape
>>> lab = Lab()                                    # doctest: +SKIP
>>> lab.up(Shape(hosts=2, rails=1, segments=1))    # doctest: +SKIP
>>> lab.inject("link-loss").truth                  # doctest: +SKIP

The names come from their modules at first use: `python -m tests.lab` imports this package before
`__main__` can say that pyroute2 is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.errors import LabError
    from tests.lab.lab import Bursts, Lab
    from tests.lab.shape import Shape
    from tests.lab.state import Fault, State, Truth

__all__ = ["Bursts", "Fault", "Lab", "LabError", "Shape", "State", "Truth"]

_MODULES = {
    "Bursts": "lab",
    "Fault": "state",
    "Lab": "lab",
    "LabError": "errors",
    "Shape": "shape",
    "State": "state",
    "Truth": "state",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
