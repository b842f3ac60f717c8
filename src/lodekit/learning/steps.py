"""Warnings about channels that jump: no smooth prior follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series

__all__ = ["is_stepped", "warn_of_steps"]

Array = NDArray[np.float64]
#: A jump is this share of the range at least, and its neighbours change by less than this share of it.
_JUMP, _CALM = 0.15, 0.2
_FEWEST = 8


def is_stepped(values: Array) -> bool:
    """Return whether isolated jumps make up most of the changes of a series; smooth and noisy series have none.

    Parameters
    ----------
    values : array, shape (n,)
        Measurements in the order of time.

    Examples
    --------
    >>> is_stepped(np.repeat([0.0, 50.0, 20.0, 80.0], 10)), is_stepped(np.sin(np.arange(40.0)))
    (True, False)
    """
    if len(values) < _FEWEST:
        return False
    changes, span = np.abs(np.diff(values)), float(np.ptp(values))
    if not span > 1e-9 * float(np.max(np.abs(values))):
        return False
    # A change with the two before and the two after it.
    inner = changes[2:-2]
    around = np.max([changes[:-4], changes[1:-3], changes[3:-1], changes[4:]], axis=0)
    jumps = inner[(inner > _JUMP * span) & (around < _CALM * inner)]
    if not len(jumps):
        return False
    return bool(np.sum(jumps**2) > 0.5 * np.sum(changes**2) and jumps.min() > 10 * np.median(changes))


def warn_of_steps(series: Sequence[Series], noise: Mapping[str, float], channels: Sequence[str]) -> list[str]:
    """Return a warning for each channel that is stepped.

    Parameters
    ----------
    series : sequence of Series
        The measurements.
    noise : dict of str to float
        Learned levels by name, in the user's units; quoted where a channel has its own.
    channels : sequence of str
        All channels of the system; other observables are not looked at.
    """
    found = []
    for item in series:
        order = np.argsort(item.times, kind="stable")
        if item.observable not in channels or not is_stepped(item.values[order]):
            continue
        text = f"{item.observable} is stepped, and a smooth prior cannot follow a jump: its curve rings near jumps"
        level = noise.get(item.observable)
        if level is not None:
            text += f", its learned noise ({level:.3g}) includes rounded corners and what the equations do not explain"
        half = 0.5 * float(np.median(np.diff(np.unique(item.times))))
        text += f", and times can be off by about half a sampling step ({half:.3g}); "
        text += f'where somebody set it, say inputs={{"{item.observable}": "hold"}}, or --input {item.observable}=hold'
        found.append(text)
    return found
