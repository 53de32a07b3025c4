# SPDX-License-Identifier: Apache-2.0
"""One rank of a real training job: data, tensor and pipeline parallel, PyTorch over gloo.

Run by the lab, once per endpoint, inside the container's namespace (`tests.lab.training`). Ranks
are laid out as in Figure 9 of SkeletonHunter: tensor parallel fastest, then stages, then replicas.
Each stage is a Megatron block (column parallel, GeLU, row parallel), its schedule 1F1B; gradients
are summed over replicas at the end of each step. A GPU's time is slept: what is real here is who
sends what to whom, and when.

What the groups are is written down by the job itself, from its own process groups. What it does is
recorded where NETAGENT_TORCH=1 (`netagent_torch`). It does what `--folder`/wrong.json says, so that
a lab breaks a job as it breaks a network: a rank that computes slowly, a slow data loader, a
collective that is skipped, stages of unequal size, collections of garbage on all ranks. What is
usual (`tests.lab.usual`) it does where options say how often.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import netagent_torch
from tests.lab.usual import Usual
from tests.lab.wrong import Wrong

TIMEOUT_S = 60.0
"""A rank that hears nothing for so long gives up, as NCCL's watchdog would."""
RATE = 1e-2


@dataclass(frozen=True, slots=True)
class Groups:
    """The process groups of one rank."""

    dp: Any
    tp: Any
    pp: Any
    stages: tuple[int, ...]
    """Ranks of the own pipeline, first stage first."""
    stage: int

    @classmethod
    def make(
        cls, dp: int, pp: int, tp: int, timeout: timedelta
    ) -> "tuple[Groups, dict[str, list[list[int]]]]":
        """Return this rank's groups, and those of all as ranks."""
        ranks = torch.arange(dp * pp * tp).reshape(dp, pp, tp)
        wanted = {"dp": ranks.permute(1, 2, 0), "pp": ranks.permute(0, 2, 1), "tp": ranks}
        mine: dict[str, Any] = {}
        truth: dict[str, list[list[int]]] = {}
        for kind, each in wanted.items():
            truth[kind] = each.reshape(-1, each.shape[-1]).tolist()
            for members in truth[kind]:
                group = dist.new_group(members, timeout=timeout)  # every rank must, in one order
                if dist.get_rank() in members:
                    mine[kind], mine[f"{kind}_ranks"] = group, members
                    netagent_torch.describe(group, kind)
        stages = tuple(mine["pp_ranks"])
        here = stages.index(dist.get_rank())
        return cls(mine["dp"], mine["tp"], mine["pp"], stages, here), truth


