"""Claim: a probabilistic solver and lodekit answer different questions, and how exactly each does.

The oscillator x'' + 0.4 x' + 4 x = 0 from exact initial values, over sixteen units of time. probdiffeq (pip install
probdiffeq[cpu]) integrates it and says how far off it may be; to lodekit the same is a fit to two exact measurements,
at known parameters. Both are compared with the closed solution.

    python benchmarks/comparison_solver.py [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from comparison import decay

Array = NDArray[np.float64]
TIMES = np.linspace(0, 16, 81)
TRUTH = decay(TIMES, 0.4, 4.0, 1.0, 0.8)


def by_lodekit() -> tuple[Array, Array]:
    system = lk.System("x'' + 0.4*x' + 4*x = 0")
    begin = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "x'", 0.8, 0.0)])
    found: tuple[Array, Array] = lk.LODEGP(system, random_state=0).fit(begin).predict(TIMES, "x", return_std=True)
    return found


def by_probdiffeq(tolerance: float) -> tuple[Array, Array]:
    import jax
    import jax.numpy as jnp
    from probdiffeq import ivpsolve, probdiffeq

    jax.config.update("jax_enable_x64", True)

    def rates(y: Any, /, *, t: Any) -> Any:
        del t
        return jnp.asarray([y[1], -4.0 * y[0] - 0.4 * y[1]])

    oscillator = probdiffeq.ode(rates)
    model = probdiffeq.state_space_model_dense()
    start, _ = probdiffeq.jetexpand_ode_padded_scan(num=4)(oscillator, (jnp.asarray([1.0, 0.8]),), t=0.0)
    constraint = model.constraint_ode_ts1(oscillator)
    solver = probdiffeq.solver_mle(strategy=probdiffeq.strategy_smoother_fixedpoint(), constraint=constraint)
    error = probdiffeq.error_residual_std(constraint=constraint)
    solve = jax.jit(ivpsolve.solve_adaptive_save_at(solver=solver, error=error))
    found = solve(model.prior_wiener_integrated(start), jnp.asarray(TIMES), atol=tolerance, rtol=tolerance)
    return np.asarray(found.u.mean[0][:, 0]), np.asarray(found.u.std[0][:, 0])


def show(name: str, answer: tuple[Array, Array], seconds: float) -> dict[str, float]:
    mean, std = answer
    off = np.abs(mean - TRUTH)
    row = {"largest error": float(off.max()), "largest deviation": float(std.max()), "seconds": seconds}
    row["within two deviations"] = float(np.mean(off <= 2 * std + 1e-15))
    print(f"{name}: " + ", ".join(f"{key} {value:.2g}" for key, value in row.items()))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    begin = time.process_time()
    results = {"lodekit": show("lodekit", by_lodekit(), time.process_time() - begin)}
    if importlib.util.find_spec("probdiffeq") is None:
        print("probdiffeq is not installed")
    else:
        for tolerance in (1e-3, 1e-6, 1e-9):
            begin = time.process_time()
            name = f"probdiffeq, tolerance {tolerance:g}"
            results[name] = show(name, by_probdiffeq(tolerance), time.process_time() - begin)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
