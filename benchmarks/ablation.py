"""Claim: every heuristic of the search has a measurable benefit: it finds better optima, or it saves evaluations.

Each heuristic is switched off in turn, or all of them at once with `--together`, and the same fits are repeated
without start values: simulated plants of `search.py` (random truths and units), driven plants of `greybox_plants.py`,
plants of `disturbances.py`, the systems of `learning.py`, the cases of `torture_cases.py` and real records, if a folder
has them. A fit is worse (better) if its objective is more than 0.1 nats below (above) that of the complete search. Cost
is counted in evaluations of the objective, a gradient as three, and in processor time.

    python benchmarks/ablation.py [--only TEXT ...] [--together] [--sets NAME ...] [--seeds N] [--jobs N]
        [--records FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import disturbances
import greybox_plants
import greybox_records
import learning
import lodekit as lk
import plants
import torture_cases
from lodekit.fitting import multistart, search_options
from lodekit.fitting.objective import Objective

#: Difference of the objective, in nats, that counts.
CLEAR = 0.1
#: Sets of cases in which a heuristic can act.
FREE = ("plants", "catalog", "torture")
DRIVEN = ("driven", "records")
DISTURBED = ("disturbances", "disturbed records")
EVERY = (*FREE, *DRIVEN, *DISTURBED)


def _nothing(*arguments: Any, **keywords: Any) -> list[Any]:
    return []


def _same_optimum(setup: Any, optimum: Any) -> Any:
    return optimum


def _none(*arguments: Any, **keywords: Any) -> None:
    return None


def _always(*arguments: Any, **keywords: Any) -> bool:
    return True


def _only_first(build: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda *arguments, **keywords: build(*arguments, **keywords)[:1]


def _never_trusted(scales: Callable[..., Any]) -> Callable[..., Any]:
    return lambda layout, trusted: scales(layout, trusted=False)


STARTS, MULTISTART = "lodekit.fitting.starts.candidates.", "lodekit.fitting.multistart."
#: Name of a heuristic -> the sets in which it can act, options that switch it off, and functions that are replaced.
HEURISTICS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "weak form": (EVERY, {}, {STARTS + "fit_weak_form": _nothing}),
    "gradient matching": (FREE, {}, {STARTS + "fit_gradient_matching": _nothing}),
    "periodogram": (FREE, {}, {STARTS + "fit_oscillations": _nothing}),
    "clipped copies of guesses": (EVERY, {}, {STARTS + "_clip_to_expected": _none}),
    "several random starts": (FREE, {"n_blind_starts": 1}, {}),
    "correlation time of the data": (
        (*FREE, "fast plants"),
        {},
        {STARTS + "estimate_correlation_time": lambda series: math.inf},
    ),
    "noise estimate from differences": (EVERY, {}, {"lodekit.fitting.setup.FitSetup.noise_estimate": None}),
    "several initial lengthscales": (FREE, {"start_lengthscales": (0.2,), "screening_lengthscales": (0.2,)}, {}),
    "second initial noise level": (FREE, {"start_noise_fractions": (0.03,)}, {}),
    "start at the largest variance": (FREE, {"variance_ratio": math.inf}, {}),
    "searches from several starts": (FREE, {}, {MULTISTART + "build_start_points": _only_first}),
    "small first steps of trusted starts": (
        (*FREE, *DISTURBED),
        {},
        {"lodekit.fitting.lbfgs._step_scales": _never_trusted},
    ),
    "scan of lengthscales": (FREE, {"max_scanned_lengthscales": 0}, {}),
    "continuation in the noise": (("little noise",), {"continuation_noise": ()}, {}),
    "segment if free functions are fast": (("fast plants",), {"fast_lengthscale": 0.0}, {}),
    "subsamples of long records": (("long records",), {"long_record_rows": 10**9}, {}),
    "refinement of rival optima": ((*FREE, "channel prior"), {}, {MULTISTART + "_leads_to": _always}),
    "snap to bounds": (EVERY, {"bound_snap_distance": 0.0}, {}),
    "Hessian along its eigenvectors": (
        (*EVERY, "little noise"),
        {"max_axes_updates": 0, "ill_conditioned_ratio": 0.0},
        {},
    ),
    "output-error method": (DRIVEN, {}, {MULTISTART + "multistart_output_error": _none}),
    "geodesic acceleration": ((*DRIVEN, *DISTURBED), {"geodesic_max_ratio": 0.0}, {}),
    "simulations of thinned records": ((*DRIVEN, *DISTURBED), {"screening_rows": 10**9}, {}),
    "several sizes of disturbances": (
        DISTURBED,
        {"disturbance_shares": (0.1,), "disturbance_lengthscales": (0.05,)},
        {},
    ),
    "scan of delays": ((*DRIVEN, *DISTURBED), {}, {MULTISTART + "improve_delays": _same_optimum}),
    "random starts with disturbances": (DISTURBED, {"n_random_disturbance_starts": 0}, {}),
    "second start with disturbances": (DISTURBED, {"n_disturbance_starts": 1}, {}),
    "origins beside the fit without disturbances": (DISTURBED, {}, {MULTISTART + "rank_starts": _nothing}),
}


class _SearchEnded(BaseException):
    """Ends a fit after its search, before its diagnostics."""


@contextmanager
def without(heuristics: tuple[str, ...]) -> Iterator[None]:
    """Switch heuristics off."""
    changes = {field: value for name in heuristics for field, value in HEURISTICS[name][1].items()}
    replacements = [item for name in heuristics for item in HEURISTICS[name][2].items()]
    with ExitStack() as stack:
        stack.enter_context(patch.object(search_options, "SEARCH", replace(search_options.SEARCH, **changes)))
        for name, new in replacements:
            owner, attribute = name.rsplit(".", 1)
            parts = owner.rsplit(".", 1)
            place = importlib.import_module(owner) if parts[1].islower() else None
            place = place or getattr(importlib.import_module(parts[0]), parts[1])
            wraps = new in (_only_first, _never_trusted)
            stack.enter_context(patch.object(place, attribute, new(getattr(place, attribute)) if wraps else new))
        yield


def measure(run: Callable[[], Any], heuristics: tuple[str, ...], limit: float = math.inf) -> dict[str, float]:
    """Return the objective at the end of the first search of a fit, and what the search has cost.

    A search that needs more evaluations than a limit is abandoned; its objective is NaN.
    """
    result = {"value": -math.inf, "evaluations": 0.0}
    maximize, value, evaluate = multistart.maximize_objective, Objective.value, Objective.evaluate

    def count(cost: float) -> None:
        result["evaluations"] += cost
        if result["evaluations"] > limit:
            result["value"] = math.nan
            raise _SearchEnded

    def count_value(self: Objective, x: Any) -> float:
        count(1.0)
        return value(self, x)

    def count_gradient(self: Objective, x: Any) -> Any:
        count(3.0)
        return evaluate(self, x)

    def stop(*arguments: Any, **keywords: Any) -> None:
        with without(heuristics):
            result["value"] = maximize(*arguments, **keywords)[0].value
        raise _SearchEnded

    begin = time.process_time()
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(patch.object(Objective, "value", count_value))
        stack.enter_context(patch.object(Objective, "evaluate", count_gradient))
        stack.enter_context(patch("lodekit.results.fit.maximize_objective", stop))
        try:
            run()
        except _SearchEnded:
            pass
        except lk.LodekitError as problem:
            print("  ", type(problem).__name__, str(problem)[:100], flush=True)
    return {**result, "seconds": time.process_time() - begin}


def fit_plant(name: str, seed: int) -> None:
    plant = plants.make(name, seed)
    lk.LODEGP(plant.system(), noise="channel", random_state=seed).fit(plant.observations())


def fit_channel_prior(seed: int) -> None:
    example, times = lk.catalog.heating(), np.linspace(-5, 5, 25)
    noise = 0.02 * np.random.default_rng(seed).standard_normal((25, 3))
    gp = lk.LODEGP(example.system, noise="shared", prior="channels", random_state=seed)
    gp.fit(times, example.solution_at(times) + noise)


def fit_torture(name: str) -> None:
    case = torture_cases.CASES[name]
    gp = lk.LODEGP(case.system(), random_state=0, **case.options)
    gp.fit(case.times, case.values(case.times), noise_std=case.noise_std)


def fit_long_record(seed: int) -> None:
    """Fit a driven plant with more rows than are searched at once."""
    with patch.object(greybox_plants, "ROWS", 50_000):
        greybox_plants.run_plant(seed)


def fit_disturbed_lamp(folder: Path, n_lags: int) -> None:
    t, u, y = np.loadtxt(folder / greybox_records.LAMP).T
    gp = lk.LODEGP(disturbances.lamp_system(n_lags), inputs={"u": "hold"}, disturbances={"w": "white"}, random_state=0)
    gp.fit(t, {"u": u, "y": y})


def collect_records(folder: Path) -> dict[tuple[str, str], Callable[[], Any]]:
    """Return fits of the real records that a folder has."""
    found: dict[tuple[str, str], Callable[[], Any]] = {}
    records: Mapping[str, Callable[[Path], Any]] = {
        greybox_records.LAMP: greybox_records.lamp,
        greybox_records.TCLAB: greybox_records.tclab,
        greybox_records.SCHOOL: greybox_records.school,
    }
    for file, record in records.items():
        if (folder / file).exists():
            found["records", record.__name__] = partial(record, folder)
    if (folder / greybox_records.LAMP).exists():
        for n_lags in (1, 2):
            found["disturbed records", f"lamp {n_lags}"] = partial(fit_disturbed_lamp, folder, n_lags)
    if (folder / greybox_records.SCHOOL).exists():
        for kind in ("white", "matern-1/2"):
            found["disturbed records", f"school {kind}"] = partial(disturbances.school, folder, (kind,))
    return found


def collect_cases(sets: tuple[str, ...], seeds: int, folder: Path) -> dict[tuple[str, str], Callable[[], Any]]:
    """Return what is fitted, by set and name."""
    found: dict[tuple[str, str], Callable[[], Any]] = {}
    for name in plants.PLANTS:
        is_long = name in ("fast", "double_integrator", "binary_plant")
        group, count = "fast plants" if name == "fast" else "plants", max(1, seeds // 3) if is_long else seeds
        found |= {(group, f"{name} {seed}"): partial(fit_plant, name, seed) for seed in range(count)}
    catalog = (
        (lk.catalog.bipendulum, (1, 6), 0.012),
        (lk.catalog.heating, (-5, 5), 0.02),
        (lk.catalog.three_tank, (1, 6), 0.08),
        (lk.catalog.free_decay, (0, 8), 0.02),
    )
    for make, window, noise in catalog:
        for seed in range(max(1, seeds // 3)):
            run = partial(learning.fit, make(), np.linspace(*window, 25), noise, seed)
            found["catalog", f"{make.__name__} {seed}"] = run
    for seed in range(max(1, seeds // 2)):
        found["channel prior", f"heating {seed}"] = partial(fit_channel_prior, seed)
    for name in torture_cases.CASES:
        group = "little noise" if "noise" in name else "torture"
        found[group, name] = partial(fit_torture, name)
    for seed in range(seeds):
        found["driven", f"plant {seed}"] = partial(greybox_plants.run_plant, seed)
        found["disturbances", f"plant {seed}"] = partial(disturbances.run_plant, seed)
    for seed in range(max(1, seeds // 2)):
        found["driven", f"dead time {seed}"] = partial(greybox_plants.run_delay, seed)
    for seed in range(2):
        found["long records", f"plant {seed}"] = partial(fit_long_record, seed)
    found |= collect_records(folder)
    return {key: run for key, run in found.items() if key[0] in sets}


def run_cases(
    heuristics: tuple[str, ...],
    keys: list[tuple[str, str]],
    cases: Mapping[tuple[str, str], Callable[[], Any]],
    jobs: int,
    reference: Mapping[Any, Mapping[str, float]] | None = None,
) -> dict[tuple[tuple[str, ...], tuple[str, str]], dict[str, float]]:
    """Return the end of each search without heuristics; with a reference, of at most five times its evaluations."""
    limits = {key: 5.0 * reference[(), key]["evaluations"] + 500.0 if reference else math.inf for key in keys}
    ends = Parallel(n_jobs=jobs, batch_size=1)(delayed(measure)(cases[key], heuristics, limits[key]) for key in keys)
    return {(heuristics, key): end for key, end in zip(keys, ends, strict=True)}


def compare(reference: list[dict[str, float]], ablated: list[dict[str, float]]) -> dict[str, float]:
    """Return in how many fits the search without a heuristic is worse and better, and the ratio of its cost."""
    pairs = [(one["value"], other["value"]) for one, other in zip(reference, ablated, strict=True)]
    lost = [0.0 if one == other or math.isnan(other) else one - other for one, other in pairs]
    cost = {
        key: sum(each[key] for each in ablated) / max(sum(each[key] for each in reference), 1e-9)
        for key in ("evaluations", "seconds")
    }
    changed = sum(a["evaluations"] != b["evaluations"] for a, b in zip(reference, ablated, strict=True))
    return {
        "fits": len(pairs),
        "changed": changed,
        "worse": sum(each > CLEAR for each in lost),
        "better": sum(each < -CLEAR for each in lost),
        "abandoned": sum(math.isnan(other) for _, other in pairs),
        "largest loss": max(lost, default=0.0),
        **cost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="heuristics whose names contain one of these words")
    parser.add_argument("--together", action="store_true", help="switch all of them off at once")
    parser.add_argument(
        "--sets", nargs="+", default=[*EVERY, "channel prior", "fast plants", "long records", "little noise"]
    )
    parser.add_argument("--seeds", type=int, default=6, help="fits of each simulated plant")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--records", type=Path, default=Path("../shared/data"), help="folder of real records")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = collect_cases(tuple(given.sets), given.seeds, given.records.resolve())
    names = [name for name in HEURISTICS if not given.only or any(word in name for word in given.only)]
    groups = [tuple(names)] if given.together else [(name,) for name in names]
    used = {group for name in names for group in HEURISTICS[name][0]}
    ends = run_cases((), [key for key in cases if key[0] in used], cases, given.jobs)
    columns = ("fits", "changed", "worse", "better", "abandoned", "largest loss", "evaluations", "seconds")
    print(f"{'without':<46}{'set':<20}" + "".join(f"{column:>14}" for column in columns))
    rows = []
    for group in groups:
        label, sets = "; ".join(group), dict.fromkeys(each for name in group for each in HEURISTICS[name][0])
        ends |= run_cases(group, [key for key in cases if key[0] in sets], cases, given.jobs, ends)
        for each in sets:
            keys = [key for key in cases if key[0] == each]
            if keys:
                row = compare([ends[(), key] for key in keys], [ends[group, key] for key in keys])
                rows.append({"heuristic": label, "set": each, **row})
                print(f"{label:<46}{each:<20}" + "".join(f"{row[column]:>14.4g}" for column in columns), flush=True)
    if given.json:
        details = [{"heuristic": "; ".join(group), "case": key, **end} for (group, key), end in ends.items()]
        given.json.write_text(json.dumps({"rows": rows, "fits": details}, indent=1) + "\n")


if __name__ == "__main__":
    main()
