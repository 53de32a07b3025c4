# SPDX-License-Identifier: Apache-2.0
"""A fabric, hosts, tenants and faults in network namespaces, with real Open vSwitch.

>>> from tests.lab import Lab, Shape
>>> lab = Lab()                                    # doctest: +SKIP
>>> lab.up(Shape(hosts=2, rails=1, segments=1))    # doctest: +SKIP
>>> lab.inject("link-loss").truth                  # doctest: +SKIP
"""

from tests.lab.errors import LabError
from tests.lab.lab import Bursts, Lab
from tests.lab.shape import Shape
from tests.lab.state import Fault, State, Truth

__all__ = ["Bursts", "Fault", "Lab", "LabError", "Shape", "State", "Truth"]
