# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer import cli
from analyzer.commands.innocent import MOST_LINES, report, status

FOUND = {
    "task": "train-a", "answer": "innocent", "innocent": True, "since_ns": 0,
    "until_ns": 600 * 10**9, "windows": 120, "hosts": {"h0": 120, "h1": 119}, "sent": 48_213,
    "lost": 0, "lost_at_most": 0.000062, "rtt_us": {"median": 14.9, "p99": 21.2, "longest": 190.0},
    "walks": {"delivered": 12}, "pairs": [{}] * 23, "unprobed": [["a/rail0", "b/rail0"]],
    "against": [], "not_looked_at": ["h1 sent no summary of 1 of the windows"],
}  # fmt: skip


def test_the_answer_comes_first_then_what_was_looked_at_and_what_was_not():
    assert list(report(FOUND)) == [
        "train-a: the network was innocent",
        "1970-01-01 00:00:00.000Z to 1970-01-01 00:10:00.000Z",
        "",
        "  pairs    23 of 24 probed",
        "  probes   0 of 48,213 lost: below 0.0062 %, 95 % sure",
        "  latency  median 14.9 us, p99 21.2 us, longest 190 us",
        "  hosts    1 of 2 sent all 120 windows, the least 119",
        "  tables   walked now: 12 delivered",
        "",
        "not looked at:",
        "  h1 sent no summary of 1 of the windows",
    ]


def test_where_all_hosts_sent_all_windows_there_is_no_least():
    assert "  hosts    1 of 1 sent all 120 windows" in list(report(FOUND | {"hosts": {"h0": 120}}))


def test_how_walks_ended_is_said_in_words():
    lines = list(report(FOUND | {"walks": {"cannot_tell": 2, "incident": 3}}))
    assert "  tables   walked now: 2 cannot tell, 3 of pairs in an active incident" in lines


@pytest.mark.parametrize("count", [1, MOST_LINES, 500])
def test_however_much_there_is_it_fits_a_screen(count):
    many = ["x" * n + " y" * 60 for n in range(count)]
    lines = list(report(FOUND | {"against": many, "sent": 0, "rtt_us": {}, "walks": {}}))
    assert max(map(len, lines)) <= 79
    assert any("--json has all" in line for line in lines) is (count > MOST_LINES)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"innocent": True, "against": []}, 0),
        ({"innocent": False, "against": ["a pair lost 3 of 10"]}, 1),
        ({"innocent": False, "against": []}, 4),
    ],
)
def test_scripts_tell_who_is_suspect_from_who_was_not_looked_at(changes, expected):
    assert status(FOUND | changes) == expected


@pytest.mark.parametrize("asked", [["--minutes", "0"], ["--minutes", "-5"], ["--ago", "-1"]])
def test_a_time_that_cannot_be_looked_at_is_refused_before_anybody_is_asked(asked, capsys):
    assert cli.main(["innocent", "train-a", *asked]) == 2
    assert "ask for some minutes that are over" in capsys.readouterr().err
