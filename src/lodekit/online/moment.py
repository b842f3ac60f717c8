"""Where a stream is: all that changes while rows come, and what the last row said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lodekit.online.known import Samples

__all__ = ["Innovation", "Moment"]

Array = NDArray[np.float64]


class Innovation(NamedTuple):
    """One value of a row, and what was expected of it before the row came.

    Parameters
    ----------
    measured : float
    predicted : float
        From all rows before.
    std : float
        The deviation of what is measured from what is predicted: that of the prediction, and noise.
    score : float
        The difference in deviations: standard normal where the model holds.
    alarm : str
        ``"high"`` or ``"low"`` where the cumulative sum of scores has crossed its threshold in this row, else empty.
    """

    measured: float
    predicted: float
    std: float
    score: float
    alarm: str


@dataclass(slots=True)
class Moment:
    """All that changes while rows come.

    Parameters
    ----------
    time : float or None
        Of the last row; None before the first.
    mean, root : arrays, shapes (s,) and (s, s)
        Of the states, and of their covariance.
    response : array, shape (q,)
        The states of the response to known inputs.
    samples : dict of str to Samples
        The last samples of inputs.
    sums : list of (float, float)
        The cumulative sums of each observable.
    leads : (float, float)
        By how much states and response are ahead of the time, which is rounding.
    rows, alarms : int
        How many there were.
    last : dict of str to Innovation
        What the last row said.
    """

    time: float | None
    mean: Array
    root: Array
    response: Array
    samples: dict[str, Samples]
    sums: list[tuple[float, float]]
    leads: tuple[float, float] = (0.0, 0.0)
    rows: int = 0
    alarms: int = 0
    last: dict[str, Innovation] = field(default_factory=dict)
