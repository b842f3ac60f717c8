"""Claims: the tables of docs/comparison.md, for tools that can be installed beside lodekit.

Two systems with a known truth are simulated, and identified from noisy data by lodekit, by least squares on simulated
curves that begin at the truth, by PySINDy (pip install pysindy), and by a smoothing Gaussian process in GPyTorch whose
derivatives are put into the equation. What is not installed is left out.

    python benchmarks/comparison.py [--seeds N] [--json FILE]
    python benchmarks/comparison.py --only-docs     # tables of the page, from benchmarks/results/comparison*.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.signal import savgol_filter
from scipy.stats import t as student

import lodekit as lk

Array = NDArray[np.float64]
#: Deviations of the noise, relative to that of the curve.
LEVELS = (0.02, 0.1, 0.3)
#: Rows that are smoothed together before PySINDy differentiates.
WINDOWS = (5, 7, 9, 11, 13)
PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
RESULTS = Path(__file__).parent / "results"
NAMES = ("comparison", "comparison_school", "comparison_solver")


@dataclass(frozen=True)
class Task:
    """Noisy data of a known curve, and the time after them.

    Parameters
    ----------
    truth : dict of str to float
    t, y, u : arrays, shape (n,)
        Times, noisy values and the known input; all zero where there is none.
    later, input_later : arrays, shape (m,)
        Times that were not measured, and the input then.
    curve, curve_later : arrays
        The truth at these times.
    """

    truth: dict[str, float]
    t: Array
    y: Array
    u: Array
    later: Array
    input_later: Array
    curve: Array
    curve_later: Array


@dataclass(frozen=True)
class Found:
    """What a tool says: parameters, intervals where it has any, and curves at both stretches of time.

    Parameters
    ----------
    values : dict of str to float
    intervals : dict of str to (float, float), or None
    curve, curve_later : arrays, or None
    residual : function, or None
        Returns what the curve leaves of the equation at these parameters, relative to its terms.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]] | None = None
    curve: Array | None = None
    curve_later: Array | None = None
    residual: Callable[[], float] | None = None


def decay(t: Array, c: float, k: float, begin: float, speed: float) -> Array:
    """The solution of x'' + c x' + k x = 0, whatever its roots."""
    root = np.sqrt(complex(c * c / 4 - k))
    swing = np.where(abs(root) < 1e-12, t, np.sinh(root * t) / (root if abs(root) >= 1e-12 else 1.0))
    wave = np.exp(-c * t / 2) * (begin * np.cosh(root * t) + (speed + c * begin / 2) * swing)
    return np.asarray(wave.real, dtype=float)


def lag(t: Array, u: Array, tau: float, K: float, begin: float) -> Array:
    """The solution of tau y' + y = K u with held inputs."""
    found = [begin]
    for step, held in zip(np.diff(t), u[:-1], strict=True):
        found.append(K * held + (found[-1] - K * held) * np.exp(-step / tau))
    return np.array(found)


def make_decay(level: float, seed: int) -> Task:
    t, later, none = np.linspace(0, 8, 40), np.linspace(8.2, 16, 40), np.zeros(40)
    curve, after = (decay(s, 0.4, 4.0, 1.0, 0.8) for s in (t, later))
    noise = level * curve.std() * np.random.default_rng(seed).standard_normal(40)
    return Task({"c": 0.4, "k": 4.0}, t, curve + noise, none, later, none, curve, after)


def make_lag(level: float, seed: int) -> Task:
    generator = np.random.default_rng(seed)
    t = np.arange(120.0)
    u = np.repeat(generator.uniform(0, 3, 12), 10)
    curve = lag(t, u, 5.0, 2.0, 1.0)
    y = curve[:60] + level * curve[:60].std() * generator.standard_normal(60)
    return Task({"tau": 5.0, "K": 2.0}, t[:60], y, u[:60], t[60:], u[60:], curve[:60], curve[60:])


