"""Validation and conversion of user arguments (counts, seeds, times, arrays, parameter values), and kinds of arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.errors import DataError, LodekitError

#: Arrays of real numbers, complex numbers, indices and truth values.
Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
IndexArray = NDArray[np.intp]
Mask = NDArray[np.bool_]


def check_positive(name: str, value: object) -> float:
    """Return an argument as a float; raise unless it is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise LodekitError(f"expected {name} as a positive finite number, got {value!r}")
    return float(value)


def check_count(name: str, value: object) -> None:
    """Raise unless an argument is an integer of at least one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise LodekitError(f"expected {name} as a whole number of at least 1, got {value!r}")


def check_seed(seed: object) -> None:
    """Raise unless a value is a valid random seed."""
    try:
        np.random.default_rng(seed)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise LodekitError(f"expected random_state as a whole number of zero or more, or None, got {seed!r}") from None


def check_parameters(known: Collection[str], names: Iterable[object]) -> None:
    """Raise if a name is not a parameter."""
    for name in names:
        if name not in known:
            raise LodekitError(f"unknown parameter {name!r}; expected one of: {', '.join(known) or 'none'}")


def parse_parameter_values(known: Collection[str], values: object) -> dict[str, float]:
    """Return parameter values as finite floats by name; raise if they are not.

    Examples
    --------
    >>> parse_parameter_values(["a", "b"], {"b": 2})
    {'b': 2.0}
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise LodekitError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
    check_parameters(known, values)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise LodekitError(f"expected a finite number for {name!r}, got {value!r}")
    return {name: float(value) for name, value in values.items()}


def check_finite(values: Array, times: Array) -> None:
    """Raise if a prediction is not finite; the message names the first such time.

    Shapes: values (n, ...), times (n,).
    """
    if np.isfinite(values).all():
        return
    bad = ~np.isfinite(values.reshape(len(times), -1)).all(axis=1)
    raise DataError(f"the solution overflows at t = {times[bad][0]:g}; predict closer to the data")


def as_times(t: ArrayLike) -> Array:
    """Return times as a finite float array of shape (n,).

    Shapes: t (n,).
    """
    if isinstance(t, str) and t.rstrip("'").isidentifier():
        raise DataError(f"expected numbers for times, got texts such as {t}; did you mean observable={t!r}?")
    times = as_float_array("times", t)
    if times.ndim == 2 and times.shape[1] == 1:  # the shape of scikit-learn
        times = times[:, 0]
    if times.ndim != 1:
        raise DataError(f"expected a one-dimensional array of times, got shape {times.shape}")
    if not np.isfinite(times).all():
        index = int(np.argmin(np.isfinite(times)))
        raise DataError(f"expected finite times, got {times[index]} at index {index}")
    return times


def as_float_array(what: str, values: object) -> Array:
    """Return values as a float array of at least one dimension; masked and missing values become NaN.

    Examples
    --------
    >>> as_float_array("x", np.ma.array([1, -999], mask=[False, True])).tolist()
    [1.0, nan]
    """
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    if mask is None and hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise DataError(f"expected numbers for {what}, got rows of different lengths, or no numbers") from None
    if array.dtype.kind in "cmM" and array.size:
        kind, remedy = {
            "c": ("complex numbers", "pass the real and the imaginary part as two channels"),
            "m": ("differences of dates", "convert them to seconds or hours"),
            "M": ("dates", "convert them to seconds or hours"),
        }[array.dtype.kind]
        raise DataError(f"expected real numbers for {what}, got {kind}; {remedy}")
    # A broadcast view may be too large to be copied.
    check_memory(array.size, f"a copy of {what}")
    if array.dtype.kind == "O":
        floats = [_object_to_float(what, item) for item in array.ravel().tolist()]
        array = np.array(floats, dtype=float).reshape(array.shape)
    try:
        result = np.array(array, dtype=float, ndmin=1)
    except (TypeError, ValueError):
        got = f"texts such as {array.flat[0]!s:.40}" if array.dtype.kind in "US" else str(array.dtype)
        raise DataError(f"expected numbers for {what}, got {got}") from None
    if mask is not None:
        result[mask.reshape(result.shape)] = np.nan
    return result


def _object_to_float(what: str, item: object) -> float:
    """Return an element of an object array as a float; missing values become NaN."""
    if item is None or type(item).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return math.nan
    try:
        if isinstance(item, str | complex | bytes):
            raise TypeError
        return float(item)  # type: ignore[arg-type]
    except OverflowError:
        raise DataError(f"expected numbers that fit a float for {what}, got one of over 300 digits") from None
    except (TypeError, ValueError):
        raise DataError(f"expected real numbers for {what}, got {type(item).__name__}") from None


def check_memory(n_floats: float, what: str) -> None:
    """Raise if an array would exceed the physical memory.

    Linux overcommits memory and kills the process later, so the size is checked first.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system without this information
        return
    if 8 * n_floats > memory:
        raise LodekitError(
            f"{what} would take {8e-9 * n_floats:.3g} GB of memory, and this machine has {1e-9 * memory:.3g} GB; "
            "request fewer times at once"
        )


def includes_parameter_uncertainty(parameters: str) -> bool:
    """Return whether `parameters` is ``"uncertain"`` rather than ``"fixed"``."""
    if parameters not in ("uncertain", "fixed"):
        raise LodekitError(f"expected parameters='uncertain' or 'fixed', got {parameters!r}")
    return parameters == "uncertain"
