"""Stepped inputs are noticed, and nothing else is."""

from __future__ import annotations

import numpy as np

import lodekit as lk
from lodekit.data.preview import describe_steps


def test_no_solution_of_the_catalog_is_called_stepped() -> None:
    for example in lk.catalog.examples():
        for noise in (0.0, 0.05):
            table = example.solution_at(np.linspace(0, 10, 100))
            table = table + noise * np.std(table, axis=0) * np.random.default_rng(1).standard_normal(table.shape)
            assert not any(describe_steps(column) for column in table.T), example.name


def test_a_fit_tells_of_a_stepped_input_and_says_what_to_do() -> None:
    times = np.linspace(0, 40, 81)
    u = np.where(times < 10, 0.0, np.where(times < 25, 2.0, 1.0))
    y = np.zeros_like(times)
    for k, step in enumerate(np.diff(times)):
        y[k + 1] = y[k] + (1 - np.exp(-step / 5)) * (3 * u[k] - y[k])
    data = {"u": u, "y": y + 0.02 * np.random.default_rng(0).standard_normal(81)}
    parameters = {name: lk.Parameter(positive=True) for name in ("tau", "K")}
    system = lk.System("tau*y' + y = K*u", parameters=parameters)
    free = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    # A smooth function between steps leaves innovations that resemble each other.
    correlated, stepped = free.warnings_
    assert "of u are correlated" in correlated
    assert stepped.startswith("u is stepped")
    assert "its learned noise" in stepped
    assert "half a sampling step (0.25)" in stepped
    for cure in ('inputs={"u": "hold"}', "--input u=hold", 'u = "hold" under [inputs]'):
        assert cure in stepped
    assert "u is stepped" in free.summary()
    # Where the noise of u is known, none of it was learned.
    known = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data, noise_std={"u": 0.05})
    (told,) = (text for text in known.warnings_ if text.startswith("u is stepped"))
    assert "learned noise" not in told
