# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import pytest

from tests.lab.audit import WINDOW_NS, Missing, Stretch, is_innocent, missing

NOW = 1_800_000_000 * 10**9 // WINDOW_NS * WINDOW_NS


def window(n: int) -> int:
    return n * WINDOW_NS


def stretch(
    *numbers: int,
    dead: Sequence[tuple[int, int]] = (),
    began: int = 0,
    full_until: int | None = None,
) -> Stretch:
    made = Stretch(window(began))
    made.full_until_ns = None if full_until is None else window(full_until)
    made.acknowledged["h0"] = {window(n) for n in numbers}
    made.counted["h0"] = {window(n) for n in range(max(numbers) + 2)}
    made.dead["h0"] = [(window(since), window(until)) for since, until in dead]
    return made


def kept(*numbers: int) -> list[tuple[str, int]]:
    return [("h0", window(n)) for n in numbers]


def test_all_from_the_first_to_the_last_must_be_there() -> None:
    assert missing([stretch(3, 6)], kept(3, 4, 5, 6)) == Missing(4, 0, [])
    assert missing([stretch(3, 6)], kept(3, 4, 6)).lost == kept(5)


def test_what_an_agent_never_closed_need_not_be_there() -> None:
    """It stood still for longer than a window, or closed one that nobody has acknowledged yet."""
    made = stretch(3, 6)
    made.counted["h0"] -= {window(5)}
    assert [start // WINDOW_NS for start in made.wanted("h0")] == [3, 4, 6]


def test_what_an_agent_counted_as_it_died_need_not_be() -> None:
    dead = [(10, 12)]
    wanted = stretch(8, 16, dead=dead).wanted("h0")
    assert [start // WINDOW_NS for start in wanted] == [8, 9, 13, 14, 15, 16]


def test_what_was_said_to_be_acknowledged_must_be_whoever_died() -> None:
    assert window(11) in stretch(8, 11, 16, dead=[(10, 12)]).wanted("h0")


@pytest.mark.parametrize(
    ("there", "freed", "lost"),
    [((5, 6), 2, ()), ((3, 6), 0, (4, 5)), ((4, 6), 1, (5,)), ((), 0, (3, 4, 5, 6))],
)
def test_room_is_made_of_the_oldest(
    there: tuple[int, ...], freed: int, lost: tuple[int, ...]
) -> None:
    found = missing([stretch(3, 6, full_until=7)], kept(*there))
    assert (found.freed, found.lost) == (freed, kept(*lost))


def test_none_is_deleted_while_there_is_room() -> None:
    assert missing([stretch(3, 6)], kept(5, 6)).lost == kept(3, 4)


def test_what_began_after_the_disk_was_full_for_the_last_time_is_lost() -> None:
    found = missing([stretch(3, 7, full_until=5)], kept(7))
    assert found == Missing(5, 2, kept(5, 6))
    stretches = [stretch(3, 5), stretch(4, 8, began=4, full_until=6)]
    assert missing(stretches, kept(8)) == Missing(8, 5, kept(6, 7))


def test_after_a_clock_went_back_both_of_one_start_must_be_there() -> None:
    stretches = [stretch(3, 5), stretch(4, 6, began=4)]
    assert missing(stretches, kept(3, 4, 5, 4, 5, 6)).lost == []
    assert missing(stretches, kept(3, 4, 5, 6)).lost == kept(4, 5)


def test_what_is_said_of_before_the_clock_was_set_is_not_of_this_stretch() -> None:
    made = Stretch(NOW)
    for start in (NOW - 3 * WINDOW_NS, NOW - WINDOW_NS, NOW + window(3)):
        made.note("h0", start, start, now_ns=NOW + window(2))
    assert made.acknowledged == made.counted == {"h0": {NOW - WINDOW_NS}}


@pytest.mark.parametrize(
    ("component", "victims", "innocent"),
    [
        ("vswitch h1", {"h1", "h3"}, False),
        ("vswitch h1", {"h3"}, True),
        ("rnic h1/h1-r0", {"h1"}, False),
        ("rnic h1/h1-r0", {"h11"}, True),
        ("container train-a-2", {"h2"}, False),
        ("endpoint train-a-2/1", {"h1"}, True),
        ("tunnel h0 -> h2", {"h2"}, False),
        ("switch leaf1", {"h1"}, True),
        ("agent h0", set(), True),
    ],
)
def test_who_may_be_accused(component: str, victims: set[str], *, innocent: bool) -> None:
    assert is_innocent(component, {"train-a-2": "h2"}, victims) is innocent


def test_an_agent_that_has_no_window_yet_is_not_asked_for_one() -> None:
    stretch = Stretch(0)
    stretch.note("h0", 0, 0, now_ns=10**18)
    assert stretch.wanted("h0") == []
