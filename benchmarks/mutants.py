"""Claim: a fault in the algebra, the prior or the inference is found by a test.

Faults are made one at a time by the operators of cosmic-ray (another number, sign or comparison, a loop that does not
run), in a copy of the sources, and the tests that guard the package run on it until one fails. What no test finds is
printed with the changed line: the same in other words, a matter of speed or digits, or a hole in the tests. Faults that
cannot matter are not made: in annotations, texts of errors, `__all__`, flags that only guard (`strict`, `frozen`).

cosmic-ray is needed for this alone, so it is not among the packages of development. `--tools` names a folder with it
(`pip install --target FOLDER cosmic-ray`), which is searched after all others. Needs a system with fork.

    python benchmarks/mutants.py [--tools FOLDER] [--seconds 600] [--workers 2] [--seed 0] [--only prior/latents]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import difflib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOUSE = Path("src", "lodekit")
#: What a copy of the project needs for its tests to run there.
COPIED = ("src", "tests", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml")
#: Tests of a package, fastest first; what the first line does not find, the second one gets.
GUARDS: dict[str, tuple[str, str]] = {
    "algebra": (
        "src/lodekit/algebra tests/algebra src/lodekit/system tests/system/test_matrices.py",
        "tests/system/test_parameters.py tests/system/test_particular.py tests/system/test_system.py "
        "tests/system/test_basis.py tests/model/test_basis.py "
        "tests/agreement/test_roots_against_mpmath.py tests/prior/test_modes.py "
        "tests/properties/test_random_systems.py tests/agreement/test_catalog_solutions.py",
    ),
    "prior": (
        "src/lodekit/prior tests/prior tests/agreement/test_engines.py",
        "tests/agreement/test_roots_against_mpmath.py tests/model tests/fitting/test_objective.py "
        "tests/agreement/test_catalog_solutions.py tests/integrations/test_gpytorch.py "
        "tests/inference/test_beside_the_evidence.py "
        "tests/agreement/test_posterior.py tests/agreement/test_evidence.py "
        "tests/agreement/test_covariance.py tests/agreement/test_channels.py tests/agreement/test_spectral.py "
        "tests/test_figures.py::test_the_area_below_a_spectrum_is_the_prior_variance "
        "tests/test_figures.py::test_without_free_functions_there_is_no_spectrum "
        "tests/cli/test_using.py::test_simulated_solutions_have_no_residual_and_the_variance_that_was_meant",
    ),
    "inference": (
        "src/lodekit/inference tests/inference/test_beside_the_evidence.py tests/inference/test_products.py "
        "tests/agreement/test_engines.py tests/agreement/test_low_noise.py",
        "tests/inference/test_device.py tests/prior/test_toy_latent.py tests/fitting/test_objective.py "
        "tests/agreement/test_posterior.py tests/agreement/test_evidence.py tests/model "
        "tests/integrations/test_gpytorch.py tests/agreement/test_spectral.py tests/test_many_measurements.py "
        "tests/agreement/test_channels.py "
        "tests/results/certificate/test_certificate.py::test_little_noise_is_answered_on_waves "
        "tests/results/certificate/test_certificate.py::test_where_waves_cannot_reach_the_matrix_answers",
    ),
}
#: Seconds each; what they guard, others do as well.
LEFT_OUT = {
    "tests/model/test_learning.py": ("test_results_do_not_depend_on_how_starts_are_followed",),
    "tests/test_many_measurements.py": (
        "test_mean_and_deviation_cross_into_the_far_without_a_step",
        "test_many_noise_free_measurements_are_met",
        "test_low_noise_has_standard_errors",
        "test_the_channel_prior_speaks_the_units_of_the_channels",
        "test_a_dask_dataframe_is_fitted",
        "test_a_channel_of_noise_does_not_hide_the_others",
    ),
}
#: Imported once, before the processes that run tests are forked; nothing here may know lodekit.
HEAVY = ("numpy", "scipy.linalg", "scipy.optimize", "sympy", "mpmath", "flint", "torch", "gpytorch", "pytest")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
#: A fault may make an array of any size.
MEMORY = 6 * 2**30
#: A fault may make a loop without end: this many times the processor's time of the right code, and some seconds.
PATIENCE, GRACE = 2.0, 5.0
#: Where it only waits, the clock ends it.
WAITING = 10.0
ARITHMETIC = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
ALIKE = {"Eq_Is", "Is_Eq", "NotEq_IsNot", "IsNot_NotEq"}
GUARDING = {"strict", "stacklevel", "frozen", "slots", "init", "repr", "compare"}
GUARDING |= {"overwrite_a", "overwrite_b", "overwrite_c"}
SILENT_DECORATORS = {"overload", "abstractmethod", "runtime_checkable", "override", "cache", "lru_cache"}


@dataclass
class Mutant:
    """One fault: the `occurrence`-th place in a file where an operator applies."""

    file: str
    line: int
    operator: str
    occurrence: int
    change: str = ""
    outcome: str = ""


@dataclass
class Worker:
    """A copy of the project, and the process that tests in it."""

    folder: Path
    mutant: Mutant | None = None
    stage: int = 0
    end: float = 0.0
    process: Any = None


def named(node: Any) -> str:
    return str(getattr(node, "value", ""))


def cannot_matter(node: Any) -> bool:
    """Whether nothing that a test could see depends on a node of parso's tree."""
    if node.parent is not None and node.parent.type in ("parameters", "lambdef"):
        return True  # the star between arguments
    child, parent = None, node
    while parent is not None:
        kind = parent.type
        if (kind == "annassign" and child is parent.children[1]) or (kind == "tfpdef" and child is parent.children[-1]):
            return True
        if kind == "funcdef" and child is not None and child is parent.annotation:
            return True
        if kind == "raise_stmt" or (kind == "expr_stmt" and named(parent.children[0]) == "__all__"):
            return True
        if kind == "if_stmt" and named(parent.children[1]) == "TYPE_CHECKING":
            return True
        if kind == "classdef" and named(parent.get_super_arglist()) == "Protocol":
            return True
        if kind == "argument" and named(parent.children[0]) in GUARDING:
            return True
        if kind == "decorator" and parent.get_code().strip("@\n ").split("(")[0].split(".")[-1] in SILENT_DECORATORS:
            return True
        child, parent = parent, parent.parent
    return False


