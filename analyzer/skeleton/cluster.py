# SPDX-License-Identifier: Apache-2.0
"""Groups of equal size: positions of a training job that send alike at the same time.

The constraints of SkeletonHunter (section 5.1), equal sizes that divide the number of members,
leave the number of groups open: one group of all is as equal as many. So every divisor is tried.
Each is judged by the distance between its groups, compared with the distance within them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from analyzer.skeleton.series import Floats, Ints
from analyzer.skeleton.spectrum import Features

TIE = 0.05
"""Difference in separation below which two groupings count as equal. Chosen: the larger groups then
win, which probe some pairs too many rather than too few."""
LONELY = 0.3
"""Separation by which groups of one member must beat larger groups. Chosen: groups of one have no
replicas, so a wrong choice of them leaves used pairs out."""
VALID = 0.3
"""Least separation of groups, measured in the half of the windows that did not make them; below it
the groups are chance. Chosen: too low keeps chance groups, too high gives up noisy jobs."""
NOTHING = 0.02
"""Share of the points' mean squared length; smaller squared distances count as none. Chosen: above
what numerical noise makes, below what tells two stages apart."""
OUTLIERS = 0.02
"""Share of the members, the worst ones, that `separation` leaves out, beside one more. Chosen: a
straggling host does not hide groups that the other members show."""
ROUNDS = 4
"""Most rounds of moving members to the nearest centre. Chosen: bounds the time; moving ends earlier
when a round moves nobody."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to group the members."""

    size: int
    """Members of each group."""
    separation: float
    """1: groups far apart, members of each alike. 0 or less: nothing supports this grouping."""
    moved: float
    """Share of the members that are not in their nearest group, since sizes are equal."""
    label: Ints
    """(n,): group of each member, from 0."""

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return len(self.label) // self.size


def divisors(count: int) -> list[int]:
    """Return the divisors, ascending."""
    return [d for d in range(1, count + 1) if count % d == 0]


def candidates(features: Features) -> list[Candidate]:
    """Return a candidate for each size that divides the number of members, ascending."""
    count = len(features.early)
    if count < 2:
        return [Candidate(1, 0.0, 0.0, np.zeros(count, np.int64))]
    points = features.pooled
    tree = _tree(points)
    distances, floor = features.squared_distances(), floor_of(points)
    made = []
    for size in divisors(count):
        label, moved = _cut(tree, points, size)
        made.append(Candidate(size, separation(distances, label, floor=floor), moved, label))
    return made


def choose(found: list[Candidate], features: Features) -> Candidate:
    """Return the best separated candidate; among equals, the one with the largest groups.

    Where the best one is chance, return one group of all. It is chance where groups that one half
    of the windows makes are not separated in the other half.
    """
    best = max(map(_worth, found))
    chosen = max((c for c in found if _worth(c) >= best - TIE), key=lambda c: c.size)
    if chosen.groups > 1 and validated(features, chosen.size) < VALID:
        return found[-1]
    return chosen


def _worth(candidate: Candidate) -> float:
    # Trusting that no two members are alike is the riskiest: no pair of replicas would be probed.
    return candidate.separation - (LONELY if candidate.size == 1 else 0.0)


def validated(features: Features, size: int) -> float:
    """Return the mean separation of two groupings, each made by one half of the windows."""
    distances, floor = features.squared_distances(), floor_of(features.pooled)
    if size == 1:
        return separation(distances, np.arange(len(distances)), floor=floor)
    made = []
    for points in (features.early, features.late):
        label, _ = _cut(_tree(points), points, size)
        made.append(separation(distances, label, floor=floor))
    return float(np.mean(made))


def _tree(points: Floats) -> Floats:
    tree: Floats = linkage(squareform(np.sqrt(_squared(points)), checks=False), "average")
    return tree


def floor_of(points: Floats) -> float:
    """Return the squared distance below which points do not differ."""
    return NOTHING * float(np.mean(np.sum(points**2, axis=1)))


def _squared(points: Floats) -> Floats:
    inner = points @ points.T
    own = np.diag(inner)
    squared: Floats = np.maximum(own[:, None] + own[None, :] - inner - inner.T, 0)
    np.fill_diagonal(squared, 0)
    return squared


def _cut(tree: Floats, points: Floats, size: int) -> tuple[Ints, float]:
    """Return each member's group of `size`, and the share of members not in their nearest group."""
    count = len(points)
    groups = count // size
    if groups == 1:
        return np.zeros(count, np.int64), 0.0
    if size == 1:
        return np.arange(count), 0.0
    cut = _compact(fcluster(tree, groups, "maxclust") - 1)
    if np.bincount(cut).tolist() == [size] * groups:
        return cut, 0.0
    # An outlier takes a group of its own in the cut. So `_seeded` cuts more groups than needed and
    # begins with the largest.
    label = _seeded(tree, points, size)
    for _ in range(ROUNDS):
        new = _balanced(_between(points, _centres(points, label, groups)), size)
        if np.array_equal(new, label):
            break
        label = new
    nearest = np.argmin(_between(points, _centres(points, label, groups)), axis=1)
    return label, float(np.mean(nearest != label))


