"""All runs of the paper's experiments: resumable, one file for each result."""

from __future__ import annotations

import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.paper.experiments import PaperExperiment, experiments
from lodekit.paper.methods import METHODS, require_gpytorch
from lodekit.paper.metrics import evaluate_run, measure_construction
from lodekit.paper.model_comparison import compare_latent_force, compare_systems
from lodekit.support.files import make_folder, write_atomically
from lodekit.version import __version__

#: What can be asked for, beside everything.
TOPICS = ("bipendulum", "heating", "three-tank", "lfm", "eigenvalues", "runtime", "construction", "evidence")


@dataclass(frozen=True)
class RunPlan:
    """What is run.

    topics: Some of `TOPICS`.
    n_noisy, n_exact: Repetitions on noisy data, and on the one noise-free data set: there only what starts at random
        is repeated, and lodekit's search, which comes out the same every time, is made once.
    channel_prior_systems: Systems that are trained with a prior on the channels.
    quick: Whether the paper's way and the GP leave the noise-free data out.
    """

    topics: tuple[str, ...]
    n_noisy: int
    n_exact: int
    channel_prior_systems: tuple[str, ...]
    quick: bool = False

    def runs(self) -> list[ExperimentRun]:
        """Return everything there is to do; the ways take turns, so that a busy minute meets all of them."""
        found = [job for experiment in experiments().values() for job in self._training_runs(experiment)]
        if "lfm" in self.topics:
            for is_noisy, count in ((True, self.n_noisy), (False, 1)):
                for seed in range(count):
                    work = partial(_run_latent_force, seed, noisy=is_noisy)
                    found.append(ExperimentRun("lfm", "three_tank", "all", seed, is_noisy, work))
        for experiment in experiments().values():
            if "construction" in self.topics:
                found.append(
                    ExperimentRun(
                        "construction", experiment.name, "all", 0, True, partial(measure_construction, experiment)
                    )
                )
            found += [
                ExperimentRun(
                    "evidence", experiment.name, "all", seed, True, partial(_run_system_comparison, experiment, seed)
                )
                for seed in range(self.n_noisy if "evidence" in self.topics else 0)
            ]
        return found

    def _training_runs(self, experiment: PaperExperiment) -> Iterator[ExperimentRun]:
        named = experiment.name in {topic.replace("-", "_") for topic in self.topics}
        noisy = self.n_noisy if named or {"eigenvalues", "runtime"} & set(self.topics) else 0
        ways = [way for way in METHODS if way != "channels" or experiment.name in self.channel_prior_systems]
        for seed, method in product(range(noisy), ways):
            yield ExperimentRun(
                "main",
                experiment.name,
                method,
                seed,
                True,
                partial(_run_training, experiment, method, seed, noisy=True),
            )
        if named:
            counts = {"paper": self.n_exact, "lodekit": 1, "baseline": self.n_exact}
            for method in ("lodekit",) if self.quick else counts:
                for seed in range(counts[method]):
                    work = partial(_run_training, experiment, method, seed, noisy=False)
                    yield ExperimentRun("main", experiment.name, method, seed, False, work)


def make_plan(topic: str = "all", *, quick: bool = False) -> RunPlan:
    """Return what the paper ran of a `topic`, 20 noisy and 10 noise-free times, or what a minute allows, if `quick`."""
    if topic != "all" and topic.replace("_", "-") not in TOPICS:
        raise LodekitError(f"expected one of {', '.join(TOPICS)} or all, got {topic!r}")
    topics = TOPICS if topic == "all" else (topic.replace("_", "-"),)
    return RunPlan(topics, 3, 1, ("heating",), quick=True) if quick else RunPlan(topics, 20, 10, tuple(experiments()))


def provenance() -> str:
    """Return what a result depends on beside its labels: results of another version are not taken over."""
    return f"lodekit {__version__}, Python {platform.python_version()}, {platform.machine()}, {sys.platform}"


@dataclass(frozen=True)
class ExperimentRun:
    """One run; what it is makes the name of its file.

    function: Returns the result as plain values.
    """

    topic: str
    system: str
    method: str
    seed: int
    noisy: bool
    function: Callable[[], dict[str, Any]]

    @property
    def labels(self) -> dict[str, Any]:
        """What is run, as plain values."""
        own = {key: getattr(self, key) for key in ("topic", "system", "method", "seed", "noisy")}
        return {**own, "made_by": provenance()}

    @property
    def name(self) -> str:
        """The name of the file, without its ending."""
        return f"{self.topic}-{self.system}-{'noisy' if self.noisy else 'exact'}-{self.method}-{self.seed}"


def _run_training(experiment: PaperExperiment, method: str, seed: int, *, noisy: bool) -> dict[str, Any]:
    return evaluate_run(experiment, method, seed, noisy=noisy).to_dict()


def _run_latent_force(seed: int, *, noisy: bool) -> dict[str, Any]:
    return {"ode_errors": compare_latent_force(seed, noisy=noisy)}


def _run_system_comparison(experiment: PaperExperiment, seed: int) -> dict[str, Any]:
    return {"log_evidence": compare_systems(experiment, seed)}


def collect_results(plan: RunPlan, folder: Path, jobs: int = 1) -> Iterator[tuple[ExperimentRun, dict[str, Any]]]:
    """Yield every run of a plan with its result, running what is not in a folder yet.

    Each result is a file of its own, written whole: an interrupted run goes on where it was.
    """
    require_gpytorch()
    make_folder(folder)
    if jobs < 1 and jobs != -1:
        raise LodekitError(f"expected a positive number of jobs, or -1 for all cores, got {jobs}")
    if jobs == 1:
        for job in plan.runs():
            yield job, _run_or_load(job, folder, jobs)
        return
    from joblib import Parallel, delayed, effective_n_jobs

    todo, count = plan.runs(), int(effective_n_jobs(jobs))
    several = Parallel(n_jobs=count, return_as="generator")(delayed(_run_or_load)(job, folder, count) for job in todo)
    yield from zip(todo, several, strict=True)


def _run_or_load(run: ExperimentRun, folder: Path, jobs: int) -> dict[str, Any]:
    """Return the result of a job, from its file or by running it."""
    path = folder / f"{run.name}.json"
    found = _load_result(path, run.labels) if path.exists() else None
    if found is None:
        with warnings.catch_warnings():
            # GPyTorch tells of the jitter that it adds; the paper's models need it, and nobody can act on it here.
            warnings.simplefilter("ignore")
            found = run.labels | {"jobs": jobs} | run.function()
        write_atomically(path, json.dumps(found, indent=1) + "\n")
    return found


def _load_result(path: Path, labels: dict[str, Any]) -> dict[str, Any] | None:
    """Return a result from its file; None where the file is not what it should be, and is to be written again."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and labels.items() <= found.items() else None