def tells_nothing(operator: str) -> bool:
    """Whether an operator says the same in other words, or something that no array can do."""
    name = operator.split("_", 1)
    if name[0] == "ReplaceBinaryOperator":
        old, new = name[1].split("_")
        return (old in ARITHMETIC) != (new in ARITHMETIC)
    return name[0] == "ReplaceComparisonOperator" and name[1] in ALIKE


def list_operators() -> dict[str, Any]:
    try:
        provider = importlib.import_module("cosmic_ray.operators.provider").OperatorProvider()
    except ImportError as error:
        sys.exit(f"cosmic-ray is not installed ({error}); see the head of benchmarks/mutants.py")
    made = {name: provider[name] for name in provider if not tells_nothing(name)}
    return {name: operator() for name, operator in made.items() if not operator.arguments()}


def list_mutants(file: str, operators: dict[str, Any]) -> dict[tuple[int, int], list[Mutant]]:
    """Return all faults that can be made in a file, by the place where they are."""
    cosmic_tree = importlib.import_module("cosmic_ray.ast")
    tree = cosmic_tree.get_ast((ROOT / file).read_text(encoding="utf-8"))
    counts = {name: itertools.count() for name in operators}
    found: dict[tuple[int, int], list[Mutant]] = {}
    for node in cosmic_tree.ast_nodes(tree):
        for name, operator in operators.items():
            for start, _ in operator.mutation_positions(node):
                occurrence = next(counts[name])
                if not cannot_matter(node):
                    found.setdefault(start, []).append(Mutant(file, start[0], name, occurrence))
    return found


