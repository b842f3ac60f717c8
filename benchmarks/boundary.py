"""Claim: a disturbance that is not there is found no more often than the p-value at the boundary says.

A lag with a known input, measured with noise, is fitted with a disturbance that it does not have. What is estimated
beside it (a gain, a rate to first order, an initial state) is projected out, so that thousands of samples take seconds:
the gain in log likelihood is that of the best deviation, and of the best lengthscale where there is one. P-values
should fall below any level no more often than that level says. ``--fits N`` asks lodekit itself, N times.

    python benchmarks/boundary.py [--samples N] [--fits N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from disturbances import discretise
from lodekit.uncertainty.variance_tests import chi_bar_p_value

Array = NDArray[np.float64]
RATE, GAIN, STEP, NOISE, ROWS = 0.3, 2.0, 0.5, 0.1, 100
LEVELS = (0.01, 0.05, 0.1, 0.2)
SHARES, LENGTHS = np.geomspace(1e-4, 30.0, 50), np.geomspace(0.15, 200.0, 14)


def covariance(length: float) -> Array:
    """Return that of the response to white noise (length zero), or to a Matern-1/2 process, from rest."""
    if not length:
        F, L, start, H = np.array([[-RATE]]), np.ones(1), np.zeros((1, 1)), np.array([1.0])
    else:
        F, L = np.array([[-1.0 / length, 0.0], [1.0, -RATE]]), np.array([np.sqrt(2.0 / length), 0.0])
        start, H = np.diag([1.0, 0.0]), np.array([0.0, 1.0])
    flow, noise = discretise(F, L, STEP)
    found, P = np.zeros((ROWS, ROWS)), start
    for i in range(ROWS):
        row = P @ H
        for j in range(i, ROWS):
            found[i, j] = found[j, i] = H @ row
            row = flow @ row
        P = flow @ P @ flow.T + noise
    return found


def gains(samples: Array, K: Array) -> Array:
    """Return what the best deviation gains in log likelihood, the level of noise learned anew, shape (n,)."""
    sizes, vectors = np.linalg.eigh(K)
    sizes = np.maximum(sizes, 0.0) / np.mean(np.diag(K))
    squares = (samples @ vectors) ** 2
    count, best = len(sizes), np.zeros(len(samples))
    without = -0.5 * count * np.log(squares.mean(axis=1))
    for share in SHARES:
        spread = 1.0 + share * sizes
        value = -0.5 * count * np.log((squares / spread).mean(axis=1)) - 0.5 * np.log(spread).sum()
        best = np.maximum(best, value - without)
    return best


def show(name: str, found: Array, *, coloured: bool) -> dict[str, float]:
    """Print how often p-values are below some levels, and return it."""
    values = np.array([chi_bar_p_value(float(gain) if gain > 1e-9 else 0.0, coloured=coloured) for gain in found])
    below = {str(level): float(np.mean(values < level)) for level in LEVELS}
    shares = ", ".join(f"{level}: {share:.1%}" for level, share in below.items())
    print(f"{name}: p-values below {shares}; best at zero in {np.mean(found <= 1e-9):.0%}")
    return below


def fit_nothing(kind: str, seed: int) -> float:
    """Return the p-value that lodekit gives to a disturbance that is not there."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.standard_normal(ROWS // 10), 10)
    x, decay = np.zeros(ROWS), np.exp(-RATE * STEP)
    for k in range(ROWS - 1):
        x[k + 1] = decay * x[k] + GAIN * u[k] * (1.0 - decay) / RATE
    data = {"x": x + NOISE * generator.standard_normal(ROWS), "u": u}
    system = lk.System("x' = -a*x + K*u + w", parameters=["a", "K"])
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"w": kind}, random_state=0)
    return gp.fit(np.linspace(0.0, STEP * (ROWS - 1), ROWS), data).disturbances_["w"].p_value


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--fits", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the shares to this file")
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((given.samples, ROWS))
    u, response = np.repeat(generator.standard_normal(ROWS // 10), 10), np.zeros(ROWS)
    decay = np.exp(-RATE * STEP * np.arange(ROWS))
    for k in range(ROWS - 1):
        response[k + 1] = decay[1] * response[k] + u[k]
    known = np.stack([decay, response, np.convolve(response, decay)[:ROWS]], axis=1)
    left = np.linalg.svd(known, full_matrices=True)[0][:, 3:]
    samples = samples @ left
    results = {"white": show("white", gains(samples, left.T @ covariance(0.0) @ left), coloured=False)}
    every = [gains(samples, left.T @ covariance(float(length)) @ left) for length in LENGTHS]
    results["matern"] = show("matern-1/2", np.max(every, axis=0), coloured=True)
    for kind in ("white", "matern-1/2") if given.fits else ():
        values = np.array([fit_nothing(kind, seed) for seed in range(given.fits)])
        print(f"{kind}, fitted: needed in {np.mean(values < 0.05):.1%} of {given.fits}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
