# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import msgspec
import pytest

from netagent.model import strenum


def older():
    """Return the class that Python 3.10 gets."""
    made = {}
    exec(compile(Path(strenum.__file__).read_text(), strenum.__file__, "exec"), made)  # noqa: S102
    return made["StrEnum"]


def test_python_3_10_has_what_later_ones_have(monkeypatch):
    own = strenum.StrEnum
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    for base in (older(), own):
        kind = base("Kind", {"LINK": "link", "HOST": "host"})
        link = kind("link")
        assert (str(link), f"{link}", f"{link:>6}", link + "s") == (
            "link",
            "link",
            "  link",
            "links",
        )
        assert link == "link"
        assert {link: 1}["link"] == 1
        assert msgspec.json.encode(link) == b'"link"'
        assert msgspec.json.decode(b'"host"', type=kind) is kind.HOST
        assert sorted([kind.LINK, kind.HOST]) == ["host", "link"]
        with pytest.raises(ValueError, match="spine"):
            kind("spine")
