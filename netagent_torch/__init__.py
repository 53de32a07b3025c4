# SPDX-License-Identifier: Apache-2.0
"""Records which collective operations a training job does, for netagent to say who holds it up.

One line in the job, anywhere after `import torch`:

    import netagent_torch; netagent_torch.start()

or none: `python -m netagent_torch train.py ...` (of torchrun: `torchrun ... -m netagent_torch
train.py ...`), or, from torch 2.5 on, NETAGENT_TORCH=1 in the environment. It imports the standard
library and the job's own torch. It never raises, and never stops a job: where it cannot record,
it says so once, on stderr.

Of tensors it records their size in bytes, and nothing else. docs/collectors.md says what it sees,
what it costs and who can read it.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import Any

from netagent_torch import form, names
from netagent_torch.recorder import Recorder
from netagent_torch.ring import Ring

__all__ = ["autoload", "describe", "span", "start", "step", "stop"]

MOST_STEP = 1 << 31
"""Iterations are counted modulo this, which is what a record has room for."""

_recorder: "Recorder | None" = None


def start(environment: "Mapping[str, str] | None" = None) -> bool:
    """Begin to record; return whether it does. What was begun already goes on.

    Of the environment: NETAGENT_OPERATORS is the folder of rings, NETAGENT_JOB the job's name,
    NETAGENT_TORCH_EVERY=n has only one operation of n recorded, NETAGENT_TORCH_RECORDS sets how
    many a ring holds.
    """
    global _recorder  # noqa: PLW0603 - a process has one
    if _recorder is not None:
        return True
    given = os.environ if environment is None else environment
    try:
        _recorder = _made(given)
    except Exception as error:  # noqa: BLE001 - whatever it is, the job must go on
        print(f"netagent_torch: records nothing: {error}", file=sys.stderr)  # noqa: T201
        return False
    return True


def _made(given: Mapping[str, str]) -> Recorder:
    folder = Path(given.get("NETAGENT_OPERATORS", form.FOLDER))
    capacity = int(given.get("NETAGENT_TORCH_RECORDS", form.CAPACITY))
    capacity = max(64, min(capacity, form.MAX_CAPACITY))
    every = max(1, int(given.get("NETAGENT_TORCH_EVERY", "1")))
    name = f"{os.getpid()}-{secrets.token_hex(4)}{form.SUFFIX}"
    recorder = Recorder(
        Ring(folder / name, capacity=capacity), job=names.job_of(given), every=every
    )
    recorder.install()
    os.register_at_fork(after_in_child=_leave)
    return recorder


def _leave() -> None:
    """Let go of the ring, as a fork: it may not write to it, nor hold its lock once we are gone."""
    recorder = _recorder
    stop()
    if recorder is not None:
        recorder.ring.close()


def stop() -> None:
    """Record no more; what was recorded stays for whoever reads it."""
    global _recorder  # noqa: PLW0603 - a process has one
    if _recorder is not None:
        _recorder.remove()
        _recorder = None


def step(number: int) -> None:
    """Say which training iteration begins; whoever never says it has none in the log."""
    if _recorder is not None:
        try:
            whole = index(number)
        except TypeError:
            whole = form.NONE
        _recorder.step = whole % MOST_STEP if whole >= 0 else form.NONE  # some count tokens


def describe(group: Any, kind: str) -> None:
    """Say what a group is for: ``dp``, ``pp``, ``tp`` or ``ep``."""
    if _recorder is not None:
        _recorder.describe(group, kind)


@contextmanager
def span(name: str, *, compute: bool = False, microbatch: int = 0) -> Iterator[None]:
    """Record what is no communication: a forward pass (`compute`), a wait for the data loader."""
    begun_ns = time.monotonic_ns()
    try:
        yield
    finally:
        if _recorder is not None:
            kind = form.COMPUTE if compute else form.OTHER
            _recorder.span(name, kind, begun_ns, time.monotonic_ns(), microbatch & 0xFFFF)


def autoload() -> None:
    """Begin where NETAGENT_TORCH=1; torch calls this as it is imported (``torch.backends``)."""
    if os.environ.get("NETAGENT_TORCH") == "1":
        start()
