# SPDX-License-Identifier: Apache-2.0
"""Write manual pages and completions of both commands, as their --help is: pages.py ROOT.

Those of a command go below ROOT/COMMAND.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

import netagent
from analyzer import cli as analyzer
from netagent import cli as agent


def page(parser: ArgumentParser) -> str:
    """Return the manual page of a command with all its verbs."""
    told = (parser.description or "").rstrip(".")
    parser.man_short_description = told[:1].lower() + told[1:]  # type: ignore[attr-defined]
    parser._manpage = []  # type: ignore[attr-defined] # what argparse_manpage looks for
    made = Manpage(parser, format="single-commands-section")
    made.date, made.source = "", f"netagent {netagent.__version__}"
    made.manual = "netagent"
    return str(made)


def main(root: str) -> int:
    """Write them."""
    for parser in (agent.parser(every=True), analyzer.parser(every=True)):
        share = Path(root) / parser.prog / "usr" / "share"
        for path, text in (
            (f"man/man1/{parser.prog}.1", page(parser)),
            (f"bash-completion/completions/{parser.prog}", shtab.complete(parser, shell="bash")),
            (f"zsh/vendor-completions/_{parser.prog}", shtab.complete(parser, shell="zsh")),
        ):
            (share / path).parent.mkdir(parents=True, exist_ok=True)
            (share / path).write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
