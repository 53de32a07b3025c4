# SPDX-License-Identifier: Apache-2.0
"""`netagent-analyzer serve` as a process, for tests."""

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from tests.analyzer.certificates import Authority

ROOT = Path(__file__).parents[3]
_RUN = (
    "import sys; from importlib import import_module; from analyzer import cli\n"
    "for name, number in {settings!r}.items():\n"
    "    module, _, setting = name.rpartition('.')\n"
    "    getattr(import_module(module), setting)  # a name that is none is no setting\n"
    "    setattr(import_module(module), setting, number)\n"
    "raise SystemExit(cli.main())"
)


class Process:
    """`netagent-analyzer serve` with its log read up to the line that says where it listens."""

    def __init__(
        self,
        folder: Path,
        tls: Authority | None = None,
        listen: str = "127.0.0.1:0",
        *,
        more: str = "",
        environ: Mapping[str, str] | None = None,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        """Take `folder` for the configuration and the database; `more` is of the former.

        `settings` are numbers of modules, by their full names, that the process runs with: limits
        in seconds that a test would have to wait for, and those that it must not run into.
        """
        self._settings = dict(settings or {})
        self.config = folder / "analyzer.toml"
        self.database = folder / "state" / "netagent.duckdb"
        self._environ = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
        text = f'listen = "{listen}"\ndatabase = "state/netagent.duckdb"\n{more}'
        if tls:
            cert, key = tls.sign("analyzer")
            text += f'[tls]\nca = "{tls.ca}"\ncert = "{cert}"\nkey = "{key}"\n'
        self.config.write_text(text)
        self.log: list[dict[str, Any]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, *self._program(), "serve", "--config", str(self.config)],
            stderr=subprocess.PIPE,
            text=True,
            env=self._environ,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["event"] == "listening":
                self.url = self.log[-1]["url"]
                return self
        raise AssertionError(self.log)

    def _program(self) -> list[str]:
        if not self._settings:
            return ["-m", "analyzer.cli"]
        return ["-c", _RUN.format(settings=self._settings)]

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def kill(self) -> None:
        """Kill it, without a word."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> tuple[int, float, list[dict[str, Any]]]:
        """Stop as an operator does; return exit status, seconds and the rest of the log."""
        began = time.monotonic()
        self.process.terminate()
        assert self.process.stderr is not None
        rest = [json.loads(line) for line in self.process.stderr]
        return self.process.wait(), time.monotonic() - began, rest

    def client(self, context: ssl.SSLContext | None = None) -> httpx.Client:
        """Return a client, who shows the certificate of `context`."""
        return httpx.Client(base_url=self.url, verify=context or False, trust_env=False, timeout=30)
