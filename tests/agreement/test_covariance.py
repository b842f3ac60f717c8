"""Covariances agree with SymPy's own differentiation, with PyTorch, and with a strict array namespace."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.prior.compile import compile_observables
from lodekit.prior.covariance import free_function_covariance
from lodekit.prior.kernels import Matern, SquaredExponential, parse_kernel

EXAMPLES = {example.name: example for example in lk.catalog.examples()}
s, t, ell = sympy.symbols("s t ell", positive=True)
#: With s > t, where Matern is smooth.
POINT = {s: sympy.Rational(17, 10), t: sympy.Rational(9, 10), ell: sympy.Rational(3, 2)}


def symbolic_kernel(name: str) -> sympy.Expr:
    u = (s - t) / ell
    if name == "se":
        return sympy.exp(-(u**2) / 2)
    latent = parse_kernel(name)
    assert isinstance(latent, Matern)
    p = latent.p
    r = sympy.sqrt(2 * p + 1) * u
    total = sum(
        sympy.factorial(p + i) / (sympy.factorial(i) * sympy.factorial(p - i)) * (2 * r) ** (p - i)
        for i in range(p + 1)
    )
    return sympy.exp(-r) * sympy.factorial(p) / sympy.factorial(2 * p) * total


@cache
def derivative(latent: str, a: int, b: int) -> sympy.Expr:
    """The a-th derivative in s and the b-th in t of the covariance."""
    if not a + b:
        return symbolic_kernel(latent)
    return sympy.diff(derivative(latent, a - 1, b), s) if a else sympy.diff(derivative(latent, a, b - 1), t)


@cache
def exact_derivative(latent: str, a: int, b: int) -> sympy.Expr:
    """Its value at a point, in 40 digits."""
    return sympy.N(derivative(latent, a, b).subs(POINT), 40)


@pytest.mark.parametrize("latent", ["se", "matern-9/2", "matern-13/2"])
@pytest.mark.parametrize("name", ["heating", "bipendulum", "three_tank", "dc_motor"])
def test_covariance_is_the_symbolic_derivative(name: str, latent: str) -> None:
    """B(d_s) B(d_t)^T k(s - t) by SymPy at a point; tolerance: rounding."""
    example = EXAMPLES[name]
    system = example.system
    values = {sympy.Symbol(n): sympy.Rational(str(v)) for n, v in example.values.items()}
    B = system.parametrization.free_columns.subs(values)
    rows = lk.algebra.operators.OperatorMatrix.identity(system.operator.ring, len(system.channels))
    compiled, theta = compile_observables(system, rows), np.array([float(v) for v in example.values.values()])
    free = compiled.split(np, compiled.table.evaluate(theta)[0]).free
    for q in range(B.cols):
        ours = free_function_covariance(
            np, parse_kernel(latent), np.array([1.7]), np.array([0.9]), free[:, q], free[:, q], 1.5, 1.0
        )[:, 0, :, 0]
        for i in range(B.rows):
            for j in range(B.rows):
                expected = sympy.S.Zero
                for (a,), c1 in sympy.Poly(B[i, q], system.d).terms():
                    for (b,), c2 in sympy.Poly(B[j, q], system.d).terms():
                        expected += c1 * c2 * exact_derivative(latent, a, b)
                exact = float(sympy.N(expected, 30))
                assert ours[i, j] == pytest.approx(exact, rel=1e-10, abs=1e-10 * np.abs(ours).max())


def test_matern_of_high_order_approaches_the_squared_exponential() -> None:
    u = np.linspace(-2, 2, 9)
    smooth, rough = list(SquaredExponential().derivatives(np, u, 2)), list(Matern(60).derivatives(np, u, 2))
    assert len(smooth) == 3
    for expected, part in zip(smooth, rough, strict=True):
        np.testing.assert_allclose(part, expected, atol=0.02)


def test_a_matern_that_is_too_rough_names_the_order_needed() -> None:
    system = lk.catalog.bipendulum().system
    with pytest.raises(lk.LodekitError, match="matern-9/2 or smoother"):
        lk.LODEGP(system, latent="matern-5/2").fit(np.arange(5.0), np.random.default_rng(0).random((5, 3)))


@pytest.mark.parametrize("latent", [SquaredExponential(), Matern(4)])
def test_the_same_code_runs_in_a_strict_array_namespace(latent: SquaredExponential | Matern) -> None:
    xp = pytest.importorskip("array_api_strict")
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, 3)), generator.standard_normal((3, 3))
    t1, t2 = generator.random(4), generator.random(5)
    expected = free_function_covariance(np, latent, t1, t2, first, second, 0.7, 1.3)
    a, b, c, d = (xp.asarray(array) for array in (t1, t2, first, second))
    found = free_function_covariance(xp, latent, a, b, c, d, 0.7, 1.3)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


@pytest.mark.parametrize("latent", [SquaredExponential(), Matern(4)])
def test_batches_are_many_single_covariances(latent: SquaredExponential | Matern) -> None:
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((5, 2, 3)), generator.standard_normal((5, 3, 3))
    t1, t2 = generator.random((4, 1, 6)), generator.random((4, 1, 7))
    ells, deviations = generator.uniform(0.5, 1.0, 5), generator.uniform(0.5, 1.0, 5)
    found = free_function_covariance(np, latent, t1, t2, first, second, ells, deviations)
    assert found.shape == (4, 5, 2, 6, 3, 7)
    for i in range(4):
        for j in range(5):
            alone = free_function_covariance(
                np, latent, t1[i, 0], t2[i, 0], first[j], second[j], float(ells[j]), float(deviations[j])
            )
            np.testing.assert_allclose(found[i, j], alone, rtol=1e-12, atol=1e-13 * np.abs(alone).max())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_same_code_runs_on_torch_tensors_with_autograd(device: str) -> None:
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    compat = pytest.importorskip("array_api_compat").array_namespace(torch.zeros(1))
    generator = np.random.default_rng(0)
    first, t1 = generator.standard_normal((2, 3)), generator.random(4)
    expected = free_function_covariance(np, SquaredExponential(), t1, t1, first, first, 0.7, 1.3)
    ell_tensor = torch.tensor(0.7, dtype=torch.float64, requires_grad=True, device=device)
    a, b = torch.asarray(t1, device=device), torch.asarray(first, device=device)
    sigma = torch.tensor(1.3, dtype=torch.float64, device=device)
    found = free_function_covariance(compat, SquaredExponential(), a, a, b, b, ell_tensor, sigma)
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=1e-13)
    found.sum().backward()
    step = 1e-6
    above, below = (
        free_function_covariance(np, SquaredExponential(), t1, t1, first, first, 0.7 + h, 1.3).sum()
        for h in (step, -step)
    )
    assert float(ell_tensor.grad) == pytest.approx((above - below) / (2 * step), rel=1e-6)
