"""The recursion over rows is that of a plain loop, whatever the blocks are."""

from __future__ import annotations

import numpy as np
import pytest

from lodekit.prior.linear_recurrence import solve_constant_recurrence, solve_recurrence


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kinds", [1, 3, 2000])
@pytest.mark.parametrize("block", [None, 2, 7, 64])
def test_blocks_do_not_matter(backwards: bool, kinds: int, block: int | None) -> None:
    generator = np.random.default_rng(kinds)
    factors = 0.97 * np.linalg.qr(generator.standard_normal((kinds, 3, 3)))[0]
    # A long run of equal steps between different ones.
    which = generator.integers(0, kinds, 2000)
    which[500:1400] = 0
    added, start = generator.standard_normal((2, 2000, 3)), generator.standard_normal((2, 3))
    expected, now = np.empty(added.shape), start
    for i in range(1999, -1, -1) if backwards else range(2000):
        now = now @ factors[which[i]] + added[:, i]
        expected[:, i] = now
    found = added.copy()
    solve_recurrence(factors, which, found, start, backwards=backwards, block=block)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("block", [None, 5])
def test_few_numbers_drive_all_states(backwards: bool, block: int | None) -> None:
    """With a gain, the recursion is that of the forces that inputs make; lengths that end inside a block, too."""
    generator = np.random.default_rng(0)
    factor, gain = 0.9 * np.linalg.qr(generator.standard_normal((3, 3)))[0], generator.standard_normal((2, 3))
    inputs, start = generator.standard_normal((1, 1237, 2)), generator.standard_normal((1, 3))
    expected, found = inputs @ gain, np.empty((1, 1237, 3))
    solve_recurrence(factor[None], np.zeros(1237, dtype=np.intp), expected, start, backwards=backwards, block=3)
    solve_constant_recurrence(factor, gain, inputs, start, found, backwards=backwards, block=block)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
