# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from tests.thresholds import table, thresholds

DOC = Path(__file__).parents[1] / "docs" / "detection.md"


def test_every_threshold_of_detection_is_documented_as_it_is():
    lines = DOC.read_text().splitlines()
    assert lines[lines.index(table()[0]) :] == table()


def test_every_threshold_says_where_it_comes_from():
    origins = ("Chosen", "The paper's", "as in the paper", "Measured", "Between what Figure")
    without = [
        f"{module}.{name}"
        for module, name, _, text in thresholds()
        if not any(origin in text for origin in origins)
    ]
    assert without == []
