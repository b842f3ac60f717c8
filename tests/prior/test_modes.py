"""Modes are written once: NumPy and PyTorch give the same basis, batches are many single ones, slopes are right."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from lodekit.data.records import Scaling
from lodekit.prior import expm as exponentials
from lodekit.prior.expm import expm_action, expm_action_vjp, expm_frechet
from lodekit.prior.modes import (
    ModeGroup,
    companion_terms,
    exponential_basis,
    fundamental_basis,
    mode_group_index,
    mode_matrix_with_jacobian,
)
from lodekit.prior.observables import ObservableCompiler, Observables
from tests.inference.fitted import system_of

Array = NDArray[np.float64]
TIMES = np.linspace(0.0, 1.0, 5)
#: A known function of time with parameters in its rate and frequency.
FORCED = "x' + a*x = exp(-b*t)*sin(w*t)"
#: Many known terms, so that the last ones are found as the first ones are.
MANY = "x' + a*x = b*t + exp(-b*t) + t*sin(w*t) + cos(2*a*t)"
#: Two modes of which each has a parameter of its own.
APART = "x' = -a*x; y' = -b*y; z' = u + w*y"
OWN = (FORCED, MANY, APART)
#: Constant and parametric roots; simple and repeated; real, complex and growing; with a particular solution.
CASES = [
    "three_tank",
    "free_decay",
    "two_room",
    "double decay",
    "double oscillation",
    "growth",
    "parametric double root",
    "cubic with parameters",
    "fast forcing",
    *OWN,
]


def compiled(name: str) -> tuple[Observables, Array]:
    """Return channels of a system and their derivatives in units of their own, and values of its parameters."""
    system, values = (lk.System(name, parameters=["a", "b", "w"]), (1, 2, 3)) if name in OWN else system_of(name)
    texts = [channel + mark for channel in system.channels for mark in ("", "'", "''")]
    units = Scaling(0.5, 2.0, np.linspace(0.5, 3.0, len(texts)))
    return ObservableCompiler(system).compile(texts, units), np.array(values) * 1.1


@pytest.mark.parametrize("name", CASES)
def test_numpy_and_torch_give_the_same_coefficients_modes_and_means(name: str) -> None:
    torch = pytest.importorskip("torch")
    observables, theta = compiled(name)
    groups = observables.compiled.groups
    values = observables.evaluate(theta)
    table = observables.compiled.table.evaluate_values(torch, torch.asarray(np.stack([theta, 0.7 * theta])))
    arrays = observables.split(torch, table)
    # Rounding only: powers and exponentials differ in the last digit from library to library.
    np.testing.assert_allclose(arrays.free[0], values.free, rtol=1e-13)
    basis = observables.mode_values(torch, arrays, groups, torch.asarray(TIMES)).numpy()
    for batch, own in ((0, theta), (1, 0.7 * theta)):
        values = observables.evaluate(own)
        expected = np.stack(observables.mode_basis(values, groups, TIMES, with_jacobian=True)[0])
        np.testing.assert_allclose(basis[batch], expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max(initial=0.0))
        plain = np.stack(observables.mode_basis(values, groups, TIMES, with_jacobian=False)[0])
        np.testing.assert_allclose(plain, expected, rtol=1e-13, atol=1e-14 * np.abs(expected).max(initial=0.0))
        means = observables.mean_values(torch, table, torch.asarray(TIMES)).numpy()[batch]
        np.testing.assert_allclose(means, np.stack(observables.means(values, TIMES)[0]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in CASES if len(compiled(name)[1])])
def test_slopes_in_the_parameters_are_those_of_differences(name: str) -> None:
    observables, theta = compiled(name)
    groups = observables.compiled.groups
    values, step = observables.evaluate(theta), 1e-6
    _, slopes = observables.mode_basis(values, groups, TIMES, with_jacobian=True)
    _, d_means = observables.means(values, TIMES)
    for p in range(len(theta)):
        sides = []
        for sign in (1.0, -1.0):
            moved = theta.copy()
            moved[p] += sign * step
            own = observables.evaluate(moved)
            basis = np.stack(observables.mode_basis(own, groups, TIMES, with_jacobian=False)[0])
            sides.append((basis, np.stack(observables.means(own, TIMES)[0])))
        for found, index in ((slopes, 0), (d_means, 1)):
            expected = (sides[0][index] - sides[1][index]) / (2 * step)
            scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
            np.testing.assert_allclose(np.stack([part[p] for part in found]), expected, rtol=0, atol=1e-7 * scale)


def test_the_exponential_basis_is_differentiated_by_hand() -> None:
    """``(3 + 2 d + d^2)`` of ``e^(l s)`` and of ``s e^(l s)``; s counts from the end where they grow."""
    operators = np.array([[3.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
    for root in (-0.5 + 2.0j, 0.3 + 0.0j):
        s = TIMES - (1.0 if root.real > 0 else 0.0)
        wave, at, slope = np.exp(root * s), 3.0 + 2.0 * root + root**2, 2.0 + 2.0 * root
        columns = [at * wave, (at * s + slope) * wave]
        expected = [part for c in columns for part in ((c.real, c.imag) if root.imag else (c.real,))]
        found = exponential_basis(np, TIMES, operators, root, 2)
        np.testing.assert_allclose(found[0], np.stack(expected, axis=1), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(found[1, :, 0], wave.real, rtol=1e-13)


def test_the_companion_matrix_has_the_roots_of_the_factor_and_its_exponential_is_that_of_scipy() -> None:
    factor = np.array([6.0, 5.0, 1.0])
    matrix = companion_terms(np, factor, 2)[0]
    # A double root is known to half the digits.
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(matrix).real), [-3, -3, -2, -2], atol=1e-5)
    rows, none = np.eye(4), np.zeros((0, 4, 4))
    flow, _ = expm_action(rows, none, matrix, none, 4.0 * TIMES)
    for time, found in zip(4.0 * TIMES, flow.swapaxes(0, 1), strict=True):
        exact = expm(matrix * time)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    group = ModeGroup(0, None, 4, 0, 2, slice(0, 3))
    np.testing.assert_array_equal(mode_matrix_with_jacobian(factor, np.zeros((1, 3)), group)[0], matrix)
    first = fundamental_basis(np, TIMES, np.array([[1.0]]), matrix, group)
    np.testing.assert_allclose(first[0], expm_frechet(matrix * TIMES[:, None, None])[0][:, 0], rtol=1e-13, atol=1e-15)


def test_matrices_and_times_without_end_are_no_error() -> None:
    for matrix in (np.array([[np.inf]]), np.full((2, 2), np.inf)):
        rows, none = np.ones((1, len(matrix))), np.zeros((0, *matrix.shape))
        assert np.isinf(expm_action(rows, none, matrix, none, TIMES)[0]).all()
    assert expm_action(np.eye(2), np.zeros((0, 2, 2)), np.eye(2), np.zeros((0, 2, 2)), np.zeros(0))[0].shape == (
        2,
        0,
        2,
    )


@pytest.mark.parametrize("missing", [False, True])
def test_fast_modes_at_regular_times_need_one_exponential(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate of 1e5 beside slow ones: values and gradients agree with those of one exponential for each time."""
    matrix = np.array([[-0.3, 0.2, 0.1], [0.1, -0.5, 0.4], [3e4, 2e4, -1e5]])
    times = 0.25 * np.arange(40.0)
    times = np.delete(times, [3, 4, 17]) if missing else times
    generator = np.random.default_rng(0)
    rows, d_rows, d_matrix = (generator.standard_normal(shape) for shape in ((2, 3), (4, 2, 3), (4, 3, 3)))
    cotangents = generator.standard_normal((2, len(times), 3))
    flow, d_flow = expm_frechet(matrix * times[:, None, None], d_matrix[:, None] * times[:, None, None])
    expected = np.einsum("or,nrm->onm", rows, flow)
    d_expected = np.einsum("por,nrm->ponm", d_rows, flow) + np.einsum("or,pnrm->ponm", rows, d_flow)
    monkeypatch.setattr(exponentials, "_act_by_exponentials", None)
    values, jacobian = expm_action(rows, d_rows, matrix, d_matrix, times)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    np.testing.assert_allclose(jacobian, d_expected, rtol=0, atol=1e-10 * np.abs(d_expected).max())
    in_rows, in_matrix = expm_action_vjp(rows, matrix, times, cotangents)
    slopes = np.einsum("por,or->p", d_rows, in_rows) + np.einsum("pij,ij->p", d_matrix, in_matrix)
    np.testing.assert_allclose(slopes, np.einsum("ponm,onm->p", d_expected, cotangents), rtol=1e-8)


def test_every_basis_function_knows_its_group() -> None:
    roots = {None: 2, -1.0 + 0.0j: 1, 1.0j: 2}
    groups = [ModeGroup(0, root, size, 0, 1, slice(0)) for root, size in roots.items()]
    assert mode_group_index(groups) == [0, 0, 1, 2, 2]
