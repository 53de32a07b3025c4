# SPDX-License-Identifier: Apache-2.0
"""A job whose operators are simulated: its sizes, how long things take, and who is where.

Ranks are numbered as Megatron does by default: tensor parallel fastest, then data, then pipeline.
"""

from dataclasses import dataclass

from analyzer.operators.log import UNKNOWN, Place


@dataclass(frozen=True, slots=True)
class Job:
    """Sizes of a job, and its durations in microseconds while all is well."""

    data: int = 8
    stages: int = 4
    tensor: int = 1
    experts: int = 1
    """Replicas among which a layer's experts are dealt; 1: no mixture of experts."""
    microbatches: int = 8
    chunks: int = 1
    """Model chunks of a stage; with more than one `microbatches` is a multiple of `stages`."""
    steps: int = 20
    forward_us: float = 4000.0
    """Forward pass of one microbatch over one stage."""
    backward: float = 2.0
    """How many times as long a backward pass takes."""
    first_stage: float = 1.02
    last_stage: float = 1.05
    """The embedding and the loss are a little work of their own."""
    even_loss: bool = False
    """Whether that work is the same for sequences of any length, as a layer without attention's."""
    jitter: float = 0.02
    """Standard deviation of one operator, as a share of it."""
    drift: float = 0.005
    """Standard deviation of all operators of a step together."""
    between: float = 0.0
    """Standard deviation between ranks, which lasts: processors of one make differ."""
    hiccups: float = 0.0
    """Share of passes that take three times as long, anywhere."""
    transfer_us: float = 150.0
    """Activations of a microbatch, from stage to stage."""
    tensor_us: float = 40.0
    exchange_us: float = 120.0
    """One all-to-all among experts."""
    gradients_us: float = 4000.0
    """Reduce-scatter of a step's gradients; gathering the parameters takes half of it."""
    clip_us: float = 60.0
    optimizer_us: float = 800.0
    loader_us: float = 200.0
    per_host: int = 8

    def __post_init__(self) -> None:
        """Raise `ValueError` for sizes that do not fit each other."""
        if self.data % self.experts:
            raise ValueError(f"{self.experts} experts do not divide {self.data} replicas")
        if self.chunks > 1 and self.microbatches % self.stages:
            raise ValueError("an interleaved schedule takes a multiple of its stages")

    @property
    def world(self) -> int:
        """How many ranks it has."""
        return self.data * self.stages * self.tensor

    def rank(self, stage: int, data: int, tensor: int = 0) -> int:
        """Return who is there."""
        return (stage * self.data + data) * self.tensor + tensor

    def where(self, rank: int) -> tuple[int, int, int]:
        """Return stage, replica and tensor parallel place of a rank."""
        cell, tensor = divmod(rank, self.tensor)
        return cell // self.data, cell % self.data, tensor

    def place(self, rank: int) -> Place:
        """Return where a rank is, as a log has it."""
        stage, data, tensor = self.where(rank)
        ep = data % self.experts if self.experts > 1 else UNKNOWN
        return Place(self.host(rank), dp=data, pp=stage, tp=tensor, ep=ep)

    def host(self, rank: int) -> str:
        """Return the name of a rank's host."""
        return f"host-{rank // self.per_host}"
