"""The covariance as a formula: that of the native prior in floats, and the one that the paper prints."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.inference.dense.engine import factorize_covariance
from lodekit.inference.dense.evidence import assemble_covariance
from tests.inference.fitted import EXAMPLES, EXTRA, make_case, system_of

t1, t2 = sympy.symbols("t1 t2")


CASES = [(name, "se") for name in (*EXAMPLES, *EXTRA)]
CASES += [(name, "matern-9/2") for name in ("heating", "three_tank", "two_room", "double oscillation")]


@pytest.mark.parametrize(("name", "latent"), CASES)
def test_the_formula_is_the_prior(name: str, latent: str) -> None:
    system, _ = system_of(name)
    if name == "cubic with parameters":
        with pytest.raises(lk.LodekitError, match="no useful formula"):
            system.covariance("x", latent=latent)
        return
    _, data, _, hyper = make_case(name, count=3, latent=latent)
    state = factorize_covariance(data, hyper)
    assert state is not None
    K = assemble_covariance(data, state.kernel_derivatives, state.terms)
    units, count, n = data.prior.units, len(data.index), len(data.times)
    scales = np.repeat(units.scales, n)
    K = ((np.tril(K) + np.tril(K, -1).T) * np.outer(scales, scales)).reshape(count, n, count, n)
    times = data.times
    values = dict(zip(system.parameters, hyper.theta, strict=True)) | {"t_0": units.start, "T": units.time_scale}
    values |= {f"ell_{i}": ell * units.time_scale for i, ell in enumerate(hyper.lengthscales, 1)}
    values |= {f"sigma_{i}": sigma for i, sigma in enumerate(hyper.amplitudes, 1)}
    values |= {f"sigma_p{i}": sigma for i, sigma in enumerate(hyper.mode_amplitudes, 1)}
    symbols, numbers = [*map(sympy.Symbol, (*values, "t1", "t2"))], list(values.values())
    for i, j in {(0, 0), (0, count - 1), (count - 1, count // 2)}:
        formula = system.covariance(system.channels[i], system.channels[j], latent=latent)
        function = sympy.lambdify(symbols, formula, "mpmath")
        found = [complex(function(*numbers, times[a], times[b])) for a, b in ((0, 2), (1, 1))]
        size = np.sqrt(abs(K[i, :, i, :]).max() * abs(K[j, :, j, :]).max())
        np.testing.assert_allclose(found, [K[i, 0, j, 2], K[i, 1, j, 1]], rtol=0, atol=1e-9 * size)


def test_the_papers_bipendulum() -> None:
    """The (1, 1) entry that the paper shows, with lengths 1 and 2, for its own V."""
    d, g, ell, sigma = sympy.symbols("d g ell_1 sigma_1")
    system = lk.System("f1'' + g*f1 - u = 0; f2'' + g/2*f2 - u/2 = 0", parameters=["g"])
    column = sympy.Matrix([d**2 + g / 2, (d**2 + g) / 2, (d**2 + g / 2) * (d**2 + g)])
    order = [system.channels.index(name) for name in ("f1", "f2", "u")]
    basis = sympy.Matrix([column[order.index(i)] for i in range(3)])
    found = system.with_basis(basis).covariance("f1")
    x = t1 - t2
    shown = (
        sigma**2
        * sympy.exp(-(x**2) / (2 * ell**2))
        * (x**4 / ell**8 - 6 * x**2 / ell**6 + (3 + g * x**2) / ell**4 - g / ell**2 + g**2 / 4)
    )
    assert sympy.simplify(found - shown) == 0


def test_the_papers_modes() -> None:
    tanks = lk.catalog.three_tank().system.with_basis(["f1", "f2"])
    mode = sympy.Symbol("sigma_p1")
    free = [tanks.covariance(name).subs({mode: 0}) for name in ("f1", "f2")]
    assert sympy.simplify(tanks.covariance("f3") - free[0] - free[1] - mode**2) == 0
    decay = lk.System("x' = -2*x")
    assert sympy.simplify(decay.covariance("x").subs("t_0", 0) - mode**2 * sympy.exp(-2 * (t1 + t2))) == 0
    swing = lk.System("x'' + 9*x = 0").covariance("x", "x'")
    assert sympy.simplify(swing - mode**2 * sympy.cos(3 * (t1 - t2)).diff(t2)) == 0


def test_equations_hold_in_the_formula() -> None:
    system = lk.catalog.heating().system
    for other in system.channels:
        assert sympy.simplify(system.covariance("f2' + b*(f2 - f1)", other)) == 0


def test_a_parameter_may_have_the_name_of_a_symbol() -> None:
    system = lk.System("x' = -ell_1*x + u", parameters=["ell_1"])
    assert {str(symbol) for symbol in system.covariance("u").free_symbols} == {"t1", "t2", "ell_1", "ell_1_", "sigma_1"}


@pytest.mark.parametrize(
    ("latent", "message"),
    [
        ("matern-4/2", "no formula"),
        ("rbf", "no formula"),
        (["se", "se"], "one covariance for each"),
        ("matern-1/2", "smoother"),
        (None, "a covariance such as 'se', or a list of them, got NoneType"),
    ],
)
def test_what_has_no_formula_is_refused(latent: object, message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        lk.System("x' = v").covariance("v", latent=latent)  # type: ignore[arg-type]
