# SPDX-License-Identifier: Apache-2.0
from analyzer.intent.model import Port
from analyzer.intent.policy import shut

OPEN, SHUT, OTHER = Port("a"), Port("b", is_enabled=False), Port("c", is_enabled=False)


def test_nothing_passes_between_ports_of_which_one_is_disabled():
    assert shut(OPEN, OPEN) == ()
    assert shut(OPEN, SHUT) == shut(SHUT, OPEN) == (SHUT,)
    assert shut(SHUT, OTHER) == (SHUT, OTHER)
