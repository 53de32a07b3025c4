# SPDX-License-Identifier: Apache-2.0
"""What names of metrics stand in PromQL, and what a scrape may have."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analyzer.server.metrics.families import FAMILIES, Family

FOLDER = Path(__file__).parents[3] / "analyzer" / "alerts"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^{}]*\}")
_BY = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")
_WORDS = {"and", "or", "unless", "bool", "offset", "sum", "max", "min", "topk"}
LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")


def names(expr: str) -> set[str]:
    """Return the names of metrics in an expression."""
    plain = _BY.sub(" ", _LABELS.sub(" ", _STRING.sub('""', expr)))
    plain = re.sub(r"\[[^\]]*\]", " ", plain)
    return set(_NAME.findall(plain)) - _WORDS


def labels(expr: str) -> set[str]:
    """Return the labels that it selects or groups by."""
    plain = _STRING.sub('""', expr)
    found = {name for each in _LABELS.findall(plain) for name in LABEL.findall(each)}
    for each in _BY.findall(plain):
        found |= {name.strip() for name in each.partition("(")[2].rstrip(")").split(",")}
    return found - {""}


def scraped() -> dict[str, Family]:
    """Return all names of series, with their families."""
    found: dict[str, Family] = {}
    for family in FAMILIES:
        ends = ("_bucket", "_count", "_sum") if family.kind == "histogram" else ("",)
        found |= {family.name + end: family for end in ends}
    return found


def dashboard_exprs() -> list[str]:
    """Return the expressions of the committed dashboard."""
    model = json.loads((FOLDER / "netagent.dashboard.json").read_text())
    return [target["expr"] for panel in model["panels"] for target in panel["targets"]]


def as_rules(exprs: Iterable[str]) -> str:
    """Return a file of rules that records each expression, for promtool to parse."""
    rules: list[dict[str, Any]] = [
        {"record": f"parsed:number_{n}", "expr": expr.replace("$__rate_interval", "1m")}
        for n, expr in enumerate(exprs)
    ]
    return json.dumps({"groups": [{"name": "parsed", "rules": rules}]})
