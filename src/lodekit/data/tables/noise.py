"""Known noise of tables: one number for all, or a number or a column for each observable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from lodekit.errors import DataError

__all__ = ["KnownNoise", "read_noise"]


@dataclass(frozen=True)
class KnownNoise:
    """What is known of the noise before a table is read.

    Parameters
    ----------
    every : float or None
        The standard deviation of observables that are not named.
    numbers : dict of observable to float or None
        None where it is learned.
    columns : dict of observable to str
        The column with the standard deviations.
    """

    every: float | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The observables that are named."""
        return (*self.numbers, *self.columns)

    def number_of(self, name: str) -> float | None:
        """Return the standard deviation of an observable; None where it is learned, or has a column."""
        return self.numbers.get(name, self.every)


def read_noise(noise_std: Any) -> KnownNoise:
    """Return known noise from a number, or from a dict of observable to number or column.

    Parameters
    ----------
    noise_std : number, dict, or None
        Zero makes values exact.

    Examples
    --------
    >>> noise = read_noise({"x": 0.1, "y": "sigma"})
    >>> noise.number_of("x"), noise.number_of("y"), noise.columns
    (0.1, None, {'y': 'sigma'})
    """
    if not isinstance(noise_std, Mapping):
        return KnownNoise(_number(noise_std, "all channels"))
    columns = {str(name): std for name, std in noise_std.items() if isinstance(std, str)}
    numbers = {str(name): _number(std, str(name)) for name, std in noise_std.items() if not isinstance(std, str)}
    return KnownNoise(None, numbers, columns)


def _number(std: Any, what: str) -> float | None:
    if std is None:
        return None
    is_number = isinstance(std, Real) and not isinstance(std, bool | np.bool_)
    if not is_number or not 0.0 <= float(std) < np.inf:
        raise DataError(
            f"expected a number of zero or more as noise_std of {what}, or a dict of channel to number or column, "
            f"got {std!r}"
        )
    return float(std)
