"""What modes and means are on nodes in time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Functions"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Functions:
    """Modes and means of all observables on one set of nodes, in scaled units; each list has one array per observable.

    Parameters
    ----------
    modes : list of arrays, shape (q, r)
        The basis functions of the modes, times their prior deviations.
    d_modes : list of arrays, shape (p, q, r)
        Their derivatives in the parameters.
    means : list of arrays, shape (q,)
        The particular solution.
    d_means : list of arrays, shape (p, q)
        Its derivatives in the parameters.
    """

    modes: list[Array]
    d_modes: list[Array]
    means: list[Array]
    d_means: list[Array]
