# SPDX-License-Identifier: Apache-2.0
"""From single probes of a window to what an agent's columns say of their flows. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET
from netagent.wire.histogram import LN_GAMMA
from netagent.wire.rounding import BITS, FEW, HOST_BITS, PER_LN, VARIANCE_STEPS, most_ns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]


HISTOGRAM = ("hist_bucket", "hist_count")
"""Columns that have `hist_len` items of each flow."""


@dataclass(frozen=True)
class Probes:
    """Probes that settled, by flow and instant; all arrays are (n_probes,)."""

    flow: Ints
    at_ns: Ints
    """When each was sent."""
    large: Bools
    lost: Bools
    refused: Bools
    rtt_ns: Floats
    """Network round trip; of a lost one it means nothing."""
    kept_ns: Floats
    """(2, n_probes): nanoseconds that the prober's and the responder's host took."""

    def of(self, chosen: Bools | Ints) -> "Probes":
        """Return some of them."""
        return Probes(
            self.flow[chosen], self.at_ns[chosen], self.large[chosen], self.lost[chosen],
            self.refused[chosen], self.rtt_ns[chosen], self.kept_ns[:, chosen],
        )  # fmt: skip

    def and_then(self, other: "Probes") -> "Probes":
        """Return these and later ones."""
        both = {
            name: np.concatenate([getattr(self, name), getattr(other, name)], axis=-1)
            for name in (each.name for each in fields(self))
        }
        made = Probes(**both)
        return made.of(np.lexsort((made.at_ns, made.flow)))

    def renumbered(self, number: Mapping[int, int]) -> "Probes":
        """Return those whose flows have a new number, by it."""
        flow = np.asarray([number.get(each, -1) for each in self.flow.tolist()], np.int64)
        made = replace(self, flow=flow).of(flow >= 0)
        return made.of(np.lexsort((made.at_ns, made.flow)))


@dataclass
class Runs:
    """Losses in a row of each flow, and when they began: what lasts from window to window."""

    run: Ints
    since_ns: Ints

    @classmethod
    def of(cls, flows: int) -> "Runs":
        """Return those of flows that lost nothing yet."""
        return cls(np.zeros(flows, np.int64), np.zeros(flows, np.int64))

    def after(self, probes: Probes, first: Ints) -> tuple[Ints, Ints]:
        """Return losses in a row at the end of the window, and when each run began."""
        flow, at_ns, lost = probes.flow, probes.at_ns, probes.lost
        probed, ends = flow[first], np.append(first[1:], len(flow))
        place = np.arange(len(flow))
        # The last probe that was answered, before the window if none was in it.
        answered = np.maximum.reduceat(np.where(lost, -1, place), first)
        whole = answered < first
        run = np.where(whole, ends - first + self.run[probed], ends - 1 - answered)
        begin = np.where(whole, first, np.minimum(answered + 1, ends - 1))
        since = np.where(whole & (self.run[probed] > 0), self.since_ns[probed], at_ns[begin])
        self.run[probed], self.since_ns[probed] = run, since
        return run, since


def columns_of(probes: Probes, runs: Runs) -> Columns:
    """Return the columns of flows that were probed; "flow" has their numbers."""
    flow, lost, large = probes.flow, probes.lost, probes.large
    first = np.flatnonzero(np.diff(flow, prepend=-1))
    sent = np.diff(first, append=len(flow))

    if not len(first):
        return _nothing()

    def total(values: NDArray[Any]) -> Ints:
        summed: Ints = np.add.reduceat(values.astype(np.int64), first)
        return summed

    ln, fine = np.log(probes.rtt_ns), ~lost & ~probes.refused
    answered = total(fine)
    sums = np.add.reduceat(np.where(fine, ln, 0.0), first)
    squares = np.add.reduceat(np.where(fine, ln * ln, 0.0), first)
    some = np.maximum(answered, 1)
    mean = np.where(answered, sums / some, 0.0)
    least = np.minimum.reduceat(np.where(fine, probes.rtt_ns, np.inf), first)
    run, since = runs.after(probes, first)
    prober_ns, responder_ns = (
        rounded_ns(np.add.reduceat(np.where(fine, kept_ns, 0.0), first) / some, HOST_BITS)
        for kept_ns in probes.kept_ns
    )
    last_ns = probes.at_ns[np.append(first[1:], len(flow)) - 1]
    most = np.maximum.reduceat(np.where(fine, probes.rtt_ns, 0.0), first)
    told, row = answered > FEW, np.repeat(np.arange(len(first)), sent)
    in_it = fine & told[row]
    return {
        "flow": flow[first],
        "sent": sent, "lost": total(lost),
        "sent_large": total(large), "lost_large": total(large & lost),
        "run": np.minimum(run, 65535),
        "run_ms": np.where(run > 0, (last_ns - since) // 1_000_000, 0),
        "count": answered,
        "min_ns": rounded_ns(np.where(answered > 0, least, 0)), "max_ns": rounded_ns(most),
        "mean_ln": np.where(told, np.round(mean * PER_LN) / PER_LN, 0.0),
        "var_ln": np.where(told, _rounded_variance(squares / some - mean * mean), 0.0),
        "refused": total(probes.refused), "prober_ns": prober_ns, "responder_ns": responder_ns,
        **_histogram(row[in_it], ln[in_it], len(first)),
    }  # fmt: skip


def in_order(columns: Columns) -> Columns:
    """Return flows in the order in which an agent says them, see `WindowTally.close`."""
    order = np.lexsort((columns["source_port"], columns["count"] > FEW))
    row = np.repeat(np.argsort(order), columns["hist_len"])
    entries = np.argsort(row, kind="stable")
    return {
        name: column[entries if name in HISTOGRAM else order] for name, column in columns.items()
    }


def rounded_ns(time_ns: Floats, bits: int = BITS) -> Ints:
    """Return times as `netagent.wire.rounding.rounded_ns` does."""
    whole = np.floor(time_ns)
    step = 2.0 ** np.maximum(np.frexp(whole)[1] - bits, 0)
    told = np.minimum(np.floor(whole / step + 0.5) * step, most_ns(bits))
    rounded: Ints = told.astype(np.int64)
    return rounded


def _rounded_variance(variance: Floats) -> Floats:
    share, power = np.frexp(np.maximum(0.0, variance))
    rounded: Floats = np.ldexp(np.round(share * VARIANCE_STEPS) / VARIANCE_STEPS, power)
    return rounded


def _nothing() -> Columns:
    names = (
        "flow", "sent", "lost", "sent_large", "lost_large", "run", "run_ms", "count", "min_ns",
        "max_ns", "mean_ln", "var_ln", "refused", "prober_ns", "responder_ns", "hist_len",
        "hist_bucket", "hist_count",
    )  # fmt: skip
    return {name: np.zeros(0, np.int64) for name in names}


def _histogram(row: Ints, ln: Floats, rows: int) -> dict[str, Ints]:
    """Return the histogram's columns; `row` and `ln` of each round trip, ln(ns)."""
    bucket = np.ceil(ln / LN_GAMMA).astype(np.int64)
    key, count = np.unique(row * (MAX_BUCKET + 1) + bucket, return_counts=True)
    return {
        "hist_len": np.bincount(key // (MAX_BUCKET + 1), minlength=rows),
        "hist_bucket": key % (MAX_BUCKET + 1),
        "hist_count": count,
    }
