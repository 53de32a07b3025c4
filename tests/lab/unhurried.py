# SPDX-License-Identifier: Apache-2.0
"""Who watches a lab whose cores do other work, too."""

from dataclasses import dataclass, field
from typing import Any

from tests.lab.demo import Observer


@dataclass
class Unhurried(Observer):
    """Counts hosts that are late apart: with other work on its cores they get too little, truly."""

    late: dict[str, str] = field(default_factory=dict)
    """Id of such an incident -> what it says."""

    def incidents(self) -> list[dict[str, Any]]:
        """Return every incident but those."""
        every = super().incidents()
        self.late |= {each["id"]: each["summary"] for each in every if _is_late(each)}
        return [each for each in every if not _is_late(each)]


def _is_late(incident: dict[str, Any]) -> bool:
    return bool(incident.get("symptom") == "delay")
