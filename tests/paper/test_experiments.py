"""The paper's data and three ways to learn from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lodekit as lk
from lodekit.paper import methods, runner
from lodekit.paper.experiments import experiments, find_experiment, published

# GPyTorch's own notices are not ours.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*jitter.*")


def test_data_are_those_of_the_paper() -> None:
    assert set(experiments()) == {"bipendulum", "heating", "three_tank"}
    for name, experiment in experiments().items():
        assert experiment.times.shape == (25,)
        assert (experiment.times[0], experiment.times[-1]) == tuple(published()["protocol"][name]["train"])
        exact, noisy = experiment.data(0, noisy=False), experiment.data(0)
        assert np.std(noisy - exact) == pytest.approx(experiment.noise_std, rel=0.3)
    assert find_experiment("three-tank").system.channels == ("f1", "f2", "f3", "u1", "u2")
    assert find_experiment("heating").parameters == {"a": 3.0, "b": 1.0}
    with pytest.raises(lk.LodekitError, match="expected one of bipendulum"):
        find_experiment("four-tank")


@pytest.mark.parametrize(
    ("name", "limits"), [("bipendulum", (5e-3, 5e-3)), ("heating", (2e-3, 2e-3)), ("three_tank", (2e-3,) * 3)]
)
def test_printed_solutions_satisfy_their_equations_by_differences(name: str, limits: tuple[float, ...]) -> None:
    experiment = find_experiment(name)
    found = methods.ode_error(experiment, experiment.truth, experiment.parameters)
    assert all(error < limit for error, limit in zip(found, limits, strict=True))


@pytest.mark.parametrize("name", ["bipendulum", "heating", "three_tank"])
def test_lodekit_is_better_than_the_better_published_model(name: str) -> None:
    experiment = find_experiment(name)
    outcomes = [methods.run(experiment, "lodekit", seed) for seed in range(3)]
    figures = published()["table_main"][name]
    best = {
        column: min(figures[model][k] for model in ("lodegp", "gp")) for k, column in ((0, "train_rmse"), (4, "loss"))
    }
    spread = {
        column: max(figures[model][k] for model in ("lodegp", "gp")) for k, column in ((1, "train_rmse"), (5, "loss"))
    }
    for column, value in best.items():
        assert np.median([getattr(o, column) for o in outcomes]) < value + spread[column]
    assert max(o.strict_error for o in outcomes) < 1e-9


@quiet
def test_the_papers_way_and_the_baseline_land_where_the_paper_did() -> None:
    pytest.importorskip("gpytorch")
    experiment, figures = find_experiment("heating"), published()["table_main"]["heating"]
    paper, baseline = (methods.run(experiment, method, 0) for method in ("paper", "baseline"))
    for outcome, row in ((paper, figures["lodegp"]), (baseline, figures["gp"])):
        assert outcome.train_rmse < row[0] + 3 * row[1]
        assert outcome.loss < row[4] + 3 * row[5]
    assert abs(paper.parameters["a"] / 3.0 - 1) < 0.1
    assert paper.strict_error < 1e-9
    # The constraint is what makes the difference.
    assert np.mean(paper.ode_error) < 0.1 * np.mean(baseline.ode_error)
    native = methods.run(experiment, "lodekit", 0)
    assert native.loss < paper.loss + 1e-3
    assert native.loss < baseline.loss


def test_runs_are_resumed_and_tabulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    native = methods.METHODS["lodekit"]

    def counted(*arguments: object) -> object:
        calls.append(1)
        return native(*arguments)  # type: ignore[arg-type]

    for name in methods.METHODS:
        monkeypatch.setitem(methods.METHODS, name, counted)
    told: list[str] = []
    first = runner.collect(["heating"], tmp_path, repetitions=1, tell=told.append)
    assert len(calls) == len(first) == len(told) == 3
    again = runner.collect(["heating"], tmp_path, repetitions=1, tell=told.append)
    assert len(calls) == 3
    assert again == first
    table = runner.format_table(first)
    assert "published 0.006 ± 0.001" in table
    assert table.count("\n") == 4
    (tmp_path / "file").write_text("")
    with pytest.raises(lk.LodekitError, match="cannot write"):
        runner.collect(["heating"], tmp_path / "file", repetitions=1)
