# SPDX-License-Identifier: Apache-2.0
"""A random forest that says who stood out in an iteration, where somebody labelled some.

After Holmes (NSDI '25): a forest for each job, of a few hours of log that a person labelled; where
the job drifts, its trees' thresholds are shifted instead of learning anew. It takes the place of
one rule alone, who stands out in an iteration; iterations vote as before. It needs scikit-learn,
which is an extra.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.case import Case
from analyzer.detect.operators.lateness import excess_us
from analyzer.detect.operators.votes import Flags, spread
from analyzer.operators.rows import Floats
from netagent.model.errors import CapabilityMissing

FEATURES = ("late", "deviations", "quartiles", "own", "step", "against_window")
_TREES, _DEPTH = 100, 8  # Holmes says neither; chosen
_WINDOW = 20  # iterations; chosen


@dataclass(frozen=True, slots=True)
class Forest:
    """A forest, and what its features were like when it learned."""

    model: Any
    usual: Floats
    """(features,): medians."""


def features(case: Case) -> Floats:
    """Return (steps, ranks, features), as shares of a usual step where they are times."""
    time = case.step_us
    usual_us = float(np.median(time))
    late = excess_us(case) / usual_us
    wide = np.maximum(spread(late, axis=1), 1e-6)[:, None]
    low, middle, high = np.percentile(late, (25, 50, 75), axis=1)
    own = case.own_us / usual_us
    window = np.array([time[max(0, n - _WINDOW) : n + 1].mean() for n in range(len(time))])
    alike = np.ones_like(late)
    return np.stack([
        late, (late - middle[:, None]) / wide,
        (late - middle[:, None]) / np.maximum(high - low, 1e-6)[:, None],
        own, alike * (time / usual_us)[:, None], alike * (time / window)[:, None],
    ], axis=2)  # fmt: skip


def learned(case: Case, labels: Flags, seed: int = 0) -> Forest:
    """Return a forest of (steps, ranks) labels: who stood out.

    Raises `CapabilityMissing` without scikit-learn.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise CapabilityMissing(
            "random forest", "pip install 'netagent[forest]' brings scikit-learn"
        ) from error
    values = features(case)
    model = RandomForestClassifier(
        _TREES, max_depth=_DEPTH, class_weight="balanced", random_state=seed, n_jobs=1
    )
    model.fit(_flat(values), labels.ravel())
    return Forest(model, np.median(_flat(values), axis=0))


def outstanding(forest: Forest, case: Case) -> Flags:
    """Return (steps, ranks) who stands out, as the forest has it."""
    values = features(case)
    said: NDArray[np.bool_] = forest.model.predict(_flat(values)).astype(bool)
    return said.reshape(values.shape[:2])


def shifted(forest: Forest, case: Case) -> Forest:
    """Return the forest with its thresholds shifted by how the features of a job drifted."""
    now = np.median(_flat(features(case)), axis=0)
    moved = now - forest.usual
    model = deepcopy(forest.model)
    for tree in model.estimators_:
        splits = tree.tree_.feature >= 0
        tree.tree_.threshold[splits] += moved[tree.tree_.feature[splits]]
    return replace(forest, model=model, usual=now)


def _flat(values: Floats) -> Floats:
    return values.reshape(-1, values.shape[2])