def spread(files: list[str], generator: random.Random) -> Iterator[Mutant]:
    """Yield faults in random order, one from each file in turn, each place once before any comes again."""
    operators = list_operators()
    queues = []
    for file in files:
        places = list(list_mutants(file, operators).values())
        for place in places:
            generator.shuffle(place)
        generator.shuffle(places)
        rounds = itertools.zip_longest(*places)
        queues.append([mutant for round_ in rounds for mutant in round_ if mutant is not None])
    for round_ in itertools.zip_longest(*queues):
        yield from (mutant for mutant in generator.sample(round_, len(round_)) if mutant is not None)


def change_code(mutant: Mutant) -> str | None:
    """Return the text with the fault, and note what changed; None where that is no Python."""
    operator = list_operators()[mutant.operator]
    code = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = importlib.import_module("cosmic_ray.mutating").mutate_code(code, operator, mutant.occurrence)
    if changed is None or changed == code:
        return None
    try:
        compile(changed, mutant.file, "exec")
    except (SyntaxError, ValueError):
        return None
    lines = difflib.unified_diff(code.splitlines(), changed.splitlines(), n=0, lineterm="")
    mutant.change = "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[:2] not in ("--", "++", "@@"))
    return str(changed)


def run_tests(folder: Path, tests: list[str], limit: float) -> None:
    """Run tests in a copy of the project, in this process, and leave with pytest's answer."""
    import pytest

    os.setsid()
    os.chdir(folder)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (round(limit), round(limit)))
    source = str(folder / "src")
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, source)
    # Two faults in one second could be taken for one: what was compiled from the right code is read, nothing is added.
    sys.dont_write_bytecode = True
    # One of the plugins is among what was imported before.
    options = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-x", "-q", "--tb=short"]
    options += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    options += [f"--deselect={file}::{name}" for file, names in LEFT_OUT.items() for name in names]
    code = pytest.main([*options, *tests])
    (folder / "seconds").write_text(str(time.process_time()))
    sys.exit(int(code))


def start(worker: Worker, package: str, limit: float) -> None:
    tests = GUARDS[package][worker.stage].split()
    context = multiprocessing.get_context("fork")
    worker.process = context.Process(target=run_tests, args=(worker.folder, tests, limit))
    worker.process.start()
    worker.end = time.monotonic() + WAITING * limit


