"""Simulated buildings with hidden states, three known inputs and a white disturbance in each equation.

Resistances, capacities, the size of disturbances and the noise are random; only the temperature of the air is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.fitting.lbfgs import maximize_lbfgs
from lodekit.fitting.objective import Objective

Array = NDArray[np.float64]
ROWS, STEP = 1700, 0.25
INPUTS = ("Ta", "Ps", "Ph")
#: Equation, and the state's neighbour by each conductance, by state; Ta is outside, Ps the sun, Ph the heater.
EQUATIONS = {
    2: ("Ci*Ti' = (Te - Ti)/Rie + Ai*Ps + Ph + w1", "Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea + w2"),
    3: (
        "Ci*Ti' = (Te - Ti)/Rie + (Th - Ti)/Rih + Ai*Ps + w1",
        "Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea + w2",
        "Ch*Th' = (Ti - Th)/Rih + Ph + w3",
    ),
    4: (
        "Ci*Ti' = (Te - Ti)/Rie + (Th - Ti)/Rih + (Tm - Ti)/Rim + Ai*Ps + w1",
        "Ce*Te' = (Ti - Te)/Rie + (Ta - Te)/Rea + w2",
        "Ch*Th' = (Ti - Th)/Rih + Ph + w3",
        "Cm*Tm' = (Ti - Tm)/Rim + w4",
    ),
}
#: Typical values, in hours, degrees and kilowatts.
TYPICAL = {"Ci": 1.0, "Ce": 8.0, "Ch": 0.3, "Cm": 4.0, "Rie": 1.0, "Rea": 5.0, "Rih": 0.6, "Rim": 0.8, "Ai": 0.8}


@dataclass(frozen=True)
class Building:
    """A simulated record: the system, the true parameters, times, and the columns of the log."""

    system: lk.System
    truth: dict[str, float]
    times: Array
    data: dict[str, Array]
    step_model: tuple[Array, Array, Array, float]

    @property
    def options(self) -> dict[str, Any]:
        """The options of a fit."""
        disturbances = {f"w{k + 1}": "white" for k in range(len(self.system.equations))}
        return {"inputs": dict.fromkeys(INPUTS, "hold"), "disturbances": disturbances, "random_state": 0}


def make_building(n_states: int, seed: int, rows: int = ROWS) -> Building:
    """Simulate a building exactly, from step to step."""
    generator = np.random.default_rng([seed, n_states])
    names = [name for name in TYPICAL if any(name in text for text in EQUATIONS[n_states])]
    truth = {name: float(TYPICAL[name] * np.exp(generator.uniform(-0.5, 0.5))) for name in names}
    capacities = [truth[name] for name in ("Ci", "Ce", "Ch", "Cm")[:n_states]]
    A, B = np.zeros((n_states, n_states)), np.zeros((n_states, 3))
    for name, other in (("Rie", 1), ("Rih", 2), ("Rim", 3)):
        if other < n_states:
            for i, j in ((0, other), (other, 0)):
                A[i, j] += 1.0 / truth[name] / capacities[i]
                A[i, i] -= 1.0 / truth[name] / capacities[i]
    A[1, 1] -= 1.0 / truth["Rea"] / capacities[1]
    B[1, 0] = 1.0 / truth["Rea"] / capacities[1]
    B[0, 1] = truth["Ai"] / capacities[0]
    heated = 2 if n_states > 2 else 0
    B[heated, 2] = 1.0 / capacities[heated]
    size = 10.0 ** generator.uniform(-1.5, -0.5, n_states)
    Phi, G, Q = discretize(A, B, np.diag((size / capacities) ** 2), STEP)
    t = STEP * np.arange(float(rows))
    u = np.stack(
        [
            5.0 + 5.0 * np.sin(2 * np.pi * t / 24) + 0.1 * np.cumsum(generator.standard_normal(rows)),
            np.clip(np.sin(2 * np.pi * (t / 24 - 0.25)), 0.0, None) * generator.uniform(0.3, 1.0, rows),
            np.repeat(generator.integers(0, 2, rows // 12 + 1), 12)[:rows] * 3.0,
        ]
    )
    root = np.linalg.cholesky(Q)
    x, states = np.full(n_states, 18.0), np.empty((rows, n_states))
    for k in range(rows):
        states[k] = x
        x = Phi @ x + G @ u[:, k] + root @ generator.standard_normal(n_states)
    noise = 10.0 ** generator.uniform(-2.5, -1.0)
    data = dict(zip(INPUTS, u, strict=True))
    data["Ti"] = states[:, 0] + noise * generator.standard_normal(rows)
    system = lk.System(list(EQUATIONS[n_states]), parameters=dict.fromkeys(names, lk.Parameter(positive=True)))
    return Building(system, truth, t, data, (Phi, G, Q, noise))


def discretize(A: Array, B: Array, intensity: Array, step: float) -> tuple[Array, Array, Array]:
    """Return transition, input gain and process noise of a step, by the matrix exponentials of Van Loan."""
    n, m = B.shape
    held, noise = np.zeros((n + m, n + m)), np.zeros((2 * n, 2 * n))
    held[:n, :n], held[:n, n:] = A, B
    noise[:n, :n], noise[:n, n:], noise[n:, n:] = -A, intensity, A.T
    both, flow = expm(step * held), expm(step * noise)
    return both[:n, :n], both[:n, n:], flow[n:, n:].T @ flow[:n, n:]


def plain_filter(building: Building) -> float:
    """Return the log likelihood by a plain Kalman filter, a loop over all rows, for scale."""
    (Phi, G, Q, noise), y = building.step_model, building.data["Ti"]
    u = np.stack([building.data[name] for name in INPUTS])
    m, P, value = np.full(len(Phi), 18.0), 100.0 * np.eye(len(Phi)), 0.0
    for k in range(len(y)):
        S, v = P[0, 0] + noise**2, y[k] - m[0]
        value -= 0.5 * (np.log(2 * np.pi * S) + v * v / S)
        gain = P[:, 0] / S
        m, P = Phi @ (m + gain * v) + G @ u[:, k], Phi @ (P - np.outer(gain, P[0])) @ Phi.T + Q
    return float(value)


def search_random_starts(building: Building, gp: lk.LODEGP, count: int) -> float:
    """Return the highest objective of searches from random starts: half of them near the truth, half anywhere."""
    fit, generator = gp.fit_, np.random.default_rng(0)
    layout, found = fit.layout, []
    names = [layout.names[n] for n in layout.free_parameters]
    for number in range(count):
        x = fit.optimum.x + generator.uniform(-2.0, 2.0, layout.size)
        reach, origin = (1.5, building.truth) if number % 2 else (2.3, TYPICAL)
        x[layout.slices.theta] = np.log([origin[name] for name in names]) + generator.uniform(-reach, reach, len(names))
        found.append(maximize_lbfgs(fit.setup.objective, x, tolerance=1e-2, max_iterations=300).value)
    return max(found)


def fit_building(building: Building, starts: int = 0, **options: Any) -> dict[str, Any]:
    """Return what a fit takes: processor time and gradients until the search ended, and until the summary is there.

    With a number of random starts, also the best objective that searches from there reach.
    """
    counts = {"gradients": 0, "values": 0}
    evaluate, value = Objective.evaluate, Objective.value

    def count(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Objective, x: Array) -> Any:
            counts[name] += 1
            return run(self, x)

        return counted

    with (
        threadpool_limits(1),
        patch.object(Objective, "evaluate", count("gradients", evaluate)),
        patch.object(Objective, "value", count("values", value)),
    ):
        begin = time.process_time()
        gp = lk.LODEGP(building.system, **building.options | options).fit(building.times, building.data)
        fitted, searched = time.process_time() - begin, dict(counts)
        gp.summary()
        whole = time.process_time() - begin
        begin = time.process_time()
        plain_filter(building)
        loop = time.process_time() - begin
        best = search_random_starts(building, gp, starts) if starts else float("nan")
    return {
        "objective": float(gp.fit_.optimum.value),
        "best_of_random_starts": best,
        "seconds": whole,
        "fit_seconds": fitted,
        "loop_seconds": loop,
        **{f"{name}_fit": number for name, number in searched.items()},
        **counts,
        "converged": bool(gp.converged_),
        "covered": {
            name: bool(gp.parameters_[name].interval[0] <= true <= gp.parameters_[name].interval[1])
            for name, true in building.truth.items()
        },
        "identified": sum(each.identified for each in gp.parameters_.values()),
    }
