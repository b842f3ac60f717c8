"""All runs of the paper's main table: resumable, with results as JSON and a table beside the published figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.paper.experiments import find_experiment, published
from lodekit.paper.methods import METHODS, run

__all__ = ["collect", "format_table"]

_COLUMNS = ("train_rmse", "eval_rmse", "loss", "ode_error")
_PUBLISHED = {"paper": "lodegp", "baseline": "gp"}


def collect(
    names: Sequence[str],
    folder: Path,
    *,
    repetitions: int,
    noisy: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Run every method on every data set that is not in the folder yet, and return all results.

    Each result is a file of its own, written whole: an interrupted run goes on where it was.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LodekitError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    found = []
    kind = "noisy" if noisy else "exact"
    for name in names:
        experiment = find_experiment(name)
        for seed in range(repetitions):
            for method in METHODS:
                path = folder / f"{experiment.name}-{kind}-{method}-{seed}.json"
                if not path.exists():
                    tell(f"{experiment.name}, data set {seed + 1} of {repetitions}, {method}")
                    outcome = run(experiment, method, seed, noisy=noisy)
                    labels = {"system": experiment.name, "method": method, "seed": seed, "noisy": noisy}
                    part = path.with_suffix(".part")
                    part.write_text(json.dumps(labels | outcome.plain(), indent=1) + "\n", encoding="utf-8")
                    part.replace(path)
                found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def _values(results: Iterable[dict[str, Any]], system: str, method: str, column: str) -> Any:
    own = [row for row in results if row["system"] == system and row["method"] == method]
    return np.array([np.mean(row[column]) if column == "ode_error" else row[column] for row in own])


def format_table(results: Sequence[dict[str, Any]]) -> str:
    """Return medians and standard deviations in Markdown, the published figures beside them."""
    lines = ["| system | way | training RMSE | evaluation RMSE | loss | ODE error | seconds |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for system in dict.fromkeys(row["system"] for row in results):
        for method in METHODS:
            cells = []
            for number, column in enumerate(_COLUMNS):
                values = _values(results, system, method, column)
                text = f"{np.median(values):.3g} ± {np.std(values):.2g}"
                if method in _PUBLISHED:
                    figures = published()["table_main"][system][_PUBLISHED[method]]
                    text += f" (published {figures[2 * number]:.3g} ± {figures[2 * number + 1]:.2g})"
                cells.append(text)
            cells.append(f"{np.median(_values(results, system, method, 'seconds')):.2f}")
            lines.append(f"| {system} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
