"""The work of each step grows with the rows as it should; operations are counted, so that other load does not matter.

Each step runs at n rows and at 10 n. Counted are calls of functions (of Python and C), evaluations of the objective,
and elements of arrays with an axis about as long as the data or longer: those that functions hold when they return, and
those whose methods are called. Arrays of a fixed size, such as matrices of an engine, would hide what grows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.signal import lfilter

import lodekit as lk
from lodekit.data.inputs import InputSignal
from lodekit.data.sources import load_data
from lodekit.fitting import multistart, setup as fit_setup
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.fitting.starts.candidates import collect_guesses
from lodekit.inference.innovations import split_into_segments
from lodekit.prior.expm import expm_frechet
from lodekit.prior.input_response import hold
from lodekit.prior.input_response.response import ResponsePlan, StateMatrices, StateSpaceResponse
from lodekit.report import make_report
from lodekit.studio.compute import compute_curve
from lodekit.studio.data_files import open_data_file


class Work(NamedTuple):
    """What a step did."""

    calls: int
    elements: int
    evaluations: int


def count_work(step: Callable[[], object], rows: int) -> Work:
    """Run a step on so many rows and count its work."""
    calls = elements = evaluations = 0
    least = 0.9 * rows

    def watch(frame: FrameType, event: str, function: Any) -> None:
        # Called a million times: no function of its own for an item, and the quick checks first.
        nonlocal calls, elements, evaluations
        if event == "return":
            for item in frame.f_locals.values():
                if isinstance(item, np.ndarray) and item.size > least and max(item.shape) > least:
                    elements += item.size
            evaluations += frame.f_code.co_qualname in ("Objective.evaluate", "Objective.value")
        elif event in ("call", "c_call"):
            calls += 1
            item = getattr(function, "__self__", None)
            if isinstance(item, np.ndarray) and item.size > least and max(item.shape) > least:
                elements += item.size

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        step()
    finally:
        sys.setprofile(before)
    return Work(calls, elements, evaluations)


POSITIVE = lk.Parameter(positive=True)
#: Models by their engine, and the smaller number of rows: more than any subsample that a search or a figure takes.
SYSTEMS = {
    "modal": lk.System("x' = -a*x + b*u", parameters={"a": POSITIVE, "b": POSITIVE}),
    "spectral": lk.System("x' = -a*x + u", parameters={"a": POSITIVE}),
    "markov": lk.System("x' = -a*x + b*u + w", parameters={"a": POSITIVE, "b": POSITIVE}),
}
ROWS = {"modal": 5000, "spectral": 5000, "markov": 300}
SMALL = 150
#: Limits of the growth from n to 10 n, of steps that visit each row and of those that do not. Searches differ a little.
LINEAR, CONSTANT = 12.0, 2.0


@cache
def simulate_rows(kind: str, rows: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return times and noisy values of a lag; more rows of free functions are denser, not longer."""
    generator = np.random.default_rng(seed)
    noise = 0.1 * generator.standard_normal((2, rows))
    if kind == "spectral":
        t = np.sort(generator.uniform(0.0, 20.0, rows))
        return t, {"x": np.sin(t) + noise[0], "u": np.cos(t) + 0.5 * np.sin(t) + noise[1]}
    u = np.repeat(generator.choice([0.0, 1.0], rows // 20 + 1), 20)[:rows]
    w = 0.02 * generator.standard_normal(rows) * (kind == "markov")
    decay = np.exp(-0.05)
    x = lfilter([0.0, 1.0], [1.0, -decay], 2 * (1 - decay) * u + w)
    return 0.1 * np.arange(rows), {"x": x + noise[0], "u": u}


def make_model(kind: str) -> lk.LODEGP:
    inputs = None if kind == "spectral" else {"u": "hold"}
    disturbances = {"w": "white"} if kind == "markov" else None
    return lk.LODEGP(SYSTEMS[kind], inputs=inputs, disturbances=disturbances, random_state=0)


@cache
def fit_rows(kind: str, rows: int) -> tuple[lk.LODEGP, Work]:
    """Return a fit and its work."""
    gp, data = make_model(kind), simulate_rows(kind, rows, 0)
    return gp, count_work(lambda: gp.fit(*data), rows)


def find_starts(kind: str, rows: int) -> Callable[[], object]:
    measurements = load_data(*simulate_rows(kind, rows, 0), channels=("x", "u")).measurements
    gp = make_model(kind)
    settings = FitSettings(**{item.name: getattr(gp, item.name) for item in fields(FitSettings)})
    return lambda: multistart.rank_starts(build_setup(SYSTEMS[kind], settings, measurements))


def draw_preview(kind: str, rows: int) -> Callable[[], object]:
    # A copy has no cached results of the search, whose last point depends on rounding.
    fit = deepcopy(fit_rows(kind, rows)[0].fit_)
    return lambda: compute_curve(fit.setup, fit.setup, fit.hyperparameters, {})


def write_csv(rows: int, folder: Path) -> Path:
    t, columns = simulate_rows("modal", rows, 0)
    path = folder / f"{rows}.csv"
    np.savetxt(path, np.column_stack([t, *columns.values()]), delimiter=",", header="t,x,u", comments="")
    return path


#: What is prepared for a kind of model and a number of rows, and then counted.
STEPS: dict[str, Callable[[str, int], Callable[[], object]]] = {
    "starting values": find_starts,
    "diagnosis": lambda kind, rows: fit_rows(kind, rows)[0].fit_.with_diagnosis,
    "bands": lambda kind, rows: lambda: fit_rows(kind, rows)[0].predict(np.linspace(0, 30, 200), return_std=True),
    "certificate": lambda kind, rows: fit_rows(kind, rows)[0].certificate,
    "report": lambda kind, rows: lambda: make_report(fit_rows(kind, rows)[0]),
    "preview of the studio": draw_preview,
}


def check_growth(step: Callable[[int], Callable[[], object]], rows: int, calls: float) -> None:
    """Raise if a step visits elements more than linearly, or if its calls grow by more than a limit."""
    few, many = (count_work(step(count), count) for count in (rows, 10 * rows))
    assert many.calls <= calls * few.calls
    assert many.elements <= LINEAR * max(few.elements, 10 * rows)


@pytest.mark.parametrize("kind", SYSTEMS)
def test_searches_of_ten_times_the_rows_take_as_many_evaluations(kind: str) -> None:
    fit_rows(kind, SMALL)  # imports and caches
    few, many = (fit_rows(kind, count)[1] for count in (ROWS[kind], 10 * ROWS[kind]))
    assert 0 < many.evaluations <= CONSTANT * few.evaluations
    assert many.calls <= CONSTANT * few.calls
    assert many.elements <= LINEAR * few.elements


@pytest.mark.parametrize("kind", SYSTEMS)
@pytest.mark.parametrize("name", STEPS)
def test_step_is_linear_and_makes_no_call_for_each_row(name: str, kind: str) -> None:
    if (name, kind) == ("preview of the studio", "markov"):
        pytest.skip("white noise has no curve")
    STEPS[name](kind, SMALL)()  # imports and caches
    # The filter of the Markov engine has a loop over blocks of rows.
    check_growth(partial(STEPS[name], kind), ROWS[kind], LINEAR if kind == "markov" else CONSTANT)


@pytest.mark.parametrize("kind", SYSTEMS)
def test_validation_is_linear(kind: str) -> None:
    gp, given = fit_rows(kind, SMALL)[0], "u" if kind == "spectral" else None
    check_growth(lambda rows: lambda: gp.validate(*simulate_rows(kind, rows, 1), given=given), 200, LINEAR)


@pytest.mark.parametrize("read", [lambda path: load_data(path, channels=("x", "u")), open_data_file])
def test_reading_makes_no_call_for_each_row(read: Callable[[Path], object], tmp_path: Path) -> None:
    read(write_csv(SMALL, tmp_path))
    check_growth(lambda rows: partial(read, write_csv(rows, tmp_path)), 5000, CONSTANT)


def test_channels_without_missing_values_share_their_times_and_segments_copy_nothing() -> None:
    t, columns = simulate_rows("spectral", 5000, 0)
    series = load_data(t, columns, channels=("x", "u")).measurements.series
    assert series[0].times is series[1].times
    runs = list(split_into_segments(series))
    pairs = [pair for run in runs for pair in zip(run, series, strict=True)]
    assert all(np.shares_memory(part.values, whole.values) for part, whole in pairs)
    assert all(400 < sum(len(item.times) for item in run) <= 500 for run in runs)


def test_a_response_with_a_dead_time_takes_one_call_of_the_exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def exponentials(matrices: np.ndarray, directions: np.ndarray | None = None) -> Any:
        calls.append(len(matrices))
        return expm_frechet(matrices, directions)

    monkeypatch.setattr(hold, "expm_frechet", exponentials)
    plan = ResponsePlan([InputSignal([0.0, 1.0, 3.0], [0.0, 2.0, 1.0], "hold")], np.arange(50.0), 0.0)
    lag = StateMatrices(*np.array([-1.0, 1.0, 1.0, 0.0, 0.0])[:, None, None])
    slopes = StateMatrices(*(np.ones((1, 1, 1)) for _ in range(5)))
    response = StateSpaceResponse(plan, lag, np.array([0.3]))
    response.jacobian(slopes, np.ones((1, 1)))
    response.gradient(np.ones((1, 50)), slopes, np.ones((1, 1)))
    # One matrix for the steps and one for the events: for values, for forward and for adjoint derivatives.
    assert calls == [2, 2, 2]


@pytest.mark.parametrize("kind", ["modal", "markov"])
def test_streams_take_the_same_work_for_each_row(kind: str) -> None:
    def push(rows: int) -> Callable[[], object]:
        stream, (_, columns) = fit_rows(kind, SMALL)[0].stream(), simulate_rows(kind, rows, 1)
        times = 0.1 * np.arange(1, rows + 1) + (stream.time or 0.0)
        data = [{name: float(values[k]) for name, values in columns.items()} for k in range(rows)]
        return lambda: [stream.push(float(t), row) for t, row in zip(times, data, strict=True)]

    check_growth(push, 100, LINEAR)


def compare_all_pairs(values: np.ndarray) -> float:
    """Return the largest distance of two values, by a block of rows at a time."""
    return max(float(np.abs(values[k : k + 50, None] - values).max()) for k in range(0, len(values), 50))


def compare_in_a_loop(values: np.ndarray) -> float:
    """Return the largest distance of two of every hundredth value, by a loop over pairs."""
    return max(abs(float(a) - float(b)) for a in values[::100] for b in values[::100])


@pytest.mark.parametrize("helper", [compare_all_pairs, compare_in_a_loop])
def test_a_quadratic_heuristic_for_starting_values_is_noticed(
    helper: Callable[[np.ndarray], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect_slowly(system: lk.System, objective: Any, *others: Any) -> Any:
        helper(np.arange(float(objective.engine.size)))
        return collect_guesses(system, objective, *others)

    monkeypatch.setattr(fit_setup, "collect_guesses", collect_slowly)
    with pytest.raises(AssertionError):
        check_growth(partial(find_starts, "modal"), 2000, CONSTANT)
