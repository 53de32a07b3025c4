# SPDX-License-Identifier: Apache-2.0
"""In which order a pipeline stage works: one forward, one backward, also interleaved.

After Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (SC '21).
"""

from collections.abc import Iterator
from typing import NamedTuple


class Pass(NamedTuple):
    """One microbatch through one model chunk of a stage."""

    forward: bool
    microbatch: int
    chunk: int


def _nth(n: int, stages: int, chunks: int, *, forward: bool) -> Pass:
    """Return the nth forward or backward pass of any stage."""
    if chunks == 1:
        return Pass(forward, n, 0)
    round_, within = divmod(n, stages * chunks)
    chunk, microbatch = divmod(within, stages)
    return Pass(forward, round_ * stages + microbatch, chunk if forward else chunks - 1 - chunk)


def order(stage: int, stages: int, microbatches: int, chunks: int = 1) -> Iterator[Pass]:
    """Yield the passes of one stage in the order in which it makes them."""
    total = microbatches * chunks
    ahead = stages - stage - 1
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * stages
    ahead = min(ahead, total)
    for n in range(total + ahead):
        if n < total:
            yield _nth(n, stages, chunks, forward=True)
        if n >= ahead:
            yield _nth(n - ahead, stages, chunks, forward=False)


def before(each: Pass, stage: int, stages: int, chunks: int) -> tuple[int, Pass] | None:
    """Return the stage, and its pass, whose result a pass needs from elsewhere, if any.

    The first backward pass of the last chunk needs the loss, which the stage itself has.
    """
    step = -1 if each.forward else 1
    at, chunk = stage + step, each.chunk
    if at < 0 or at >= stages:
        at, chunk = at % stages, chunk + step
    return None if not 0 <= chunk < chunks else (at, each._replace(chunk=chunk))
