# SPDX-License-Identifier: Apache-2.0
"""An intent put together of changes."""

from analyzer.intent.changes import PORTS, Changes, Known
from analyzer.intent.model import Ladder, Port

A, B, C = (Port(name) for name in "abc")


def known():
    made = Known("ovn", {"northbound": "not read"})
    assert made.take(Changes("ovn", 1, ports={"a": A, "b": B}, afresh=(PORTS,)))
    return made


def test_changes_are_taken_one_after_the_other():
    it = known()
    before = it.intent()
    assert it.take(Changes("ovn", 2, ports={"a": None, "x": None, "c": C}, ladder=Ladder(1, 1, 1)))
    assert before.ports == {"a": A, "b": B}
    told = it.intent()
    assert (told.ports, told.ladder.asked, told.wall_ns) == ({"b": B, "c": C}, 1, 2)


def test_a_map_that_begins_anew_takes_the_place_of_the_old_one_once_it_is_whole():
    it = known()
    away = {"northbound": "refused"}
    assert it.take(Changes("ovn", 2, away=away))
    assert not it.take(Changes("ovn", 3, ports={"c": C}, afresh=(PORTS,), is_whole=False))
    assert (it.intent().ports, it.intent().away) == ({"a": A, "b": B}, away)
    assert it.take(Changes("ovn", 4, ports={"b": B}))
    assert it.intent().away == {}
    assert it.intent().ports == {"b": B, "c": C}


def test_what_was_read_last_stays_while_nobody_reads():
    it = known()
    assert not it.take(Changes("ovn", 2, ports={"c": C}, afresh=(PORTS,), is_whole=False))
    away = {"northbound": "its reader ended"}
    assert it.take(Changes("ovn", 5, away=away, begins=True))
    told = it.intent()
    assert (told.ports, told.away, told.wall_ns) == (
        {"a": A, "b": B}, {"northbound": "its reader ended"}, 5,
    )  # fmt: skip
    assert it.take(Changes("ovn", 6, ports={"c": C}, afresh=(PORTS,)))
    assert it.intent().ports == {"c": C}
    assert it.intent().away == {}
