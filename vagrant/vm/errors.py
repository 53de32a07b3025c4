# SPDX-License-Identifier: Apache-2.0
"""What the VM lab raises on purpose.

VmError
└── BuildFailed     the end of the build's log is the reason
"""


class VmError(Exception):
    """The VM lab cannot do what was asked; `remedy` is one line for a human."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


class BuildFailed(VmError):
    """An image could not be built; nothing of it is left. `log` is the end of its log."""

    def __init__(self, distribution: str, log: str) -> None:
        super().__init__(f"{distribution} could not be built", "see the end of the log above")
        self.distribution, self.log = distribution, log
