# SPDX-License-Identifier: Apache-2.0

import argparse

import pytest

from analyzer.commands import history
from analyzer.commands.history import Told, query, report
from netagent.model.errors import ConfigError

MINUTE_NS = 60 * 10**9
START_NS = 1_795_666_500 * 10**9


def args(*words):
    parser = argparse.ArgumentParser()
    history.add_arguments(parser)
    return parser.parse_args(words)


def pair(minute, sent, lost, *rtt, target="b/rail0"):
    least, mean, most = rtt or (0, 0, 0)
    return {
        "start_ns": START_NS + minute * MINUTE_NS, "windows": 12, "source": "a/rail0",
        "target": target, "sent": sent, "lost": lost, "refused": 0, "rtt_count": 10 * bool(rtt),
        "rtt_min_ns": least, "rtt_mean_ns": mean, "rtt_max_ns": most,
        "rtt_p50_ns": mean or None, "rtt_p90_ns": most or None, "rtt_p99_ns": most or None,
    }  # fmt: skip


def told(*pages, damaged=0, together=()):
    found = Told()
    for rows in pages:
        found.add({"rows": rows, "damaged": damaged})
    found.add_quantiles(together)
    return list(report(found))


def test_a_minute_is_a_line_that_adds_up_its_pairs():
    first = [pair(0, 100, 0, 9_000, 10_000, 11_000), pair(0, 100, 5, target="c/rail0")]
    lines = told(first, [pair(1, 50, 50)])
    assert lines[0].split("  ")[0] == "FROM (UTC)"
    assert lines[1].split() == [
        "2026-11-26", "04:15", "200", "5", "2.500", "-", "-", "-", "11.0", "12",
    ]  # fmt: skip
    assert lines[2].split()[2:] == ["50", "50", "100.000", "-", "-", "-", "-", "12"]
    assert "2 of 2 pairs lost probes; most of them:" in lines
    assert lines[-2:] == ["  50 of 150  a/rail0 -> b/rail0", "  5 of 100  a/rail0 -> c/rail0"]


def test_a_pair_has_the_quantiles_of_its_rows_and_several_those_of_all_together():
    lines = told([pair(0, 100, 0, 9_000, 10_000, 11_000)])
    assert lines[1].split()[5:] == ["10.0", "11.0", "11.0", "11.0", "12"]
    assert any(line.startswith("p99") and line.endswith("most 11.0 us") for line in lines)
    both = [pair(0, 9, 0, 1, 10_000, 20_000), pair(0, 9, 0, 1, 5_000, 8_000, target="c/rail0")]
    at = {"start_ns": START_NS, "rtt_p50_ns": 7_000, "rtt_p90_ns": 15_000, "rtt_p99_ns": None}
    assert told(both, together=[at, at | {"start_ns": 1}])[1].split()[5:] == [
        "7.0", "15.0", "-", "20.0", "12",
    ]  # fmt: skip


def mean(*rows):
    (line,) = (line for line in told(rows) if line.startswith("mean"))
    return line.rpartition("most ")[2]


def test_the_mean_of_pairs_is_the_geometric_one_as_that_of_each_is():
    fast, slow = pair(0, 10, 0, 1, 10_000, 2), pair(0, 10, 0, 1, 1_000_000, 2, target="c/rail0")
    assert mean(fast, slow) == "100.0 us"
    unasked = pair(0, 10, 10, target="d/rail0")
    assert mean(fast, fast, slow, unasked) == "46.4 us"  # the cube root of 10 * 10^5


def test_of_a_component_there_is_no_extreme_and_of_an_analyzer_of_before_no_quantile():
    row = pair(0, 100, 1, 0, 20_000, 0)
    row = {n: row[n] for n in row if n not in {"source", "target", "rtt_min_ns", "rtt_max_ns"}}
    row |= {"component": "switch x", "rtt_p50_ns": 19_000, "rtt_p99_ns": 30_000}
    assert told([row])[1].split()[-5:] == ["19.0", "-", "30.0", "-", "12"]
    old = {name: value for name, value in row.items() if "_p" not in name}
    lines = told([old])
    assert lines[1].split()[-5:] == ["-"] * 4 + ["12"]
    assert not any(line.startswith("p99") for line in lines)


@pytest.mark.parametrize("count", [1, 3, 55, 56, 1000])
def test_bars_are_as_wide_as_the_screen_at_most_and_show_the_largest(count):
    rows = [pair(n, 1000, 100 * (n == count - 1), 1, 15_000, 2) for n in range(count)]
    lines = told(rows)
    assert all(len(line) < 80 for line in lines)
    (lost,) = (line for line in lines if line.startswith("lost"))
    bars = lost.split("|")[1]
    assert bars == " " * (len(bars) - 1) + "█"
    assert lost.endswith("most 10.000%")


def test_nothing_and_damage_are_told():
    assert told([], damaged=2) == [
        "nothing is known of it in that time, or of that name: `netagent-analyzer",
        "incidents` names components, `netagent-analyzer endpoints` names endpoints",
        "2 files are damaged and were left out; the log names them",
    ]


@pytest.mark.parametrize(("since", "tier"), [("6h", "minute"), ("361m", "hour"), ("30d", "hour")])
def test_hours_are_shown_where_minutes_would_be_many(since, tier):
    assert query(args("--component", "switch x", "--since", since), now_ns=START_NS)["tier"] == tier


@pytest.mark.parametrize(
    "words",
    [(), ("--source", "a", "--since", "1h", "--until", "2h"), ("--source", "a", "--until", "x")],
)
def test_what_cannot_be_asked_is_refused(words):
    with pytest.raises(ConfigError):
        query(args(*words), now_ns=START_NS)


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    found = Told()
    found.add({"rows": [pair(n, 100, n, 1, 15_000, 2) for n in range(5)], "damaged": 0})
    history._plot(str(tmp_path / "a.png"), "pair", found)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="cannot be written"):
        history._plot(str(tmp_path), "pair", found)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["link leaf-1 -- spine-2"], {"component": "link leaf-1 -- spine-2"}),
        (["link spine-2 -- leaf-1"], {"component": "link leaf-1 -- spine-2"}),
        (["--component", "link spine-2 -- leaf-1"], {"component": "link leaf-1 -- spine-2"}),
        (["a/rail0", "b/rail0"], {"source": "a/rail0", "target": "b/rail0"}),
        (["a/rail0"], {"endpoint": "a/rail0"}),
        (["--endpoint", "a/rail0"], {"endpoint": "a/rail0"}),
    ],
)
def test_what_is_asked_for_may_be_named_without_options(words, named):
    asked = query(args(*words, "--since", "2h"), now_ns=START_NS)
    assert asked["since_ns"] == START_NS - 2 * 60 * MINUTE_NS
    names = ("component", "endpoint", "source", "target")
    assert {name: asked[name] for name in names if asked[name]} == named


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["link", "leaf-1", "--", "spine-2"], "wants quotes"),
        (["cable x"], "'cable' is no kind of component: switch, link, .*incidents` names it"),
        (["--component", "leaf-1 -- spine-2"], "'leaf-1' is no kind of component"),
        (["link leaf-1"], "link leaf-1 is no link"),
        (["a/rail0", "--component", "switch x"], "one way"),
        ([], "name a component"),
    ],
)
def test_what_names_nothing_says_how_to(words, said):
    with pytest.raises(ConfigError, match=said):
        query(args(*words), now_ns=START_NS)
