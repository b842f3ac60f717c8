"""A lag that goes to zero and a coupling that goes to infinity: the fit says that the data do not need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import lodekit as lk

TIMES = 0.5 * np.arange(60.0)
INPUT = np.sign(np.sin(0.3 * TIMES) + 0.4 * np.sin(0.11 * TIMES))


def one_lag(gain: float, lag: float, noise: float) -> NDArray[np.float64]:
    """Return the response of one lag to the input, with noise."""
    y, decay = np.zeros(len(TIMES)), np.exp(-0.5 / lag)
    for k in range(len(TIMES) - 1):
        y[k + 1] = decay * y[k] + (1.0 - decay) * gain * INPUT[k]
    return y + noise * np.random.default_rng(1).standard_normal(len(TIMES))


def fit(equations: str, channel: str, *names: str) -> lk.LODEGP:
    """Return a fit of one lag with a gain of 2 and a time constant of 3."""
    system = lk.System(equations, parameters={name: lk.Parameter(positive=True) for name in names})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1)
    return gp.fit(TIMES, {channel: one_lag(2.0, 3.0, 0.05), "u": INPUT})


def test_a_second_lag_that_does_not_exist_is_not_needed() -> None:
    gp = fit("tau1*x' = K*u - x; tau2*y' = x - y", "y", "tau1", "K", "tau2")
    told = [text for text in gp.warnings_ if "explained without the state or coupling" in text]
    assert len(told) == 1
    assert told[0].startswith(("parameter tau2 tends to zero", "parameter tau1 tends to zero"))
    assert not any("widen its bounds" in text for text in gp.warnings_)
    # A parameter that reaches zero leaves the others identified; the two lags can be swapped.
    assert gp.parameters_["K"].identified
    assert abs(gp.parameters_["K"].value - 2.0) < 4.0 * gp.parameters_["K"].std_error


def test_a_coupling_that_does_not_exist_is_not_needed() -> None:
    gp = fit("C1*T' = u - T/R1 + (W - T)/R; 5*W' = (T - W)/R", "T", "C1", "R1", "R")
    told = [text for text in gp.warnings_ if "explained without the state or coupling" in text]
    assert any(text.startswith("parameter R tends to infinity") for text in told)
    assert gp.parameters_["R1"].identified
    assert gp.parameters_["C1"].identified
