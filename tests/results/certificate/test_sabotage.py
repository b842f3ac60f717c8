"""Every part that curves are made of, spoilt one at a time after the fit: the certificate must notice each.

The closed form cannot: it takes its derivatives from the same spoilt parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.records import Scaling
from lodekit.inference.spectral import regression
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.kernels import Matern, SquaredExponential
from lodekit.prior.observables import Observables
from lodekit.results.prediction import predict
from tests.inference.fitted import EXAMPLES, keep_model

PART = 1e-3
ASKED = np.linspace(0.0, 6.0, 40)


@dataclass(frozen=True)
class Sabotage:
    """What is spoilt, where, and how; a model of `system` with `options` is right before."""

    what: str
    system: str
    spoil: Callable[[pytest.MonkeyPatch], None]
    options: dict[str, Any]


def wrap(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a function that lets `change` see each result of a method, with its arguments."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kwargs: change(original(*args, **kwargs), *args))

    return spoil


def tilt_derivatives(found: Iterator[Any], *_: Any) -> Iterator[Any]:
    return (part * (1 + 0.3 * m) for m, part in enumerate(found))


def change_coefficients(found: Any, *_: Any) -> Any:
    free = found.free.copy()
    free[0, ..., -1] *= 1 + PART
    free[0, ..., 0] *= 1 - PART
    return replace(found, values=replace(found.values, free=free))


def change_first_basis(found: Any, *_: Any) -> Any:
    basis, slopes = found
    return [basis[0] * (1 + PART), *basis[1:]], slopes


def turn_basis(found: Any, self: Observables, values: Any, groups: Any, times: Any) -> Any:
    """All channels alike, but in a time that runs too fast."""
    basis, slopes = found
    return [part * np.exp(PART * 20 * times)[:, None] for part in basis], slopes


def change_means(found: Any, *_: Any) -> Any:
    means, slopes = found
    return [part * (1 + PART) for part in means], slopes


def change_scales(found: Scaling, *_: Any) -> Scaling:
    scales = found.scales.copy()
    scales[0] *= 1 + PART
    return replace(found, scales=scales)


def change_scalars(found: Any, *_: Any) -> Any:
    values, slopes = found
    return values * (1 + PART * np.arange(len(values))), slopes


def tune_waves(patch: pytest.MonkeyPatch) -> None:
    original = regression.fourier_basis
    patch.setattr("lodekit.inference.spectral.posterior.fourier_basis", lambda f, t: original(f * (1 + PART), t))


WAVES, ROUGH = {"engine": "spectral"}, {"latent": "matern-13/2"}
SABOTAGES = [
    Sabotage("derivatives of the covariance", "heating", wrap(SquaredExponential, "derivatives", tilt_derivatives), {}),
    Sabotage("derivatives of a rough one", "heating", wrap(Matern, "derivatives", tilt_derivatives), ROUGH),
    Sabotage("coefficients of the free functions", "heating", wrap(Observables, "evaluate", change_coefficients), {}),
    Sabotage("coefficients on waves", "bipendulum", wrap(Observables, "evaluate", change_coefficients), WAVES),
    Sabotage("frequencies of waves", "bipendulum", tune_waves, WAVES),
    Sabotage("one channel of the modes", "oscillator", wrap(Observables, "mode_basis", change_first_basis), {}),
    Sabotage("exponents of the modes", "free_decay", wrap(Observables, "mode_basis", turn_basis), {}),
    Sabotage("the particular solution", "shaken_oscillator", wrap(Observables, "means", change_means), {}),
    Sabotage("scales of channels", "heating", wrap(Scaling, "unscaled", change_scales), {}),
    Sabotage("numbers behind exact scalars", "bipendulum", wrap(ScalarFunctions, "evaluate", change_scalars), {}),
]


def model_of(name: str, **options: Any) -> lk.LODEGP:
    """Return a model of noisy data, at the true values where the catalog knows them."""
    times = np.linspace(0.0, 6.0, 25)
    if name in EXAMPLES:
        return keep_model(EXAMPLES[name], times, 0.02, level=0.02, **options)
    table = np.stack([np.cos(2 * times), -2 * np.sin(2 * times)], axis=1)
    table = table + 0.02 * np.random.default_rng(1).standard_normal(table.shape)
    return lk.LODEGP(lk.System("x' = v; v' = -4*x"), random_state=0, restarts=1, **options).fit(times, table)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=[item.what for item in SABOTAGES])
def test_sabotage_is_noticed(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    gp = model_of(sabotage.system, **sabotage.options)
    before = gp.certificate(ASKED, samples=1)
    assert before.is_strict
    with monkeypatch.context() as patch:
        sabotage.spoil(patch)
        after = gp.certificate(ASKED, samples=1)
    assert not after.is_strict
    # Found by its own uncertainty, not by chance.
    assert after.mean.residual > 10 * after.mean.uncertainty
    assert gp.certificate(ASKED, samples=1).is_strict


def test_the_closed_form_is_blind_to_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the certificate measures: A B = 0 cancels whatever numbers stand for the derivatives of a free function."""
    gp = model_of("heating")
    wrap(SquaredExponential, "derivatives", tilt_derivatives)(monkeypatch)
    assert np.abs(gp.residual(ASKED, relative=True)).max() < 1e-9
    assert gp.certificate(ASKED, samples=0).residual > 1e-3


def test_an_equation_that_was_read_wrongly_is_noticed() -> None:
    """The equations come from the text: a fault between text and operator cannot hide."""
    right, wrong = lk.System("x'' + 0.3*x' + 4*x = u"), lk.System("x'' - 0.3*x' + 4*x = u")
    vars(wrong)["_equations"] = right.written
    times = np.linspace(0.0, 6.0, 30)
    gp = lk.LODEGP(wrong, random_state=0).fit(times, {"x": np.sin(times), "u": np.cos(times)})
    assert np.abs(gp.residual(times, relative=True)).max() < 1e-9
    found = gp.certificate(ASKED, samples=1)
    assert not found.is_strict
    assert found.residual > 0.01


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_known_inputs_that_differ_from_their_samples_are_noticed(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A common factor on all channels satisfies linear equations: only samples of the input show it."""
    times = np.linspace(0.0, 6.0, 30)
    gp = lk.LODEGP(lk.System("x' = -x + u"), inputs={"u": kind}, random_state=0, restarts=1)
    gp.fit(times, {"x": 0.5 * (np.sin(times) - np.cos(times)), "u": np.sin(times)})
    before = gp.certificate(ASKED, samples=0)
    assert before.is_strict
    assert "known inputs differ from what was logged by at most 0.0e+00" in str(before)
    monkeypatch.setattr("lodekit.results.certificate.predict", lambda *args: (1 + 1e-9) * predict(*args))
    after = gp.certificate(ASKED, samples=0)
    assert after.mean.residual < 1e-10
    assert after.input_error == pytest.approx(1e-9, rel=1e-3)
    assert not after.is_strict
