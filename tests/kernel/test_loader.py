# SPDX-License-Identifier: Apache-2.0
"""Programs kept on disk, as the kernel takes them."""

import pytest

from bpf.kernel.host import read_facts
from bpf.kernel.libbcc import Bcc
from bpf.kernel.loader import Sizes, load
from bpf.trace.programs import choose
from tests.kernel.overlay import Overlay

pytestmark = pytest.mark.kernel


def test_programs_are_compiled_once(overlay: Overlay, tmp_path, monkeypatch):
    facts = read_facts()
    programs, _ = choose("path", facts)
    assert facts.layout is not None
    what = (programs, facts, facts.layout)
    with load(*what, Sizes(64, 16, 1), tmp_path) as first:
        assert first.refusals == []
    monkeypatch.setattr(Bcc, "compile", lambda *_: pytest.fail("compiled again"))
    with load(*what, Sizes(64, 16, 1), tmp_path) as second:
        assert second.attached == first.attached
        assert second.refusals == []
