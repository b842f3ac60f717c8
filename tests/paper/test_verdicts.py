"""Verdicts have margin: ties are ties, few data sets decide nothing, intervals are those of the binomial."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from lodekit.paper.claims import claim_status, compare_pairs, coverage_interval, power_of_ten_bound


def test_a_race_is_decided_by_a_paired_test() -> None:
    generator = np.random.default_rng(0)
    theirs = generator.standard_normal(20)
    apart = generator.standard_normal(20)
    assert compare_pairs(theirs - 1.0, theirs)[0] == "yes"
    assert compare_pairs(theirs + 1.0, theirs)[0] == "no"
    # Ten wins of twenty, of the same size.
    even = np.where(np.arange(20) % 2, 1.0, -1.0) * np.abs(apart)
    assert compare_pairs(theirs + even, theirs)[0] == "tie"
    assert compare_pairs(theirs[:5] - 1.0, theirs[:5])[0] == "open"


def test_the_same_optimum_is_a_tie() -> None:
    losses = np.linspace(-2.0, -1.0, 20)
    assert compare_pairs(losses - 1e-5, losses) == ("tie", "0 wins and 20 ties of 20, p = 1")


def test_coverage_is_that_of_the_beta_distribution() -> None:
    low, high = coverage_interval(35, 40)
    assert low == pytest.approx(beta.ppf(0.025, 35, 6))
    assert high == pytest.approx(beta.ppf(0.975, 36, 5))
    assert low <= 0.95 <= high
    assert coverage_interval(30, 40)[1] < 0.95


def test_bounds_are_coarse() -> None:
    assert [power_of_ten_bound(value) for value in (1e-8, 9e-8, 3.4e-8)] == [1e-6] * 3
    for value in 10.0 ** np.linspace(-12, -2, 41):
        assert 9.99 * value <= power_of_ten_bound(value) <= 1001 * value
    assert (claim_status(True), claim_status(False)) == ("yes", "no")
