"""Warnings about data that tell little: a single value to learn noise from, and values that never change."""

from __future__ import annotations

from collections.abc import Sequence

from lodekit.data.measurements import Summary
from lodekit.data.noise import LOWEST_OF_ZEROS, Noise

__all__ = ["warn_of_scarcity"]

#: What is said of the noise of an observable that is zero throughout.
_FLOOR = (
    f"; its noise, of which zeros say nothing, is taken to be at least {LOWEST_OF_ZEROS:.0%} of what the equations "
    "make of the rest: give noise_std where it is known"
)


def warn_of_scarcity(summaries: Sequence[Summary], noise: Noise) -> list[str]:
    """Return a warning for each level of noise that one value has to tell, and for each observable that is constant.

    Parameters
    ----------
    summaries : sequence of Summary
        What was measured.
    noise : Noise
        Which level belongs to which observable.
    """
    found = []
    for group in sorted(set(noise.groups)) if noise.count else ():
        own = [item for item, level in zip(summaries, noise.groups, strict=True) if level == group and item.learned]
        if sum(item.learned for item in own) == 1:
            found.append(
                f"the noise of {own[0].observable} is learned from a single value, which cannot tell it; give "
                "noise_std, or [noise] in a system file"
            )
    silent = [item.observable for item in summaries if item.is_zero and item.learned and not noise.shared]
    constant = [item for item in summaries if item.count > 1 and not item.spread > 1e-12 * abs(item.mean)]
    return found + [
        f"all {item.count} values of {item.observable} are {item.mean:.6g}: a constant says little about parameters; "
        "check the column, its unit and the sensor" + (_FLOOR if item.observable in silent else "")
        for item in constant
    ]