def _seeded(tree: Floats, points: Floats, size: int) -> Ints:
    groups = len(points) // size
    best: Ints | None = None
    for more in (0, 1, 2, 4, 8):
        cut = _compact(fcluster(tree, min(groups + more, len(points)), "maxclust") - 1)
        largest = np.argsort(-np.bincount(cut), kind="stable")[:groups]
        if len(largest) < groups:
            continue
        centres = np.stack([points[cut == number].mean(axis=0) for number in largest])
        label = _balanced(_between(points, centres), size)
        if best is None or _spread(points, label) < _spread(points, best):
            best = label
    return best if best is not None else np.arange(len(points)) // size


def _spread(points: Floats, label: Ints) -> float:
    centres = _centres(points, label, int(label.max()) + 1)
    return float(np.sum((points - centres[label]) ** 2))


def _centres(points: Floats, label: Ints, groups: int) -> Floats:
    """Return the mean of each group; none is empty."""
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], np.arange(groups))
    sums: Floats = np.add.reduceat(points[order], starts, axis=0)
    return sums / np.bincount(label, minlength=groups)[:, None]


def _between(points: Floats, centres: Floats) -> Floats:
    own = np.sum(points**2, axis=1)[:, None] + np.sum(centres**2, axis=1)[None, :]
    squared: Floats = np.maximum(own - 2 * points @ centres.T, 0)
    return squared


def _balanced(cost: Floats, size: int) -> Ints:
    """Return each member's group, of equal size and at low total cost; `cost` is (n, groups)."""
    nearest: Ints = np.argmin(cost, axis=1)
    if np.bincount(nearest, minlength=cost.shape[1]).tolist() == [size] * cost.shape[1]:
        return nearest
    # An exact assignment takes cubic time. This one is greedy: the member that would lose most by
    # its second choice chooses first.
    label = np.full(len(cost), -1)
    left = np.full(cost.shape[1], size)
    open_cost = cost.copy()
    while (label < 0).any():
        waiting = np.flatnonzero(label < 0)
        first = np.argmin(open_cost[waiting], axis=1)
        two = np.partition(open_cost[waiting], 1, axis=1)[:, :2]
        regret = np.where(np.isfinite(two[:, 1]), two[:, 1] - two[:, 0], np.inf)
        for index in np.argsort(-regret, kind="stable"):
            if left[first[index]]:
                label[waiting[index]] = first[index]
                left[first[index]] -= 1
        open_cost[:, left == 0] = np.inf
    return label


def _compact(label: Ints) -> Ints:
    compact: Ints = np.unique(label, return_inverse=True)[1]
    return compact


def separation(distances: Floats, label: Ints, *, floor: float) -> float:
    """Return how well groups are separated; `distances` are unbiased squared ones, (n, n).

    Each member scores (b - w) / max(b, w): w is its median squared distance to the others of its
    group, b the least median to another group. The denominator is at least `floor`. The result is
    the mean score without the worst members, since a straggler shows nothing about the others. It
    is a silhouette (Rousseeuw 1987) that noise does not lower.
    """
    count, groups = len(label), int(label.max()) + 1
    if groups == 1:
        return 0.0
    size = count // groups
    apart = distances[:, np.argsort(label, kind="stable")].reshape(count, groups, size)
    member = np.arange(count)
    apart[member, label, _seat(label)] = -np.inf  # the member itself sorts first in its group
    # Positions of the lower medians after sorting. Another group has `size` distances. The own
    # group has `size` - 1, and they begin at position 1, after the member itself.
    others, mates = (size - 1) // 2, min(1 + (size - 2) // 2, size - 1)
    parted = np.partition(apart, sorted({others, mates}), axis=2)
    medians = parted[:, :, others].copy()
    within = np.maximum(parted[member, label, mates], 0)
    medians[member, label] = np.inf
    nearest = medians.min(axis=1)
    silhouette = (nearest - within) / np.maximum(np.maximum(nearest, within), floor)
    worst = 1 + int(OUTLIERS * count)
    return float(np.sort(silhouette)[worst:].mean()) if count > worst else 0.0


def _seat(label: Ints) -> Ints:
    """Return (n,): for each member, how many members of its group come before it."""
    order = np.argsort(label, kind="stable")
    seat = np.empty_like(label)
    seat[order] = np.arange(len(label)) - np.searchsorted(label[order], label[order])
    return seat
