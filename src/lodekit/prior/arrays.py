"""Constants in the array library of the arrays that they meet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["constant"]


def constant(xp: Any, value: NDArray[np.float64], like: Any) -> Any:
    """Return a constant as an array of another array's library, kind and device.

    Parameters
    ----------
    xp : module
        The array library.
    value : array
    like : array
        What it will be computed with.

    Examples
    --------
    >>> constant(np, np.ones(2), np.zeros(2)).tolist()
    [1.0, 1.0]
    """
    # Thousands of small evaluations make a fit: NumPy's own arrays are taken as they are.
    return value if xp is np else xp.asarray(value, dtype=like.dtype, device=like.device)
