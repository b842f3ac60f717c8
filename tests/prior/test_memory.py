"""What would not fit into memory under the channel prior is refused, and users get words."""

from __future__ import annotations

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import FitError
from lodekit.prior.channel_prior import lag_covariance, quadrature
from lodekit.prior.channel_prior.lag_covariance import TimeLags
from lodekit.prior.channel_prior.quadrature import build_frequency_panels, build_gauss_rule
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.spectra import SpectralPoint


def point_of(count: int, lengthscale: float) -> SpectralPoint:
    """Channels that no equation binds, each a free function."""
    free = np.eye(count)[:, :, None]
    return SpectralPoint(free, free, np.full(count, lengthscale), np.ones(count))


def test_a_window_of_very_many_lengthscales_is_refused() -> None:
    """Of 1/600 of the window, waves at all points of the series would be some fifty million numbers."""
    found, noise = TimeLags(np.linspace(0.0, 1.0, 5)), np.array([1e-4])
    assert found.covariance(point_of(1, 0.01), noise) is not None
    assert found.covariance(point_of(1, 1 / 600), noise) is None


def test_many_free_functions_take_no_short_lengthscales() -> None:
    assert build_frequency_panels(point_of(40, 0.5), 1.0) is not None
    assert build_frequency_panels(point_of(4, 0.01), 1.0) is not None
    assert build_frequency_panels(point_of(40, 0.01), 1.0) is None


def test_a_rule_of_too_many_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = point_of(1, 0.05)
    found = build_frequency_panels(point, 1.0)
    assert found is not None
    own, shares = ConditionedDensity(found.frequencies, point), np.array([1e-10])
    rule = build_gauss_rule(own, found.weights, 1.0, shares, 2000)
    assert rule is not None
    numbers = rule[1].size
    # The limit is that of the numbers; below it, the number of waves makes no difference.
    monkeypatch.setattr(quadrature, "MAX_LANCZOS_ENTRIES", numbers)
    assert build_gauss_rule(own, found.weights, 1.0, shares, 2000) is not None
    monkeypatch.setattr(quadrature, "MAX_LANCZOS_ENTRIES", numbers - 1)
    assert build_gauss_rule(own, found.weights, 1.0, shares, 2000) is None


def test_bases_of_a_search_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes have room here: the one that was not asked for lately goes, and is made again in the same way."""
    found, count = TimeLags(np.linspace(0.0, 1.0, 9)), 9 * 9
    monkeypatch.setattr(lag_covariance, "MAX_CACHE_ENTRIES", 50 * count)
    ((_, first, _),) = found.iterate_basis(20)
    ((_, again, _),) = found.iterate_basis(20)
    assert again is first
    for size in (24, 26):
        list(found.iterate_basis(size))
    ((_, later, _),) = found.iterate_basis(20)
    assert later is not first
    monkeypatch.setattr(lag_covariance, "MAX_CACHED_BASIS_ENTRIES", 20 * count - 1)
    parts = list(found.iterate_basis(20))
    assert len(parts) == 2
    for each in (later, np.concatenate([even for _, even, _ in parts], axis=1)):
        np.testing.assert_allclose(each, first, rtol=0, atol=1e-14)


@pytest.mark.parametrize("engine", ["dense", "spectral"])
def test_a_fit_that_nothing_has_room_for_says_so(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.linspace(0.0, 3.0, 6)
    gp = lk.LODEGP(lk.System("x' = -x + u"), prior="channels", engine=engine, random_state=0)
    monkeypatch.setattr(quadrature, "MAX_PANEL_ENTRIES", 100)
    with pytest.raises(FitError, match=r"Fourier features.*prior='latent'"):
        gp.fit(times, {"x": np.sin(times), "u": np.cos(times)})
