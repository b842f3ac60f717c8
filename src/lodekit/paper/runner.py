"""All runs of the paper's experiments, resumable, with one file for each result."""

from __future__ import annotations

import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
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

#: The topics that can be selected, besides all.
TOPICS = ("bipendulum", "heating", "three-tank", "lfm", "eigenvalues", "runtime", "construction", "evidence")


@dataclass(frozen=True)
class RunPlan:
    """The selected runs.

    topics: Some of `TOPICS`.
    n_noisy, n_exact: Numbers of repetitions on noisy data, and on the one noise-free data set; there only methods with
        random starts are repeated, and lodekit's search, which always has the same result, is run once.
    channel_prior_systems: Systems that are also trained with a prior on the channels.
    quick: Whether the paper's method and the GP omit the noise-free data.
    """

    topics: tuple[str, ...]
    n_noisy: int
    n_exact: int
    channel_prior_systems: tuple[str, ...]
    quick: bool = False

    def runs(self) -> list[ExperimentRun]:
        """Return all runs; the methods alternate, so that other load affects all of them."""
        function: Callable[[], Any]
        found = [run for experiment in experiments().values() for run in self._training_runs(experiment)]
        if "lfm" in self.topics:
            for noisy, seed in [*((True, seed) for seed in range(self.n_noisy)), (False, 0)]:
                function = partial(compare_latent_force, seed, noisy=noisy)
                found.append(ExperimentRun("lfm", "three_tank", "all", seed, noisy, function, "ode_errors"))
        for name, experiment in experiments().items():
            if "construction" in self.topics:
                function = partial(measure_construction, experiment)
                found.append(ExperimentRun("construction", name, "all", 0, True, function))
            for seed in range(self.n_noisy if "evidence" in self.topics else 0):
                function = partial(compare_systems, experiment, seed)
                found.append(ExperimentRun("evidence", name, "all", seed, True, function, "log_evidence"))
        return found

    def _training_runs(self, experiment: PaperExperiment) -> Iterator[ExperimentRun]:
        named = experiment.name in {topic.replace("-", "_") for topic in self.topics}
        noisy = self.n_noisy if named or {"eigenvalues", "runtime"} & set(self.topics) else 0
        with_channels = experiment.name in self.channel_prior_systems
        methods = [method for method in METHODS if method != "channels" or with_channels]
        several = [(method, seed, True) for seed, method in product(range(noisy), methods)]
        if named:
            counts = {"lodekit": 1} if self.quick else {"paper": self.n_exact, "lodekit": 1, "baseline": self.n_exact}
            several += [(method, seed, False) for method, count in counts.items() for seed in range(count)]
        for method, seed, is_noisy in several:
            function = partial(evaluate_run, experiment, method, seed, noisy=is_noisy)
            yield ExperimentRun("main", experiment.name, method, seed, is_noisy, function)


def make_plan(topic: str = "all", *, quick: bool = False) -> RunPlan:
    """Return the paper's runs of a `topic`, 20 noisy and 10 noise-free; three and one if `quick`."""
    if topic != "all" and topic.replace("_", "-") not in TOPICS:
        raise LodekitError(f"expected one of {', '.join(TOPICS)} or all, got {topic!r}")
    topics = TOPICS if topic == "all" else (topic.replace("_", "-"),)
    return RunPlan(topics, 3, 1, ("heating",), quick=True) if quick else RunPlan(topics, 20, 10, tuple(experiments()))


def provenance() -> str:
    """Return the versions and platform of a result; results with other ones are not reused."""
    return f"lodekit {__version__}, Python {platform.python_version()}, {platform.machine()}, {sys.platform}"


@dataclass(frozen=True)
class ExperimentRun:
    """One run; its labels determine the name of its file.

    function: Returns the result as plain values.
    key: The key of the result in the file; empty if the result is a dictionary.
    """

    topic: str
    system: str
    method: str
    seed: int
    noisy: bool
    function: Callable[[], Any]
    key: str = ""

    @property
    def labels(self) -> dict[str, Any]:
        """The labels of the run, as plain values."""
        own = {key: getattr(self, key) for key in ("topic", "system", "method", "seed", "noisy")}
        return {**own, "made_by": provenance()}

    @property
    def name(self) -> str:
        """The name of the file, without its extension."""
        return f"{self.topic}-{self.system}-{'noisy' if self.noisy else 'exact'}-{self.method}-{self.seed}"


def collect_results(plan: RunPlan, folder: Path, jobs: int = 1) -> Iterator[tuple[ExperimentRun, dict[str, Any]]]:
    """Yield each run of a plan with its result; runs without a file in the folder are executed.

    Each result is written atomically to its own file, so an interrupted series of runs can be resumed.
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
    """Return the result of a run, from its file or by executing it."""
    path = folder / f"{run.name}.json"
    found: dict[str, Any] | None = None
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
    # An invalid or outdated file is replaced.
    if not isinstance(found, dict) or not run.labels.items() <= found.items():
        with warnings.catch_warnings():
            # GPyTorch warns about added jitter, which the paper's models need; users cannot change it here.
            warnings.simplefilter("ignore")
            result = run.function()
        found = run.labels | {"jobs": jobs} | ({run.key: result} if run.key else result)
        write_atomically(path, json.dumps(found, indent=1) + "\n")
    return found
