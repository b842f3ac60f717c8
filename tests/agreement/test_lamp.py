"""The lamp record: a textbook Kalman filter as a witness of what disturbances do, and of its verdict."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from disturbances import lamp_system, ljung_box, witness
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.diagnostics.residual_tests import ljung_box_test
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.inference.innovations import create_filter
from lodekit.inference.selection import ENGINES
from lodekit.prior.prior import Hyperparameters
from tests.real_records import RECORDS, needs

Array = NDArray[np.float64]
RECORD = "daisy_heating_system.dat"
pytestmark = needs(RECORD)
#: Logarithms of time constants and of the deviation of the noise over that of the disturbance, where the likelihood is
#: greatest: with one lag there is no noise.
ONE, TWO = np.log([63.547, 1e-6]), np.log([49.568, 4.9424, 2.657e-3])


@pytest.fixture(scope="module")
def record() -> tuple[Array, Array, Array]:
    t, u, y = np.loadtxt(RECORDS / RECORD).T
    return t, u, y


@pytest.mark.parametrize(
    ("best", "value", "lag", "statistic", "steps"),
    [(ONE, -524.955, 0.64, 624, [0.005]), (TWO, -156.874, 0.02, 96, [0.02, 0.02, 0.1])],
)
def test_the_witness_is_at_its_best(
    record: tuple[Array, Array, Array], best: Array, value: float, lag: float, statistic: float, steps: list[float]
) -> None:
    """-525 and -157: with one lag innovations are far from white, with two nearly, but not by Ljung and Box (31)."""
    t, u, y = record
    found, innovations, _, _ = witness(best, u, y, t[1] - t[0])
    assert found == pytest.approx(value, abs=0.02)
    for place, step in enumerate(steps):
        for sign in (1, -1):
            assert witness(best + sign * step * np.eye(len(best))[place], u, y, t[1] - t[0])[0] < found
    told = ljung_box(innovations, 20)
    assert told[0] == pytest.approx(lag, abs=0.01)
    assert told[1] == pytest.approx(statistic, abs=1.0)


@pytest.mark.parametrize("best", [ONE, TWO])
def test_a_white_disturbance_is_what_the_witness_says(record: tuple[Array, Array, Array], best: Array) -> None:
    """At the values of the witness: the same innovations, likelihood and verdict, but for what is known of the start.

    Tolerance: the initial state has a prior here, ten thousand times as wide as the record.
    """
    t, u, y = record
    value, expected, (gain, offset), level = witness(best, u, y, t[1] - t[0])
    system = lamp_system(len(best) - 1)
    measurements = Measurements.from_observations(Observations().add(t, "y", y).add(t, "u", u)).with_known_inputs(
        {"u": "hold"}
    )
    setup = build_setup(system, FitSettings(inputs={"u": "hold"}, disturbances={"w": "white"}), measurements)
    values = {"K": gain, "y0": offset, **dict(zip(("tau", "s"), np.exp(best[:-1]), strict=False))}
    hyper = Hyperparameters(
        np.array([values[name] for name in setup.layout.names]),
        np.zeros(0),
        np.zeros(0),
        np.full(len(setup.prior.groups), 1e4),
        np.array([level * max(np.exp(best[-1]), 1e-5)]),
        disturbance_amplitudes=np.array([level]),
    )
    turns = create_filter(ENGINES["markov"], setup.prior, measurements.series)(hyper)
    assert turns is not None
    np.testing.assert_allclose(turns.standardized[2:], expected[2:], rtol=0, atol=1e-3)
    if len(best) == 2:
        assert setup.engine.value(hyper) + np.log(turns.std[0]) == pytest.approx(value, abs=0.02)
        told = ljung_box_test(t, turns.standardized, innovations=True)
        assert told is not None
        assert told.is_correlated
        assert told.lags[0] == pytest.approx(0.64, abs=0.01)


def test_a_fit_finds_the_best_of_the_witness_without_start_values(record: tuple[Array, Array, Array]) -> None:
    """Two lags, of every fourth row: a search that loses one of them ends at -343.7. Within 10, as it has a prior."""
    t, u, y = (column[::4] for column in record)
    gp = lk.LODEGP(lamp_system(2), inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
    gp.fit(t, {"u": u, "y": y})
    found = {name: each.value for name, each in gp.parameters_.items()}
    ratio = gp.noise_["y"] / gp.disturbances_["w"].deviation
    # Which of both lags comes first does not show, but the witness starts in another way then.
    fast, slow = sorted((found["s"], found["tau"]))
    value, _, (gain, offset), _ = witness(np.log([slow, fast, ratio]), u, y, t[1] - t[0])
    # The witness is best without noise, of which a weak prior expects some.
    assert value == pytest.approx(-305.04, abs=1.0)
    assert gp.log_evidence_ == pytest.approx(-305.04, abs=10.0)
    assert (found["K"], found["y0"]) == pytest.approx((gain, offset), rel=0.02)
