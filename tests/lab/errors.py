# SPDX-License-Identifier: Apache-2.0
"""What the lab raises on purpose: one error, with what to do about it."""


class LabError(Exception):
    """The lab cannot do what was asked; `remedy` is one line for a human."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem
