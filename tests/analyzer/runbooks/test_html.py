# SPDX-License-Identifier: Apache-2.0
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.runbooks.html import html_of, title_of
from analyzer.runbooks.pages import PAGES

ALLOWED = {
    *(f"h{n}" for n in range(1, 7)),
    "p",
    "ul",
    "ol",
    "li",
    "pre",
    "code",
    "em",
    "strong",
    "a",
}


class Met(HTMLParser):
    """Notes tags and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def same(url):
    return url


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# One `x`", "<h1>One <code>x</code></h1>"),
        ("a\nb\n\nc", "<p>a b</p>\n<p>c</p>"),
        ("- a\n  more\n- b", "<ul><li>a more</li><li>b</li></ul>"),
        ("text:\n1. a\n2. b\n", "<p>text:</p>\n<ol><li>a</li><li>b</li></ol>"),
        ("```toml\na <b> *c*\n\n# d\n```\ne",
         '<pre tabindex="0">a &lt;b&gt; *c*\n\n# d</pre>\n<p>e</p>'),
        ("```\nnever ends", '<pre tabindex="0">never ends</pre>'),
        ("| a | b |\n|---|---|", '<pre tabindex="0">| a | b |\n|---|---|</pre>'),
        ("*a* and **b**, 2 * 3 * 4", "<p><em>a</em> and <strong>b</strong>, 2 * 3 * 4</p>"),
        ("[`x` y](z.md#w)", '<p><a href="z.md#w"><code>x</code> y</a></p>'),
        ("`[a](b)`", "<p><code>[a](b)</code></p>"),
        ('<script>a</script> & "', "<p>&lt;script&gt;a&lt;/script&gt; &amp; &quot;</p>"),
    ],
)  # fmt: skip
def test_what_runbooks_are_written_with_becomes_html(text, html):
    assert html_of(text, same) == html


def test_a_link_that_leads_nowhere_is_text():
    assert html_of("see [a *b*](c.md)", lambda _: None) == "<p>see a <em>b</em></p>"


def test_a_page_without_a_heading_has_another_title():
    assert (title_of("x\n# One\n", "t"), title_of("x", "t")) == ("One", "t")


_marks = st.sampled_from([*"# \n`*[)|\"'>b", "```", "**", "](", "- ", "1. ", '<a x="', "&lt;"])


@given(st.lists(_marks, max_size=40).map("".join))
def test_nothing_of_a_text_becomes_markup_of_its_own(text):
    met = Met(html_of(text, lambda url: url.replace('"', "x")))
    assert met.tags <= ALLOWED
    assert met.open == []
    assert {name for name, _ in met.attributes} <= {"href", "tabindex"}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_our_runbooks_leave_no_mark_of_markdown_in_their_text(name):
    html = html_of(Path(f"docs/runbooks/{name}.md").read_text(), same)
    prose = Met(re.sub("<(pre|code).*?</(pre|code)>", "", html, flags=re.DOTALL)).text
    assert not re.search(r"`|\]\(|^#|^- |\*", prose, flags=re.MULTILINE)
