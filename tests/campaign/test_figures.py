# SPDX-License-Identifier: Apache-2.0
from tests.campaign.episode import Outcome, Said, Truth
from tests.campaign.figures import NAMED, draw, rows
from tests.campaign.score import score


def outcome(component):
    truth = Truth(1, "CRC error", "link a -- b", "link", (), 1.0)
    said = Said("i1", 5.2, component, "underlay", 0.9, (), "open")
    return Outcome(1, (truth,), (said,), 50.0)


def test_a_picture_shows_what_was_named_for_what_failed(tmp_path):
    made = score([outcome("link a -- b"), outcome("link a -- b"), outcome(None)])
    families, counts = rows(made)
    assert families == ["link"]
    assert dict(zip(NAMED, counts[0], strict=True))["link"] == 2
    assert dict(zip(NAMED, counts[0], strict=True))["nobody"] == 1
    path = tmp_path / "deep" / "campaign.svg"
    draw(path, made)
    assert "Is confidence true?" in path.read_text().replace("<!-- ", "")


def test_of_nothing_a_picture_is_drawn_as_well(tmp_path):
    draw(tmp_path / "none.svg", score([]))
    assert (tmp_path / "none.svg").stat().st_size
