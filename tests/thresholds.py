# SPDX-License-Identifier: Apache-2.0
"""The thresholds of detection as a table: `python -m tests.thresholds` prints it for the docs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import analyzer.detect

ROOT = Path(analyzer.detect.__file__).parent


def thresholds() -> Iterator[tuple[str, str, str, str]]:
    """Yield module, name, value and docstring of every public number of `analyzer/detect`."""
    for path in sorted(ROOT.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.Assign) or not isinstance(after, ast.Expr):
                continue
            target, text = node.targets[0], after.value
            if isinstance(target, ast.Name) and target.id.isupper():
                assert isinstance(text, ast.Constant)
                yield name, target.id, ast.unparse(node.value), " ".join(str(text.value).split())


def table() -> list[str]:
    """Return the table's lines in Markdown."""
    rows = ["| threshold | value | what it is |", "|---|---|---|"]
    for module, name, value, text in thresholds():
        rows.append(f"| `{module}.{name}` | `{value}` | {text} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
