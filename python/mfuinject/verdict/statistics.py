"""Medians, and how sure they are."""

from __future__ import annotations

import random
from typing import Sequence


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of both."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def paired_difference(with_it: Sequence[float], without: Sequence[float], rounds: int = 2000) -> tuple[float, float, float]:
    """Median of the differences of pairs, and its 95 % interval by bootstrap (Efron 1979: pairs drawn again with replacement)."""
    pairs = [a - b for a, b in zip(with_it, without)]
    draw = random.Random(len(pairs))
    medians = sorted(median([draw.choice(pairs) for _ in pairs]) for _ in range(rounds))
    return median(pairs), medians[int(0.025 * rounds)], medians[int(0.975 * rounds) - 1]


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least `part` of all are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]
