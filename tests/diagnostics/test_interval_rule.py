"""No interval, bound or verdict excludes values within 1.92 of the maximum of the log evidence.

`benchmarks/identification.py --part equivalent` checks the same rule on hundreds of random systems.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from interval_rule import Watched, draw_cases, find_excluded, reported, search_globally
from lodekit.results.fit import Fit


@cache
def searched(name: str, seed: int) -> tuple[Fit, Watched]:
    """Return a fit of a random case, and all points of a short global search."""
    case = next(case for case in draw_cases(seed, name) if case.name.split(", positive")[0] == name)
    fit = case.fit()
    with np.errstate(all="ignore"):
        return fit, search_globally(fit, seed, starts=1, generations=1)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # A sign that makes no difference, and a product of which only the value is known.
        ("square", 0),
        ("product", 0),
        # Profiles that are not parabolas, of parameters with small errors.
        ("oscillator", 1),
        ("slow", 2),
        # The gain is uncertain because two lags are, which are about equal.
        ("swapped lags", 0),
        # Along a flat line one parameter moves much less than another, but moves.
        ("one sine, measured", 3),
    ],
)
def test_no_interval_excludes_what_a_global_search_finds(name: str, seed: int) -> None:
    fit, watched = searched(name, seed)
    assert not find_excluded(fit, watched, reported(fit))


def test_the_check_fails_if_an_interval_is_too_short() -> None:
    fit, watched = searched("slow", 2)
    for name, (low, high) in reported(fit).items():
        value = fit.estimates[name].value
        for share in (0.7, 0.0):
            short = {name: (value - share * (value - low), value + share * (high - value))}
            assert find_excluded(fit, watched, short).keys() == {name}


def test_the_check_fails_if_a_bound_is_invented() -> None:
    fit, watched = searched("product", 0)
    assert reported(fit)["a"] == (0.0, np.inf)
    assert find_excluded(fit, watched, {"a": (0.0, 2.0 * fit.estimates["a"].value)})
    assert find_excluded(fit, watched, {"a": (0.5 * fit.estimates["a"].value, np.inf)})
