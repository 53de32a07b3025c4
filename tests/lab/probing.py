# SPDX-License-Identifier: Apache-2.0
"""Probes of the libraries that jobs communicate by, beside jobs that know nothing of them."""

import json
import subprocess
import sys
from pathlib import Path


class Probes:
    """The worker that an agent keeps for uprobes; one, since hosts of a lab share a kernel."""

    def __init__(self, folder: Path, log: Path) -> None:
        """Start it; it writes a ring for each process into `folder`, which is made."""
        folder.mkdir()
        self._folder = folder
        with log.open("ab") as file:
            self._worker = subprocess.Popen(
                (sys.executable, "-m", "bpf.operators"), stdin=subprocess.PIPE, stdout=file,
                stderr=file,
            )  # fmt: skip
        if self._worker.stdin is not None:
            request = json.dumps({"folder": str(folder)})
            self._worker.stdin.write(f"{request}\n".encode())
            self._worker.stdin.flush()

    def end(self) -> None:
        """End it, and wait until it has."""
        if self._worker.stdin is not None:
            self._worker.stdin.close()
        self._worker.wait()
