# SPDX-License-Identifier: Apache-2.0
"""The command, as a process, against an analyzer; and what it prints."""

import json
import time
from dataclasses import replace

from analyzer.commands.report import LEAST_JUDGED, report
from analyzer.review.page import html_of
from analyzer.review.report import figures
from netagent.model.verdict import IncidentState
from tests.analyzer.commands.running import analyzer_with, ran
from tests.analyzer.review import test_report as made
from tests.analyzer.server.test_routes import incident
from tests.analyzer.test_cli import fits


def test_a_report_is_text_json_and_a_page(tmp_path):
    now_ns = time.time_ns()
    over = replace(
        incident("i1", IncidentState.RECOVERED), tasks=("train-a",),
        detected_ns=now_ns - 90 * 10**9, localized_ns=now_ns - 88 * 10**9,
        updated_ns=now_ns, recovered_ns=now_ns - 30 * 10**9,
    )  # fmt: skip
    page = tmp_path / "report.html"
    with analyzer_with(tmp_path, over) as url:
        assert ran("feedback", "i1", "right", "--url", url).returncode == 0
        text = ran("report", "--since", "1h", "--url", url)
        assert text.returncode == 0, text.stderr
        fits(text.stdout.splitlines())
        assert "1 right, 0 wrong, 0 not judged\n" in text.stdout  # no share of one
        assert "recovered after  1      60.0" in text.stdout
        assert "no window was judged so far" in text.stdout
        told = json.loads(ran("report", "--since", "1h", "--json", "--url", url).stdout)
        assert told["tasks"] == [{"task": "train-a", "incidents": 1, "seconds": 60.0}]
        assert told["worst"] == []
        written = ran("report", "--html", str(page), "--url", url)
        assert written.stdout == f"written to {page}\n"
        assert "train-a" in page.read_text()
        odd = ran("report", "--html", str(tmp_path / "no" / "x"), "--url", url, "--json")
        assert odd.returncode == 2
        assert "cannot be written" in json.loads(odd.stdout)["error"]
    assert ran("report", "--since", "1h", "--until", "2h").returncode == 2


def test_of_windows_and_words_the_counts_are_told_with_the_share():
    right = [made.incident(f"i{n}", feedback=[{"right": n > 0}]) for n in range(LEAST_JUDGED)]
    for each in right:
        each["feedback"][0] |= {"component": None, "note": "", "by": "a"}
    worst = {"worst": [], "windows": 90, "expected": 120, "first_ns": 0}
    told = figures(right, since_ns=0, until_ns=10**15, worst=worst)
    text = "\n".join(report(told))
    assert f"9 right, 1 wrong, 0 not judged (90% of {LEAST_JUDGED} right)" in text
    assert "25.0% of the time since 1970-01-01 00:00: 30 of 120 windows were not judged" in text
    assert "30 of 120 windows" in html_of(told)


def test_long_names_and_no_history_fit_on_a_screen():
    long = "x" * 100
    word = {"right": False, "component": f"host {long}", "note": long, "by": "a"}
    many = [
        made.incident(f"i{n}", component=f"host {long}{n}", layer=long, tasks=[f"{long}{n}"])
        for n in range(20)
    ]
    wrong = made.incident("i99", feedback=[word])
    unprobed = [{"what": "port", "why": long}]
    told = figures([*many, wrong], since_ns=0, until_ns=10**15, unprobed=unprobed)
    text = fits(report(told))
    assert "an admin's certificate is needed" in text
    assert "called wrong:" in text
    assert fits(report(figures([], since_ns=0, until_ns=10**15)))


def test_where_all_is_watched_no_count_of_zero_stands_there():
    watched = figures(
        [], since_ns=0, until_ns=10**15, worst={"worst": [], "windows": 9, "expected": 9}
    )
    lines = list(report(watched))
    assert not any("0 incidents of which" in line for line in lines)
    at = lines.index("not watched:")
    assert lines[at + 1] == "  0.0% of the time: 0 of 9 windows were not judged"
    silent = {**watched["unwatched"], "windows_share": None, "windows_expected": None}
    assert list(report({**watched, "unwatched": silent}))[at + 1] == "  nothing that is known of"
    lost = {**watched["unwatched"], "unobserved_incidents": 2}
    assert "  2 incidents of which nothing is measured any more" in list(
        report({**watched, "unwatched": lost})
    )
