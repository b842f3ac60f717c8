"""Dead times: found from scans without a start value, and told by intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.learning.guesses.delays import delay_grid
from lodekit.learning.guesses.weak import bump_integrals, step_integrals

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
    grid = delay_grid(np.linspace(0.0, 50.0, 501))
    assert grid[0] == pytest.approx(0.05)
    assert 10.0 < grid[-1] <= 15.0
    assert len(delay_grid(np.zeros(4))) == 0


@pytest.mark.parametrize("order", [0, 1, 2])
def test_held_inputs_are_integrated_exactly(order: int) -> None:
    """Against straight lines between many more samples, whose corners are what differs: 1e-4 of a step wide."""
    times, values = np.array([-0.3, 0.1, 0.35, 0.8]), np.array([1.0, -2.0, 0.5, 3.0])
    centres = np.array([0.2, 0.5])
    found = step_integrals(times, centres, 0.4, 4, order) @ values
    fine = np.unique(np.concatenate([np.linspace(-1.0, 2.0, 1001), times, times - 1e-5]))
    held = values[np.maximum(np.searchsorted(times, fine, side="right") - 1, 0)]
    expected = bump_integrals(fine, centres, 0.4, 4, order) @ held
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