class _Copy(torch.autograd.Function):  # type: ignore[misc]
    """The same forwards, a sum over the group backwards (Megatron's f)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        summed = grad.clone()
        dist.all_reduce(summed, group=ctx.group)
        return summed, None


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """A sum over the group forwards, the same backwards (Megatron's g)."""

    @staticmethod
    def forward(_ctx: Any, values: Tensor, group: Any) -> Tensor:
        summed = values.clone()
        dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class Block(nn.Module):  # type: ignore[misc]
    """One stage's share of a tensor parallel MLP."""

    def __init__(self, hidden: int, tp: int, group: Any) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden // tp)
        self.down = nn.Linear(4 * hidden // tp, hidden)
        self.group = group

    def forward(self, values: Tensor) -> Tensor:
        inner = nn.functional.gelu(self.up(_Copy.apply(values, self.group)))
        return values + _Sum.apply(self.down(inner), self.group)


class Pipeline:
    """The 1F1B schedule of one rank."""

    def __init__(self, options: argparse.Namespace, groups: Groups) -> None:
        self._options, self._groups = options, groups
        self._block = Block(options.hidden, options.tp, groups.tp)
        self._first = groups.stage == 0
        self._last = groups.stage == len(groups.stages) - 1
        self._shape = (options.tokens, options.hidden)
        self._sending: list[Any] = []
        self._wrong = Wrong()

    def step(self, wrong: Wrong) -> float:
        """Train one step; return its loss, 0 where this is not the last stage."""
        self._wrong = wrong
        with netagent_torch.span("data-loader"):
            time.sleep(self._options.load_s + wrong.loads_s)
        count = self._options.microbatches
        ahead = min(len(self._groups.stages) - self._groups.stage - 1, count)
        inside: list[tuple[Tensor, Tensor]] = []
        losses: list[float] = []
        for number in range(count + ahead):
            if number < count:
                inside.append(self._forward(number, losses))
            if number >= ahead:
                self._backward(number - ahead, *inside.pop(0))
        for sent in self._sending:
            sent.wait()
        self._sending.clear()
        if wrong.collects_s:
            with netagent_torch.span("garbage-collection"):
                time.sleep(wrong.collects_s)
        for parameter in self._block.parameters():
            dist.all_reduce(parameter.grad, group=self._groups.dp)
            parameter.data -= RATE * parameter.grad / self._options.dp
            parameter.grad = None
        if self._options.norm and not wrong.skips:
            dist.all_reduce(torch.ones(1))
        return sum(losses)

    def evaluate(self) -> None:
        """Go forward only, over as many microbatches; the loss is everybody's."""
        with netagent_torch.span("data-loader"):
            time.sleep(self._options.load_s)
        with torch.no_grad():
            for number in range(self._options.microbatches):
                self._forward(number, [])
        for sent in self._sending:
            sent.wait()
        self._sending.clear()
        dist.all_reduce(torch.ones(1))

    def _forward(self, number: int, losses: list[float]) -> tuple[Tensor, Tensor]:
        if self._first:
            values = torch.randn(self._shape)
        else:
            values = self._receive(self._groups.stage - 1, 2 * number)
        values.requires_grad_(torch.is_grad_enabled())
        with netagent_torch.span("forward-compute", compute=True, microbatch=number):
            self._compute(1)
        made = self._block(values)
        if self._last:
            made = (made - 1).square().mean() / self._options.microbatches
            losses.append(made.item())
        else:
            self._send(made.detach(), self._groups.stage + 1, 2 * number)
        return values, made

    def _backward(self, number: int, values: Tensor, made: Tensor) -> None:
        grad = None if self._last else self._receive(self._groups.stage + 1, 2 * number + 1)
        with netagent_torch.span("backward-compute", compute=True, microbatch=number):
            self._compute(2)
        made.backward(grad)
        if not self._first:
            assert values.grad is not None
            self._send(values.grad, self._groups.stage - 1, 2 * number + 1)

    def _compute(self, passes: int) -> None:
        """Take a GPU's time: a forward pass, or the two that a backward pass is worth."""
        time.sleep(passes * self._options.forward_s * self._wrong.factor)

    def _send(self, values: Tensor, stage: int, tag: int) -> None:
        sending = dist.isend(values, self._groups.stages[stage], self._groups.pp, tag)
        self._sending.append(sending)

    def _receive(self, stage: int, tag: int) -> Tensor:
        values = torch.empty(self._shape)
        dist.recv(values, self._groups.stages[stage], self._groups.pp, tag)
        return values


def main(argv: Sequence[str] | None = None) -> None:
    """Train until killed, or for some steps."""
    options = _parser().parse_args(argv)
    netagent_torch.autoload()
    torch.set_num_threads(1)
    torch.manual_seed(options.rank)
    world, timeout = options.dp * options.pp * options.tp, timedelta(seconds=options.timeout_s)
    meeting = f"file://{options.folder}/meeting"
    dist.init_process_group(
        "gloo", init_method=meeting, rank=options.rank, world_size=world, timeout=timeout
    )
    groups, truth = Groups.make(options.dp, options.pp, options.tp, timeout)
    if options.rank == 0:
        (options.folder / "groups.json").write_text(json.dumps(truth))
    usual = Usual(**{each.name: getattr(options, each.name) for each in fields(Usual)})
    pipeline = Pipeline(options, groups)
    for number in range(options.steps or 2**31):
        began = time.monotonic()
        netagent_torch.step(number)
        if usual.evaluates(number):
            pipeline.evaluate()
        wrong = Wrong.read(options.folder, options.rank, groups.stage, number)
        collects_s = usual.collects_s(options.rank, number)
        loss = pipeline.step(replace(wrong, collects_s=wrong.collects_s + collects_s))
        took_s = time.monotonic() - began
        print(f"step {number}: {took_s:.2f} s, loss {loss:.4f}", flush=True)
        if saves_s := usual.saves_s(options.rank, number):
            with netagent_torch.span("checkpoint"):
                time.sleep(saves_s)
        time.sleep(options.pause_s)  # the optimizer's, and the next batch's


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--folder", required=True, type=Path, help="where ranks meet")
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="0: until killed")
    parser.add_argument("--hidden", type=int, default=256, help="floats of a token")
    parser.add_argument("--tokens", type=int, default=256, help="of a microbatch")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--forward-s", type=float, default=0.1, help="a GPU's forward pass")
    parser.add_argument(
        "--norm", type=int, default=0, help="1: all ranks sum one number up at the end of a step"
    )
    parser.add_argument("--load-s", type=float, default=0.0, help="the data loader's time")
    parser.add_argument("--pause-s", type=float, default=0.8, help="between two steps")
    parser.add_argument("--timeout-s", type=float, default=TIMEOUT_S, help="of an operation")
    for each in fields(Usual):
        name = "--" + each.name.replace("_", "-")
        parser.add_argument(name, type=type(each.default), default=each.default)
    return parser


if __name__ == "__main__":
    main()
