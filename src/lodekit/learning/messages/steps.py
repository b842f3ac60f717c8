"""Warnings about channels that jump: no smooth prior follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lodekit.data.observations import Series
from lodekit.data.stepped import is_stepped

__all__ = ["warn_of_steps"]


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
        name = item.observable
        text += f'where somebody set it, say inputs={{"{name}": "hold"}}, or --input {name}=hold on the command line, '
        text += f'or {name} = "hold" under [inputs] in the system file'
        found.append(text)
    return found
