"""Medians, ratios and agreement: the arithmetic behind every verdict."""
import statistics


def median(values):
    """Median of a non-empty list."""
    if not values:
        raise ValueError("median of nothing")
    return statistics.median(values)


def ratios(alone, measured):
    """measured[i] / alone[i], round by round: the two of a round ran one after the other, so drift cancels."""
    if len(alone) != len(measured):
        raise ValueError(f"{len(alone)} rounds alone, {len(measured)} measured")
    return [m / a for a, m in zip(alone, measured) if a > 0]


def median_of_ratios(alone, measured):
    """(median, smallest, largest) of the per-round ratios."""
    values = ratios(alone, measured)
    return median(values), min(values), max(values)


def relative_difference(ours, theirs):
    """|ours - theirs| / |theirs|; infinite where theirs is zero and ours is not."""
    if theirs == 0:
        return 0.0 if ours == 0 else float("inf")
    return abs(ours - theirs) / abs(theirs)
