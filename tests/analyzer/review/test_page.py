# SPDX-License-Identifier: Apache-2.0
import re
from html.parser import HTMLParser

from analyzer.review.page import html_of
from analyzer.review.report import figures
from tests.analyzer.review.test_report import SECOND, incident

EVIL = "<script>alert(1)</script>'\"&"


class Tags(HTMLParser):
    """Collects names of tags and attributes."""

    def __init__(self):
        super().__init__()
        self.seen, self.text = set(), []

    def handle_starttag(self, tag, attrs):
        self.seen |= {(tag, name) for name, _ in attrs} | {(tag, "")}

    def handle_data(self, data):
        self.text.append(data)


def page_of(*incidents, worst=None, unprobed=()):
    return html_of(
        figures(incidents, since_ns=0, until_ns=10**6 * SECOND, worst=worst, unprobed=unprobed)
    )


def read(page):
    tags = Tags()
    tags.feed(page)
    return tags.seen, "\n".join(tags.text)


def test_all_that_others_said_is_text():
    evil = incident(f"i{EVIL}", component=f"host {EVIL}", layer=EVIL, tasks=[EVIL])
    word = {"right": False, "component": f"link {EVIL}", "note": EVIL, "by": EVIL}
    wrong = incident(EVIL, feedback=[word])
    lossy = {"worst": [{"component": f"link {EVIL}", "sent": 9, "lost": 3}], "windows": 1}
    unprobed = [{"what": EVIL, "why": EVIL}]
    page = page_of(evil, wrong, worst=lossy | {"expected": 2}, unprobed=unprobed)
    seen, text = read(page)
    assert "<script" not in page
    assert text.count(EVIL) >= 8
    names = {tag for tag, _ in seen}
    assert not names & {"script", "iframe", "img", "link", "a", "form"}
    assert not {name for _, name in seen} & {"src", "href", "onload", "onclick"}


def test_it_needs_nothing_from_elsewhere():
    page = page_of(incident())
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|@import|url\(", page)


def test_it_says_what_happened():
    link = {"component": "link a -- b", "sent": 1000, "lost": 5, "rtt_p99_ns": 18_025}
    lossy = {"worst": [link], "windows": 90}
    _, text = read(page_of(incident(), worst=lossy | {"expected": 120}))
    for words in (
        "1970-01-01 00:00",
        "train-a",
        "0.5000%",
        "25.0% of the time",
        "underlay",
        "18.0",
    ):
        assert words in text


def test_without_anything_it_says_none():
    _, text = read(page_of())
    assert "none" in text
    assert "administrator's certificate" in text
