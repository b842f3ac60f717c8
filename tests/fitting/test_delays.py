"""Dead times: found from scans without a start value, and told by intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

import greybox_plants
import lodekit as lk
from lodekit.fitting.hessian import invert_information, observed_information, observed_information_across_kinks
from lodekit.fitting.starts.weak_form import build_delay_grid, bump_quadrature, held_bump_quadrature

Array = NDArray[np.float64]


def delayed_record(seed: int, delay: float = 2.3, noise: float = 0.02) -> tuple[Array, dict[str, Array]]:
    """A first-order lag under random steps that act later, simulated on a grid on which the delay falls."""
    generator = np.random.default_rng(seed)
    fine = 0.1 * np.arange(2000)
    u = np.repeat(generator.choice([0.0, 1.0], size=200 // 10), 10)
    late = u[np.maximum(np.floor(fine - delay + 1e-9).astype(int), 0)]
    y, decay = np.zeros(len(fine)), np.exp(-0.1 / 6.0)
    y[0] = late[0] * 2.0
    for k in range(len(fine) - 1):
        y[k + 1] = decay * y[k] + (1 - decay) * 2.0 * late[k]
    return np.arange(200.0), {"y": y[::10] + noise * generator.normal(size=200), "u": u}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_dead_time_between_samples_is_found_without_a_start(seed: int) -> None:
    """Within three standard errors, which are below a tenth of a sampling step."""
    times, table = delayed_record(seed)
    parameters = {name: lk.Parameter(positive=True) for name in ("tau", "K", "T")}
    system = lk.System("tau*y' + y = K*delay(u, T)", parameters=parameters)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, table)
    for name, truth in (("tau", 6.0), ("K", 2.0), ("T", 2.3)):
        found = gp.parameters_[name]
        assert abs(found.value - truth) < 3 * found.std_error
    assert gp.parameters_["T"].std_error < 0.1
    # Also with no seed: corners of curves are where the delays of the same draws have them.
    certificate = gp.certificate(np.linspace(3.0, 190.0, 41) + 0.0123, random_state=[0, None][seed])
    assert certificate.is_strict
    assert certificate.samples is not None
    assert certificate.samples.residual < 1e-6


def test_scans_reach_from_half_a_step_to_a_good_share_of_the_record() -> None:
    grid = build_delay_grid(np.linspace(0.0, 50.0, 501))
    assert grid[0] == pytest.approx(0.05)
    assert 10.0 < grid[-1] <= 15.0
    assert len(build_delay_grid(np.zeros(4))) == 0


@pytest.mark.parametrize("order", [0, 1, 2])
def test_held_inputs_are_integrated_exactly(order: int) -> None:
    """Against straight lines between many more samples, whose corners are what differs: 1e-4 of a step wide."""
    times, values = np.array([-0.3, 0.1, 0.35, 0.8]), np.array([1.0, -2.0, 0.5, 3.0])
    centres = np.array([0.2, 0.5])
    found = held_bump_quadrature(times, centres, 0.4, 4, order) @ values
    fine = np.unique(np.concatenate([np.linspace(-1.0, 2.0, 1001), times, times - 1e-5]))
    held = values[np.maximum(np.searchsorted(times, fine, side="right") - 1, 0)]
    expected = bump_quadrature(fine, centres, 0.4, 4, order) @ held
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


class Roof:
    """Minus a parabola in two variables, with a kink in the first at zero: slopes of 40 and -120 meet there."""

    parabola = np.array([[9000.0, 2000.0], [2000.0, 1000.0]])
    up, down = 40.0, 120.0

    def evaluate(self, x: Array) -> tuple[float, Array]:
        first = float(x[0])
        slope = self.up if first <= 0.0 else -self.down
        value = slope * first - 0.5 * float(x @ self.parabola @ x)
        return value, np.array([slope, 0.0]) - self.parabola @ x


def test_errors_at_a_kink_are_those_of_how_far_the_evidence_falls() -> None:
    """The profile is known in closed form: both ends of 95 % together are as far apart, to a tenth."""
    roof, keep, x = Roof(), np.ones(2, dtype=bool), np.array([-1e-9, 0.0])
    narrow = observed_information(roof, x)  # type: ignore[arg-type]
    found = observed_information_across_kinks(roof, x, narrow, keep, [0])  # type: ignore[arg-type]
    inner = 9000.0 - 2000.0**2 / 1000.0
    ends = [(-slope + np.sqrt(slope**2 + 2.0 * inner * 1.9207)) / inner for slope in (roof.up, roof.down)]
    error = np.sqrt(invert_information(found, keep)[0, 0])
    assert 2.0 * 1.96 * error == pytest.approx(sum(ends), rel=0.1)
    # What steps across the kink have measured may as well be far too flat.
    flat = observed_information_across_kinks(roof, x, 0.03 * roof.parabola, keep, [0])  # type: ignore[arg-type]
    np.testing.assert_allclose(flat, found, rtol=0.1)
    # Without a kink nothing changes, nor where it is no delay.
    assert observed_information_across_kinks(roof, x, narrow, keep, []) is narrow  # type: ignore[arg-type]
    roof.up, roof.down = 0.0, 0.0
    assert observed_information_across_kinks(roof, x, roof.parabola, keep, [0]) is roof.parabola  # type: ignore[arg-type]


def test_a_dead_time_that_is_best_at_a_multiple_of_the_sampling_time_has_an_error() -> None:
    """Steps arrive just when something is measured: what the evidence falls by at the ends of the interval counts."""
    generator, times = np.random.default_rng(14), np.arange(30.0)
    u, noise = np.repeat([0.0, 2.0, 1.0, 3.0, 0.0, 2.0], 5), 0.05
    y, wander = noise * generator.standard_normal(30), 0.0
    for begin, jump in zip(times, np.diff(u, prepend=0.0), strict=True):
        y += 2.0 * jump * (1.0 - np.exp(-np.maximum(times - begin - 2.98, 0.0) / 5.0))
    for k in range(30):
        y[k] += wander
        wander = np.exp(-0.2) * wander + 0.03 * generator.standard_normal()
    system = lk.System("5*y' + y = 2*delay(u, T) + w", parameters={"T": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
    gp.fit(times, {"y": y, "u": u}, noise_std={"y": noise})
    found, fit = gp.parameters_["T"], gp.fit_
    assert found.value == pytest.approx(3.0, abs=1e-4)
    assert found.interval[0] < 2.98 < found.interval[1]
    assert 0.01 < found.std_error < 0.1
    place, falls = fit.layout.index_of("T"), []
    for edge in found.interval:
        x = fit.optimum.x.copy()
        x[place] = np.log(edge)
        falls.append(fit.optimum.value - fit.setup.objective.value(x))
    assert 1.0 < np.mean(falls) < 5.0


def test_a_delay_below_the_sampling_interval_is_found_beside_a_disturbance() -> None:
    """The search ended at a delay of zero, nine nats lower, or far away, where the input is best without effect."""
    generator, n, fine, tau, T = np.random.default_rng(0), 400, 50, 9.0, 0.3
    u, decay = generator.uniform(0.0, 1.0, n), np.exp(-1.0 / (fine * tau))
    later = np.concatenate([np.full(round(T * fine), u[0]), np.repeat(u, fine)])[: n * fine]
    moves = -1.7 * (1.0 - decay) * later + 0.5 / tau / np.sqrt(fine) * generator.standard_normal(n * fine)
    states, _ = lfilter([1.0], [1.0, -decay], moves, zi=[decay * -1.7 * u[0]])
    y = 35.0 + np.concatenate([[-1.7 * u[0]], states])[: n * fine : fine] + 0.05 * generator.standard_normal(n)
    parameters = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(), "T": lk.Parameter(bounds=(0, 10))}
    system = lk.System("tau*y' = K*delay(u, T) + y0 - y + w", parameters=parameters | {"y0": lk.Parameter()})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
    fit = gp.fit(np.arange(float(n)), {"y": y, "u": u}).fit_
    found = dict(zip(fit.layout.names, fit.hyperparameters.theta, strict=True))
    assert 0.1 < found["T"] < 0.6
    assert -2.5 < found["K"] < -1.2
    x = fit.optimum.x.copy()
    x[fit.layout.index_of("T")] = fit.layout.transforms[fit.layout.names.index("T")].inverse(1e-6)
    assert fit.setup.objective.value(x) < fit.optimum.value


def test_a_dead_time_below_the_steps_of_a_thinned_record_is_found() -> None:
    """Starts on every eighth row had delays of four samples and more, and the search ended 3,134 nats too low."""
    gp = greybox_plants.fit_nested(141, random_state=1)
    assert gp.parameters_["T"].value == pytest.approx(1.4, abs=0.1)
