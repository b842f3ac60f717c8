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
from lodekit.files import make_folder, write_file
from lodekit.paper.experiments import Experiment, experiments
from lodekit.paper.latent_force import compare
from lodekit.paper.measures import measure
from lodekit.paper.methods import METHODS, need_gpytorch
from lodekit.version import __version__

__all__ = ["TOPICS", "Job", "Plan", "collect", "made_by", "make_plan"]

#: What can be asked for, beside everything.
TOPICS = ("bipendulum", "heating", "three-tank", "lfm", "eigenvalues", "runtime")


@dataclass(frozen=True)
class Plan:
    """What is run.

    Parameters
    ----------
    topics : tuple of str
        Some of `TOPICS`.
    noisy, exact : int
        Repetitions on noisy and on noise-free data.
    exact_methods : tuple of str
        Which methods see the noise-free data.
    """

    topics: tuple[str, ...]
    noisy: int
    exact: int
    exact_methods: tuple[str, ...]

    def jobs(self) -> list[Job]:
        """Return everything there is to do; the three ways take turns, so that a busy minute meets all of them."""
        found = []
        for experiment in experiments().values():
            named = experiment.name in {topic.replace("-", "_") for topic in self.topics}
            noisy = self.noisy if named or {"eigenvalues", "runtime"} & set(self.topics) else 0
            for is_noisy, count in ((True, noisy), (False, self.exact if named else 0)):
                for seed, method in product(range(count), METHODS if is_noisy else self.exact_methods):
                    work = partial(_measure, experiment, method, seed, noisy=is_noisy)
                    found.append(Job("main", experiment.name, method, seed, is_noisy, work))
        if "lfm" in self.topics:
            for is_noisy, count in ((True, self.noisy), (False, 1)):
                for seed in range(count):
                    work = partial(_compare, seed, noisy=is_noisy)
                    found.append(Job("lfm", "three_tank", "all", seed, is_noisy, work))
        return found


def make_plan(topic: str = "all", *, quick: bool = False) -> Plan:
    """Return what the paper ran of a `topic`, 20 noisy and 10 noise-free times, or what a minute allows, if `quick`."""
    if topic != "all" and topic.replace("_", "-") not in TOPICS:
        raise LodekitError(f"expected one of {', '.join(TOPICS)} or all, got {topic!r}")
    topics = TOPICS if topic == "all" else (topic.replace("_", "-"),)
    return Plan(topics, 3, 2, ("lodekit",)) if quick else Plan(topics, 20, 10, tuple(METHODS))


def made_by() -> str:
    """Return what a result depends on beside its labels: results of another version are not taken over."""
    return f"lodekit {__version__}, Python {platform.python_version()}, {platform.machine()}, {sys.platform}"


@dataclass(frozen=True)
class Job:
    """One run; what it is makes the name of its file.

    Parameters
    ----------
    topic, system, method : str
    seed : int
    noisy : bool
    work : function
        Returns the result as plain values.
    """

    topic: str
    system: str
    method: str
    seed: int
    noisy: bool
    work: Callable[[], dict[str, Any]]

    @property
    def labels(self) -> dict[str, Any]:
        """What is run, as plain values."""
        own = {key: getattr(self, key) for key in ("topic", "system", "method", "seed", "noisy")}
        return {**own, "made_by": made_by()}

    @property
    def name(self) -> str:
        """The name of the file, without its ending."""
        return f"{self.topic}-{self.system}-{'noisy' if self.noisy else 'exact'}-{self.method}-{self.seed}"


def _measure(experiment: Experiment, method: str, seed: int, *, noisy: bool) -> dict[str, Any]:
    return measure(experiment, method, seed, noisy=noisy).plain()


def _compare(seed: int, *, noisy: bool) -> dict[str, Any]:
    return {"ode_errors": compare(seed, noisy=noisy)}


def collect(plan: Plan, folder: Path) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield every run of a `plan` with its result, running what is not in the `folder` yet.

    Each result is a file of its own, written whole: an interrupted run goes on where it was.
    """
    need_gpytorch()
    make_folder(folder)
    for job in plan.jobs():
        path = folder / f"{job.name}.json"
        found = _read(path, job.labels) if path.exists() else None
        if found is None:
            with warnings.catch_warnings():
                # GPyTorch tells of the jitter that it adds; the paper's models need it, and nobody can act on it here.
                warnings.simplefilter("ignore")
                found = job.labels | job.work()
            write_file(path, json.dumps(found, indent=1) + "\n")
        yield job, found


def _read(path: Path, labels: dict[str, Any]) -> dict[str, Any] | None:
    """Return a result from its file; None where the file is not what it should be, and is to be written again."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and labels.items() <= found.items() else None
