# SPDX-License-Identifier: Apache-2.0
"""Guests that run Debian's stock kernels in QEMU: real RDMA (Soft-RoCE), kernel Open vSwitch, eBPF.

For example::

    image = ensure(distribution("debian-12"), print)
    release = boot(image, ["uname", "-r"], Options(timeout_s=60)).stdout
"""

from vagrant.vm.build import ensure
from vagrant.vm.distributions import DISTRIBUTIONS, Distribution, distribution
from vagrant.vm.errors import BuildFailed, VmError
from vagrant.vm.guest import NEVER_UP, TIMED_OUT, Options, Result, boot, shell
from vagrant.vm.images import Image, find

__all__ = [
    "DISTRIBUTIONS",
    "NEVER_UP",
    "TIMED_OUT",
    "BuildFailed",
    "Distribution",
    "Image",
    "Options",
    "Result",
    "VmError",
    "boot",
    "distribution",
    "ensure",
    "find",
    "shell",
]