def stop(worker: Worker) -> None:
    """End the process of a worker and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    # It may be too young to lead a group.
    worker.process.kill()
    worker.process.join()


def copy_project(folder: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)


def time_right_code(workers: list[Worker], packages: list[str]) -> dict[str, list[float]]:
    """Return how long the tests of each package take on the right code; leave where one fails."""
    lines = [(package, stage) for package in packages for stage in range(len(GUARDS[package]))]
    seconds: dict[str, list[float]] = {package: [0.0] * len(GUARDS[package]) for package in packages}
    while lines:
        now, lines = lines[: len(workers)], lines[len(workers) :]
        for worker, (package, stage) in zip(workers, now, strict=False):
            worker.stage = stage
            start(worker, package, 600.0)
        for worker, (package, stage) in zip(workers, now, strict=False):
            worker.process.join()
            if worker.process.exitcode != 0:
                print((worker.folder / "log").read_text()[-4000:])
                sys.exit(f"the tests of {package} fail on the code as it is (see above): mutants would tell nothing")
            seconds[package][stage] = float((worker.folder / "seconds").read_text())
    return seconds


def mend(worker: Worker) -> None:
    """Put the right code back, with its time, so that what was compiled from it is valid."""
    if worker.mutant is not None:
        shutil.copy2(ROOT / worker.mutant.file, worker.folder / worker.mutant.file)
        worker.mutant = None


def package_of(mutant: Mutant) -> str:
    return Path(mutant.file).relative_to(HOUSE).parts[0]


def give_work(worker: Worker, queue: Iterator[Mutant], seconds: dict[str, list[float]]) -> None:
    """Start the tests of the next mutant that is Python."""
    for mutant in queue:
        if (code := change_code(mutant)) is not None:
            # Newer than what was compiled from the right code, which is therefore not read.
            (worker.folder / mutant.file).write_text(code, encoding="utf-8")
            worker.mutant, worker.stage = mutant, 0
            package = package_of(mutant)
            start(worker, package, PATIENCE * seconds[package][0] + GRACE)
            return


def settle(worker: Worker, seconds: dict[str, list[float]]) -> bool:
    """Note what a process found, or go on with the next line of tests; return whether the mutant is done."""
    mutant = worker.mutant
    assert mutant is not None
    late = worker.process.is_alive()
    stop(worker)
    # At its limit the system ends a process with a signal; one that fell by itself has another.
    late = late or worker.process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
    package = package_of(mutant)
    if late or worker.process.exitcode != 0:
        mutant.outcome = "out of time" if late else "found"
    elif worker.stage + 1 < len(GUARDS[package]):
        worker.stage += 1
        start(worker, package, PATIENCE * seconds[package][worker.stage] + GRACE)
        return False
    else:
        mutant.outcome = "survived"
    mend(worker)
    return True


def run_mutants(
    workers: list[Worker], queue: Iterator[Mutant], seconds: dict[str, list[float]], end: float
) -> list[Mutant]:
    """Return the faults that were tested before the end."""
    done: list[Mutant] = []
    for worker in workers:
        give_work(worker, queue, seconds)
    while busy := [worker for worker in workers if worker.mutant is not None]:
        left = min([end, *(worker.end for worker in busy)]) - time.monotonic()
        wait([worker.process.sentinel for worker in busy], timeout=max(left, 0.0))
        if time.monotonic() > end:
            break
        for worker in busy:
            mutant = worker.mutant
            if (worker.process.is_alive() and time.monotonic() < worker.end) or not settle(worker, seconds):
                continue
            assert mutant is not None
            done.append(mutant)
            if mutant.outcome == "survived":
                print(f"\n{mutant.file}:{mutant.line} {mutant.operator}\n{mutant.change}", flush=True)
            give_work(worker, queue, seconds)
    for worker in workers:
        if worker.mutant is not None:
            stop(worker)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long, tests of the right code included")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="which faults, and in which order")
    parser.add_argument("--only", action="append", help="files whose name holds this, e.g. algebra or prior/latents")
    parser.add_argument("--json", type=Path, help="write all faults and what became of them to this file")
    parser.add_argument("--tools", type=Path, help="a folder with cosmic-ray in it")
    options = parser.parse_args()
    if options.tools:
        sys.path.append(str(options.tools.resolve()))
    end = time.monotonic() + options.seconds
    os.environ.update(ENVIRONMENT)
    files = sorted(path.relative_to(ROOT).as_posix() for p in GUARDS for path in (ROOT / HOUSE / p).rglob("*.py"))
    files = [file for file in files if not options.only or any(part in file for part in options.only)]
    packages = [name for name in GUARDS if any(file.startswith(f"{(HOUSE / name).as_posix()}/") for file in files)]
    queue = spread(files, random.Random(options.seed))
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as place:
        workers = [Worker(Path(place, str(number))) for number in range(options.workers)]
        for worker in workers:
            copy_project(worker.folder)
            compileall.compile_dir(worker.folder / "src", quiet=2)
        seconds = time_right_code(workers, packages)
        for name, times in seconds.items():
            print(f"{name}: {' + '.join(f'{t:.0f}' for t in times)} s on the right code", flush=True)
        done = run_mutants(workers, queue, seconds, end)
    report(done, packages)
    if options.json:
        options.json.write_text(json.dumps([asdict(mutant) for mutant in done], indent=1) + "\n")


def report(done: list[Mutant], packages: list[str]) -> None:
    print(f"\n{'package':<12} {'mutants':>8} {'found':>8} {'out of time':>12} {'survived':>9}")
    for name in (*packages, "all"):
        outcomes = [mutant.outcome for mutant in done if name in ("all", package_of(mutant))]
        counts = [outcomes.count(outcome) for outcome in ("found", "out of time", "survived")]
        print(f"{name:<12} {len(outcomes):>8} {counts[0]:>8} {counts[1]:>12} {counts[2]:>9}")


if __name__ == "__main__":
    main()
