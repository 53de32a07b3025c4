# SPDX-License-Identifier: Apache-2.0
"""Runbooks as HTML: the small part of Markdown that they use.

Headings, paragraphs, lists of one level, fenced code, `code`, *emphasis*, **more of it** and
links. All else is text, a table too, which stands as it was written. Nothing of a page becomes
markup but by these: every character of it is escaped.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape

Link = Callable[[str], str | None]
"""Returns where a link of the text leads; None: nowhere, so that it is text."""

FENCE = "```"
_HEADING = re.compile(r"(#{1,6})\s+(.+)")
_ITEM = re.compile(r"(?:[-*]|(\d+)\.)\s+(.*)")
_INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\[(?P<text>[^\[\]]+)\]\((?P<url>[^()\s]+)\)"
    r"|\*\*(?P<strong>[^*\s][^*]*)\*\*|\*(?P<em>[^*\s][^*]*)\*"
)


def html_of(text: str, link: Link) -> str:
    """Return HTML of a page's text."""
    return "\n".join(_blocks(text.splitlines(), link))


def title_of(text: str, otherwise: str) -> str:
    """Return the first heading of a page."""
    found = (_HEADING.fullmatch(line) for line in text.splitlines())
    return next((each[2] for each in found if each), otherwise)


def _blocks(lines: Sequence[str], link: Link) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line, begin = lines[at], at
        if line.startswith(FENCE):
            at = _until(lines, at + 1, lambda each: each.startswith(FENCE))
            # Code that is wider than the screen is scrolled, also by keys.
            yield f'<pre tabindex="0">{escape(_joined(lines[begin + 1 : at]))}</pre>'
            at += 1
        elif line.startswith("|"):
            at = _until(lines, at, lambda each: not each.startswith("|"))
            yield f'<pre tabindex="0">{escape(_joined(lines[begin:at]))}</pre>'
        elif heading := _HEADING.fullmatch(line):
            level = len(heading[1])
            yield f"<h{level}>{_inline(heading[2], link)}</h{level}>"
            at += 1
        elif _ITEM.fullmatch(line):
            at = _until(lines, at, lambda each: not each.strip() or _is_block(each))
            yield _list(lines[begin:at], link)
        elif line.strip():
            at = _until(lines, at + 1, lambda each: not each.strip() or _is_block(each, item=True))
            yield f"<p>{_inline(' '.join(map(str.strip, lines[begin:at])), link)}</p>"
        else:
            at += 1


def _is_block(line: str, *, item: bool = False) -> bool:
    """Return whether something else begins with a line; an `item` of a list, too."""
    return bool(
        line.startswith((FENCE, "|"))
        or _HEADING.fullmatch(line)
        or (item and _ITEM.fullmatch(line))
    )


def _until(lines: Sequence[str], first: int, is_over: Callable[[str], bool]) -> int:
    return next((n for n in range(first, len(lines)) if is_over(lines[n])), len(lines))


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _list(lines: Sequence[str], link: Link) -> str:
    """Return a list; lines that begin no item go on with the one before."""
    items = list[str]()
    numbers = list[str | None]()
    for line in lines:
        if found := _ITEM.fullmatch(line):
            numbers.append(found[1])
            items.append(found[2].strip())
        else:
            items[-1] += f" {line.strip()}"
    name = "ol" if numbers[0] else "ul"
    return f"<{name}>{''.join(f'<li>{_inline(item, link)}</li>' for item in items)}</{name}>"


def _inline(text: str, link: Link) -> str:
    made, end = list[str](), 0
    for found in _INLINE.finditer(text):
        made += [escape(text[end : found.start()]), _marked(found, link)]
        end = found.end()
    return "".join([*made, escape(text[end:])])


def _marked(found: re.Match[str], link: Link) -> str:
    if code := found["code"]:
        return f"<code>{escape(code)}</code>"
    if found["url"]:
        href, text = link(found["url"]), _inline(found["text"], lambda _: None)
        return text if href is None else f'<a href="{escape(href)}">{text}</a>'
    name = "strong" if found["strong"] else "em"
    return f"<{name}>{_inline(found['strong'] or found['em'], link)}</{name}>"