DECAY, LAG = "x'' + c*x' + k*x = 0", "tau*y' + y = K*u"
SYSTEMS: dict[str, Callable[[float, int], Task]] = {DECAY: make_decay, LAG: make_lag}


def by_lodekit(text: str, task: Task) -> Found:
    """Equations as text, nothing else: no start values."""
    system = lk.System(text, parameters={name: lk.Parameter(positive=True) for name in task.truth})
    if text == DECAY:
        gp = lk.LODEGP(system, random_state=0).fit(task.t, {"x": task.y})
        curve, after = gp.predict(task.t, "x"), gp.predict(task.later, "x")
    else:
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(task.t, {"y": task.y, "u": task.u})
        times, inputs = np.append(task.t, task.later), np.append(task.u, task.input_later)
        curve = gp.predict(task.t, "y")
        after = gp.simulate(task.later, {"u": (times, inputs)}, start="end", observable="y")
    values = {name: found.value for name, found in gp.parameters_.items()}
    intervals = {name: found.interval for name, found in gp.parameters_.items()}
    return Found(values, intervals, curve, after, lambda: float(gp.certificate().residual))


def by_least_squares(text: str, task: Task) -> Found:
    """Simulated curves, begun at the true parameters and the true initial state: nobody has better start values."""

    def driven(t: Array, tau: float, K: float, begin: float) -> Array:
        return lag(t, np.append(task.u, task.input_later)[: len(t)], tau, K, begin)

    curve: Callable[..., Array] = decay if text == DECAY else driven
    start = [*task.truth.values(), *((1.0, 0.8) if text == DECAY else (1.0,))]
    best, spread = curve_fit(curve, task.t, task.y, p0=start)
    reach = student.ppf(0.975, len(task.t) - len(best)) * np.sqrt(np.diag(spread))
    whole = curve(np.append(task.t, task.later), *best)
    names, n = list(task.truth), len(task.t)
    values = dict(zip(names, best.tolist(), strict=False))
    intervals = {name: (b - r, b + r) for name, b, r in zip(names, best.tolist(), reach.tolist(), strict=False)}
    return Found(values, intervals, whole[:n], whole[n:], lambda: 0.0)


def by_pysindy(text: str, task: Task) -> Found:
    """Sparse regression with the linear terms of the equation and no others."""
    import pysindy as ps

    options = {
        "optimizer": ps.STLSQ(threshold=0.0, alpha=0.0),
        "feature_library": ps.PolynomialLibrary(degree=1, include_bias=False),
    }
    times, step = np.append(task.t, task.later), task.t[1] - task.t[0]
    if text == DECAY:
        # Derivatives of smoothed data. Among several windows the best is taken, by the truth: a user has to guess it.
        tries = []
        for window in WINDOWS:
            state = [savgol_filter(task.y, window, 3, deriv=order, delta=step) for order in (0, 1)]
            smooth = ps.SmoothedFiniteDifference(smoother_kws={"window_length": window, "polyorder": 3})
            model = ps.SINDy(**options, differentiation_method=smooth)
            model.fit(np.stack(state, axis=1), t=step)
            k, c = model.coefficients()[1].tolist()
            off = abs(-c / task.truth["c"] - 1) + abs(-k / task.truth["k"] - 1)
            tries.append((off, {"c": -c, "k": -k}))
        values = min(tries, key=lambda item: item[0])[1]
        modes = [decay(times, values["c"], values["k"], *begin) for begin in ((1.0, 0.0), (0.0, 1.0))]
        driven = np.zeros(len(times))
    else:
        # In discrete time: with held inputs the next row is linear in this one, and nothing is differentiated.
        model = ps.DiscreteSINDy(**options)
        model.fit(task.y[:, None], t=step, u=task.u[:, None])
        factor, gain = model.coefficients()[0].tolist()
        values = {"tau": float(-step / np.log(factor)), "K": gain / (1 - factor)}
        driven = lag(times, np.append(task.u, task.input_later), values["tau"], values["K"], 0.0)
        modes = [np.exp(-times / values["tau"])]
    # The initial state by least squares at these parameters, so that the curve is as good as they are.
    n, basis = len(task.t), np.stack(modes, axis=1)
    whole = driven + basis @ np.linalg.lstsq(basis[:n], (task.y - driven[:n]), rcond=None)[0]
    return Found(values, None, whole[:n], whole[n:], lambda: 0.0)


