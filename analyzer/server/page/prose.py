# SPDX-License-Identifier: Apache-2.0
"""Pages of text beside the views: runbooks, and what to do where a link does not open."""

from html import escape

from analyzer.runbooks.html import html_of, title_of
from analyzer.runbooks.pages import PAGES

FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} &ndash; netagent</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/page.css">
</head>
<body>
<a class="skip" href="#view">Skip to the text</a>
<header><a class="brand" href="/">\
<img src="/static/favicon.svg" alt="" width="22" height="22">netagent</a></header>
<main id="view" class="prose" tabindex="-1">
{body}
</main>
</body>
</html>
"""
"""As `index.html`, without scripts."""


def runbook(text: str, name: str) -> bytes:
    """Return a runbook as a page."""
    return _page(title_of(text, PAGES.get(name, name)), html_of(text, _link))


def refusal(error: str, remedy: str) -> bytes:
    """Return why something is not shown, and what to do."""
    parts = [f"<h1>{escape(error[:1].upper() + error[1:])}</h1>"]
    if remedy:
        parts.append(f'<p class="lead">What to do: {escape(remedy)}</p>')
    parts.append(
        "<p>A link that <code>netagent-analyzer open</code> prints is good for one use within five "
        "minutes. Where you opened one before in this browser, "
        '<a href="/">the page</a> may still be open to you.</p>'
    )
    return _page(error, "\n".join(parts))


def _page(title: str, body: str) -> bytes:
    return FRAME.format(title=escape(title), body=body).encode()


def _link(url: str) -> str | None:
    """Return where a runbook's link leads: to another one, or where it says in full."""
    name, _, _ = url.partition("#")
    if name.removesuffix(".md") in PAGES and name.endswith(".md"):
        return url
    return url if url.startswith(("https://", "http://")) else None