def by_gpytorch(text: str, task: Task) -> Found:
    """A smoothing process that knows no equation; its derivatives, put into the equation, give parameters."""
    mean, first, second = smooth_by_gp(task)
    n, inner = len(task.t), slice(2, -2)
    if text == DECAY:
        terms, side = np.stack([-first[:n], -mean[:n]], axis=1)[inner], second[:n][inner]
        c, k = np.linalg.lstsq(terms, side, rcond=None)[0]
        values, left, size = {"c": float(c), "k": float(k)}, side - terms @ [c, k], k * mean[:n][inner]
    else:
        terms, side = np.stack([-mean[:n], task.u], axis=1)[inner], first[:n][inner]
        rate, gain = np.linalg.lstsq(terms, side, rcond=None)[0]
        values, left = {"tau": float(1 / rate), "K": float(gain / rate)}, side - terms @ [rate, gain]
        size = rate * mean[:n][inner]
    residual = float(np.sqrt(np.mean(left**2)) / np.sqrt(np.mean(size**2)))
    return Found(values, None, mean[:n], mean[n:], lambda: residual)


def smooth_by_gp(task: Task) -> tuple[Array, Array, Array]:
    """Return mean, first and second derivative at all times of a task."""
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc, unused-ignore]
        def __init__(self, t: Any, y: Any, likelihood: Any) -> None:
            super().__init__(t, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, t: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(t), self.kernel(t))

    times, size = torch.tensor(task.t), float(task.y.std())
    values = torch.tensor((task.y - task.y.mean()) / size)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(times, values, likelihood).double()
    model.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        loss = -evidence(model(times), values)
        loss.backward()
        optimiser.step()
    model.eval()
    at = torch.tensor(np.append(task.t, task.later), requires_grad=True)
    with gpytorch.settings.fast_pred_var(False), gpytorch.settings.detach_test_caches(True):
        mean = model(at).mean
    (first,) = torch.autograd.grad(mean.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    whole = mean.detach().numpy() * size + task.y.mean()
    return whole, first.detach().numpy() * size, second.detach().numpy() * size


METHODS: dict[str, tuple[Callable[[str, Task], Found], str]] = {
    "lodekit": (by_lodekit, "lodekit"),
    "least squares, from the truth": (by_least_squares, "scipy"),
    "PySINDy": (by_pysindy, "pysindy"),
    "GPyTorch, smooth and regress": (by_gpytorch, "gpytorch"),
}


def measure(text: str, level: float, seeds: int, run: Callable[[str, Task], Found]) -> dict[str, float | None]:
    """Return medians over data sets, and how often intervals hold the truth."""
    rows: list[dict[str, float]] = []
    held: list[bool] = []
    for seed in range(seeds):
        task, begin = SYSTEMS[text](level, seed), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(text, task)
        row = {"seconds": time.process_time() - begin}
        for name, value in task.truth.items():
            row[name] = abs(found.values[name] / value - 1)
            if found.intervals is not None:
                low, high = found.intervals[name]
                held.append(low < value < high)
        scale = task.curve.std()
        for title, curve, truth in (
            ("inside", found.curve, task.curve),
            ("beyond", found.curve_later, task.curve_later),
        ):
            if curve is not None:
                row[title] = float(np.sqrt(np.mean((curve - truth) ** 2)) / scale)
        row["residual"] = float("nan") if found.residual is None else found.residual()
        rows.append(row)
    medians: dict[str, float | None] = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
    medians["coverage"] = float(np.mean(held)) if held else None
    return medians


def percent(share: float | None) -> str:
    """Return a share in percent, with two digits or as many as it has before its point."""
    number = 100 * (share or 0.0)
    return f"{number:.0f} %" if number >= 10 else f"{number:.2g} %"


def print_table(results: dict[str, dict[str, dict[str, float | None]]]) -> list[str]:
    """Return a table of one system as Markdown."""
    first = next(iter(next(iter(results.values())).values()))
    names = [key for key in first if key not in ("seconds", "inside", "beyond", "residual", "coverage")]
    head = [
        "noise",
        "tool",
        *(f"error of {name}" for name in names),
        "coverage of 95 % intervals",
        "error of the curve",
        "beyond the data",
    ]
    head += ["residual of the equation"]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- |" + " ---: |" * (len(head) - 2)]
    for level, methods in results.items():
        for method, row in methods.items():
            share = "none" if row["coverage"] is None else f"{100 * row['coverage']:.0f} %"
            cells = [percent(row[name]) for name in names] + [share]
            cells += [percent(row[key]) for key in ("inside", "beyond")]
            left = row["residual"] or 0.0
            cells += ["< 1e-9" if left < 1e-9 else f"{left:.1g}"]
            lines.append(f"| {100 * float(level):g} % | {method} | " + " | ".join(cells) + " |")
    return lines


def print_school(results: dict[str, Any]) -> list[str]:
    """Return what `comparison_school.py` found as a table."""
    lines = ["| tool | error, fitted days | error, next five days | searches |", "| --- |" + " ---: |" * 3]
    for name, row in results.items():
        errors = [f"{row[key]:.3f} K" if row[key] is not None else "fails" for key in ("fitted", "run")]
        lines.append(f"| {name} | {' | '.join(errors)} | {row.get('searches', 1)} |")
    return lines


def print_solver(results: dict[str, Any]) -> list[str]:
    """Return what `comparison_solver.py` found as a table."""
    lines = ["| tool | largest error | largest standard deviation |", "| --- |" + " ---: |" * 2]
    for name, row in results.items():
        cells = [f"{row['largest error']:.0e}", f"{row['largest deviation']:.0e}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def fill_page(text: str) -> str:
    """Return the page with its tables made of the results that are kept."""
    kept = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in NAMES}
    tables = {
        "decay": print_table(kept["comparison"]["results"][DECAY]),
        "lag": print_table(kept["comparison"]["results"][LAG]),
        "school": print_school(kept["comparison_school"]),
        "solver": print_solver(kept["comparison_solver"]),
    }
    for name, lines in tables.items():
        begin, end = (
            text.index(f"<!-- comparison: {name} -->"),
            text.index("<!-- end -->", text.index(f"comparison: {name} ")),
        )
        text = text[:begin] + "\n".join([f"<!-- comparison: {name} -->", "", *lines, "", ""]) + text[end:]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--only-docs", action="store_true", help="write the tables of the page from results that are kept"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="some of the methods")
    given = parser.parse_args()
    if given.only_docs:
        PAGE.write_text(fill_page(PAGE.read_text()))
        return
    results: dict[str, dict[str, dict[str, dict[str, float | None]]]] = {}
    for text in SYSTEMS:
        results[text] = {}
        for level in LEVELS:
            row = results[text].setdefault(str(level), {})
            for method in given.methods:
                run, package = METHODS[method]
                if importlib.util.find_spec(package) is None:
                    print(f"{method}: skipped, {package} is not installed")
                    continue
                row[method] = measure(text, level, given.seeds, run)
        print(f"\n{text}, {given.seeds} data sets each, medians\n")
        print("\n".join(print_table(results[text])), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"seeds": given.seeds, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
