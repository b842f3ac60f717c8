"""Claim: bands and intervals hold the truth as often as they say, inside the data and beyond them.

Catalog systems, 30 times, noise of 5 % of the spread of each channel, many data sets. For each system: how often bands
hold the truth, with the uncertainty of all that was learned and without it, and how often the intervals of the
parameters do, at 50, 90, 95 and 99 %; beside it the mean log density of new measurements, which `score` counts.

Where truths come from:

- plants, the default: random parameters around those of the catalog, random initial states, smooth random inputs, put
  through the equations by a Runge-Kutta method (random_plants.py). Nothing of that is known to the search or the prior.
  Beyond the data, inputs are measured and nothing else is: what an input will be is no matter of the equations.
- drawn: random parameters as well, and curves from the model's own prior, of random lengthscale. Over these a model
  that is right must keep its promises, whatever was measured; nothing is measured beyond the data.
- catalog: the exact solution of the catalog, one curve for all data sets; only the noise differs. No model promises
  coverage for one curve: what its prior finds unlikely is drawn to the same side in each data set. Parameters that
  the curve leaves open, to first order, are marked.

A verdict is "ok" where the coverage at 95 % lies between 92 and 97, give or take two standard errors of what so many
data sets can tell: binomial ones for intervals, those of the mean over data sets for bands. Judged are the data sets
that would tell all parameters, whatever their noise is: the exact curves, with the noise that they will have taken as
known, determine each to better than one half, and the fit says that it has converged. A choice that looks at the noise,
such as what the fit calls identified, would keep those in which chance has made a parameter large that data hardly
tell, and no interval holds what it says of such a choice; these figures are printed beside. All intervals count, those
that are open to one side as well. A system of which fewer than one data set in ten, or twenty, are left is not judged:
then each parameter is, in the data sets that would tell it. A search from the truth tells where a fit has ended in a
poor optimum; these count, and the verdict says whether it would be another without them.

    python benchmarks/calibration.py [--truth plants|drawn|catalog] [--seeds N] [--jobs N] [--systems NAME ...]
                                     [--prior NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import sympy
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import norm
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.diagnostics.identifiability import relative_standard_errors
from lodekit.fitting.lbfgs import maximize_lbfgs
from lodekit.prior.observables import EquationResiduals
from lodekit.results.fit import Fit
from lodekit.results.simulation import simulate
from random_plants import INPUTS, draw_values, run_plant

Array = NDArray[np.float64]
#: Where each system shows what it does: some periods, or a few times the slowest decay.
WINDOWS = {
    "heating": (-5.0, 5.0),
    "free_decay": (0.0, 8.0),
    "shaken_oscillator": (0.0, 12.0),
    "spring_mass_damper": (0.0, 10.0),
    "two_mass": (0.0, 12.0),
    "coupled_tanks": (0.0, 12.0),
    "compartments": (0.0, 12.0),
    "two_room": (0.0, 40.0),
    "cart_pendulum": (0.0, 1.5),
    "quarter_car": (0.0, 0.3),
}
#: Looked at so long that they are too slow to show all: data that leave parameters open.
SLOW = {"cart_pendulum, slow": (1.0, 6.0), "quarter_car, slow": (1.0, 6.0)}
WINDOWS |= SLOW
SHARES, PLACES = (0.5, 0.9, 0.95, 0.99), ("inside", "beyond")
#: Which of them is judged.
JUDGED = SHARES.index(0.95)
TIMES, NOISE = 30, 0.05
#: What the equations leave open, or what no smooth input shows, is known: a common factor of all masses and springs,
#: and the small voltage that a turning motor makes.
KNOWN = {"quarter_car": ("ms",), "dc_motor": ("K",)}
#: Lengthscales of drawn curves, in windows.
SHORTEST, LONGEST = 0.12, 0.4
#: What is required of coverage at 95 %.
LEAST, MOST = 0.92, 0.97
#: The share of data sets that must tell all parameters, and how many must.
TOLD, FEWEST = 0.1, 20
#: A design tells a parameter whose error would be less than this, on the scale of the search or in units of its size.
TELLING = 0.5
#: A fit so far below a search from the truth has ended in a poor optimum.
POOR = 0.1


def find(name: str) -> lk.catalog.Example:
    example = lk.catalog.find_example(name.split(",", maxsplit=1)[0])
    assert example is not None, name
    return example


def open_parameters(example: lk.catalog.Example) -> list[str]:
    """Return parameters that can move, perhaps with others, without any change of what the solution leaves over."""
    if not example.values:
        return []
    terms, t = EquationResiduals(example.system), sympy.Symbol("t")
    times = np.linspace(*WINDOWS.get(example.name, (1.0, 6.0)), 200)
    channels = example.system.channels
    columns = [
        sympy.lambdify(t, example.solution[channels[j]].diff(t, k), "numpy")(times) for j, k in terms.derivatives
    ]
    values = np.stack([np.broadcast_to(column, times.shape) for column in columns], axis=1)[None].astype(float)
    theta = np.array([float(value) for value in example.values.values()])
    # Equations are of low degree in the parameters: a step of one part in a thousand is accurate enough.
    sides = [
        [terms.residual(theta * (1 + h * unit), times, values, relative=False).ravel() for h in (1e-3, -1e-3)]
        for unit in np.eye(len(theta))
    ]
    slopes = np.stack([above - below for above, below in sides], axis=1)
    _, sizes, directions = np.linalg.svd(slopes / np.linalg.norm(slopes, axis=0), full_matrices=False)
    flat = directions[sizes < 1e-6 * sizes[0]]
    return [
        key for key, moves in zip(example.values, np.abs(flat).max(axis=0, initial=0.0), strict=True) if moves > 0.01
    ]


def make_truth(name: str, seed: int, source: str, times: Array) -> tuple[dict[str, float], Array]:
    """Return true parameters and the true curves of all channels at some times."""
    example, window = find(name), WINDOWS.get(name, (1.0, 6.0))
    generator = np.random.default_rng([zlib.crc32(example.name.encode()), seed, 0])
    if source == "plants":
        return run_plant(example, times, window, generator)
    values = {key: float(value) for key, value in example.values.items()}
    if source == "catalog":
        return values, example.solution_at(times)
    values = draw_values(example, generator)
    length = (window[1] - window[0]) * np.exp(generator.uniform(np.log(SHORTEST), np.log(LONGEST)))
    own = int(generator.integers(2**31))
    return values, simulate(example.system, times, values, lengthscale=float(length), random_state=own)[0]


def with_known(example: lk.catalog.Example, values: dict[str, float], *, told: bool = False) -> lk.System:
    """Return the system of an example, with parameters that are left open by nature at their true values.

    Where told, searches of all others start at the truth.
    """
    known, system = KNOWN.get(example.name, ()), example.system
    parameters = {
        key: lk.Parameter(
            positive=parameter.positive,
            fixed=values[key] if key in known else None,
            start=values[key] if told and key not in known else None,
        )
        for key, parameter in system.parameters.items()
    }
    return lk.System(list(system.equations), parameters=parameters, channels=system.channels)


def expected_errors(system: lk.System, times: Array, exact: Array, noise: Array, prior: str) -> dict[str, float]:
    """Return the errors that a design lets expect: of the exact curves, with the noise that they will have known.

    They are on the scale of the search, or in units of the size of what may be anything; infinite at a bound.
    """
    fit = lk.LODEGP(system, prior=prior, random_state=0).fit(times, exact, np.broadcast_to(noise, exact.shape)).fit_
    found = relative_standard_errors(fit.setup.objective, fit.optimum, fit.corrected_information)
    return {key: found.get(key) or np.inf for key, each in system.parameters.items() if each.fixed is None}


def one(name: str, seed: int, source: str, prior: str = "latent") -> dict[str, Any]:
    """Return how often bands and intervals of one fit hold the truth."""
    example, (first, last) = find(name), WINDOWS.get(name, (1.0, 6.0))
    grids = {"inside": np.linspace(first, last, 41), "beyond": np.linspace(last, last + 0.25 * (last - first), 12)}
    times = np.linspace(first, last, TIMES)
    with threadpool_limits(1, user_api="blas"):
        values, solution = make_truth(name, seed, source, np.concatenate([times, *grids.values()]))
        exact, *truths = np.split(solution, np.cumsum([TIMES, len(grids["inside"])]))
        noise = NOISE * exact.std(axis=0)
        generator = np.random.default_rng([zlib.crc32(example.name.encode()), seed, 1])
        data = exact + noise * generator.standard_normal(exact.shape)
        if source == "plants":
            more = truths[1] + noise * generator.standard_normal(truths[1].shape)
            hidden = [channel not in INPUTS[example.name] for channel in example.system.channels]
            more[:, hidden] = np.nan
            times, data = np.concatenate([times, grids["beyond"]]), np.concatenate([data, more])
            exact = np.concatenate([exact, np.where(hidden, np.nan, truths[1])])
        gp = lk.LODEGP(with_known(example, values), noise="channel", prior=prior, random_state=seed).fit(times, data)
        found: dict[str, Any] = {"system": name, "seed": seed, "converged": gp.converged_, "warnings": gp.warnings_}
        levels = np.array([gp.noise_[channel] for channel in example.system.channels])
        for (place, grid), truth in zip(grids.items(), truths, strict=True):
            new = truth + noise * generator.standard_normal(truth.shape)
            for parameters in ("uncertain", "fixed"):
                mean, std = gp.predict(grid, return_std=True, parameters=parameters)
                far = np.abs(truth - mean) / np.maximum(std, 1e-300)
                held = [float(np.mean(far < norm.ppf(0.5 + 0.5 * share))) for share in SHARES]
                density = float(np.mean(norm.logpdf(new, mean, np.hypot(std, levels))))
                found[f"{place}, {parameters}"] = [*held, density]
        found["design"] = expected_errors(with_known(example, values, told=True), times, exact, noise, prior)
        found["intervals"] = intervals(gp.fit_, values)
        found["below"] = distance_below(gp.fit_, values, noise)
    return found


def true_point(fit: Fit, values: dict[str, float]) -> Array:
    """Return the optimum with the true parameters in place of the estimates."""
    x, layout = fit.optimum.x.copy(), fit.layout
    for position, number in enumerate(layout.free_parameters):
        x[position] = layout.transforms[number].inverse(values[layout.names[number]])
    return x


def intervals(fit: Fit, values: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Return, for each learned parameter, whether it is identified, its error, and which intervals hold the truth."""
    levels = [fit.estimates_at(share) for share in SHARES]
    found: dict[str, dict[str, Any]] = {}
    for position, number in enumerate(fit.layout.free_parameters):
        key, transform = fit.layout.names[number], fit.layout.transforms[number]
        estimate = fit.estimates[key]
        held = [each[key].interval[0] <= values[key] <= each[key].interval[1] for each in levels]
        found[key] = {"identified": estimate.identified, "held": held}
        if estimate.identified:
            apart = fit.optimum.x[position] - true_point(fit, values)[position]
            error = apart / float(np.sqrt(fit.covariance[position, position]))
            if transform.is_unbounded:
                error = (estimate.value - values[key]) / estimate.std_error
            found[key] |= {"error": float(error), "freedom": float(fit.profile_shapes[0][position])}
    return found


def distance_below(fit: Fit, values: dict[str, float], noise: Array) -> float:
    """Return how far a fit lies below the better of two searches that start at the true parameters."""
    x, objective = true_point(fit, values), fit.setup.objective
    other, blocks = x.copy(), fit.layout.slices
    other[blocks.noise], other[blocks.lengthscales] = np.log(noise), np.log(0.2)
    return max(maximize_lbfgs(objective, start).value for start in (x, other)) - fit.optimum.value


def coverage(shares: list[list[float]], *, binomial: bool) -> dict[str, Any]:
    """Return the mean coverage at all levels, and what it is uncertain by."""
    table = np.array(shares, dtype=float).reshape(-1, len(SHARES))
    if not len(table):
        return {"n": 0}
    mean, n = table.mean(axis=0), len(table)
    spread = np.sqrt(np.array(SHARES) * (1 - np.array(SHARES))) if binomial else table.std(axis=0, ddof=min(1, n - 1))
    return {"n": n, "coverage": mean.tolist(), "errors": (spread / np.sqrt(n)).tolist()}


def is_kept(found: dict[str, Any]) -> bool:
    """Return whether coverage at 95 % is what is required, as far as so many data sets can tell."""
    if not found["n"]:
        return True
    middle, error = found["coverage"][JUDGED], found["errors"][JUDGED]
    return bool(LEAST - 2 * error <= middle <= MOST + 2 * error)


def judge(fits: list[dict[str, Any]], *, told: bool = False) -> dict[str, Any]:
    """Return coverage of bands and intervals over some fits, and whether all is as required.

    Where told, intervals of parameters count that the fit calls identified, and no others.
    """
    bands = {place: coverage([fit[f"{place}, uncertain"][:-1] for fit in fits], binomial=False) for place in PLACES}
    keys = list(fits[0]["intervals"]) if fits else []
    single: dict[str, dict[str, Any]] = {}
    everything: list[list[float]] = []
    for key in keys:
        all_of_it = [fit["intervals"][key] for fit in fits]
        known = [each for each in all_of_it if each["identified"]]
        single[key] = coverage([each["held"] for each in (known if told else all_of_it)], binomial=True)
        single[key]["identified"] = len(known)
        single[key]["bias"] = float(np.median([each["error"] for each in known])) if known else None
        single[key]["freedom"] = float(np.median([each["freedom"] for each in known])) if known else None
    for fit in fits:
        held = [each["held"] for each in fit["intervals"].values() if each["identified"] or not told]
        everything += [np.mean(held, axis=0).tolist()] if held else []
    return {
        "bands": bands,
        "intervals": single,
        "all_intervals": coverage(everything, binomial=False),
        "kept": all(map(is_kept, [*bands.values(), *single.values()])),
    }


def is_told(fit: dict[str, Any]) -> bool:
    """Return whether a fit says of itself that nothing is wrong with it."""
    return bool(fit["converged"] and all(each["identified"] for each in fit["intervals"].values()))


def summarise(name: str, fits: list[dict[str, Any]], source: str) -> dict[str, Any]:
    """Return the figures of a system: over all data sets, over those that are judged, and without poor optima."""
    settled = [fit for fit in fits if fit["converged"]]
    chosen = [fit for fit in settled if max(fit["design"].values(), default=0.0) < TELLING]
    good = [fit for fit in chosen if fit["below"] < POOR]
    told = [fit for fit in fits if is_told(fit)]
    fixed = {place: np.mean([fit[f"{place}, fixed"] for fit in fits], axis=0).tolist() for place in PLACES}
    densities = {place: float(np.mean([fit[f"{place}, uncertain"][-1] for fit in fits])) for place in PLACES}
    found = {"system": name, "truth": source, "seeds": len(fits), "poor": len(chosen) - len(good)}
    found |= judge(fits, told=True)
    found["unsettled"] = len(fits) - len(settled)
    found |= {"fixed": fixed, "densities": densities, "chosen": len(chosen), "told": len(told)}
    found |= {"judged": judge(chosen), "good": judge(good), "called": judge(told, told=True)}
    found["alone"] = {
        key: judge([fit for fit in settled if fit["design"][key] < TELLING])["intervals"].get(key, {"n": 0})
        for key in fits[0]["intervals"]
    }
    found["open"] = open_parameters(find(name)) if source == "catalog" else []
    return found


def verdict(row: dict[str, Any]) -> str:
    """Return what the figures of a system say, in a word."""
    least = max(TOLD * row["seeds"], min(FEWEST, row["seeds"]))
    if row["chosen"] < least:
        judged = {key: each for key, each in row["alone"].items() if each["n"] >= least}
        good = [key for key, each in judged.items() if is_kept(each)]
        bad = [key for key in judged if key not in good]
        words = [f"{', '.join(keys)} {word}" for keys, word in ((good, "ok"), (bad, "NO")) if keys]
        return f"not judged as a whole{': ' * bool(words)}{'; '.join(words)}"
    if row["judged"]["kept"]:
        return "ok"
    return "NO, but ok without poor optima" if row["poor"] and row["good"]["kept"] else "NO"


def show(row: dict[str, Any]) -> None:
    for place in PLACES:
        left, right = row["bands"][place], row["fixed"][place]
        cells = " ".join(f"{100 * share:5.1f}" for share in left["coverage"]) + f" {row['densities'][place]:8.3f}"
        cells += "   " + " ".join(f"{100 * share:5.1f}" for share in right[:-1]) + f" {right[-1]:8.3f}"
        print(f"{row['system']:20} {place:7} {cells}", flush=True)
    for key, item in row["intervals"].items():
        left_open = ", which the exact solution leaves open" if key in row["open"] else ""
        alone = row["alone"][key]
        if alone["n"]:
            cells = " ".join(f"{100 * share:5.1f}" for share in alone["coverage"])
            note = f"in {alone['n']} data sets that would tell it, called identified in {alone['identified']} of them"
            print(f"  {key:5} {cells} % {note}{'' if is_kept(alone) else '   NO'}", flush=True)
        if not item["n"]:
            print(f"  {key:5} not identified in any data set{left_open}", flush=True)
            continue
        note = f", where it is called identified, in {item['n']} of {row['seeds']}"
        cells = " ".join(f"{100 * share:5.1f}" for share in item["coverage"])
        bias = f"off by {item['bias']:+.2f} standard errors in the median, {item['freedom']:.0f} degrees of freedom"
        print(f"  {'':5} {cells} %{note}, {bias}{left_open}", flush=True)


def coverage_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return coverage at 95 % as a table, of parameters that enough data sets tell."""
    lines = ["| system | inside, beyond | at fixed parameters | intervals |", "| --- | --- | --- | --- |"]
    for row in rows:
        bands = [100 * row["bands"][place]["coverage"][JUDGED] for place in PLACES]
        fixed = [100 * row["fixed"][place][JUDGED] for place in PLACES]
        judged = {key: item for key, item in row["alone"].items() if item["n"] >= FEWEST}
        told = [f"{key} {100 * item['coverage'][JUDGED]:.0f}" for key, item in judged.items()]
        cells = [row["system"], *(", ".join(f"{share:.0f}" for share in pair) for pair in (bands, fixed))]
        lines.append(f"| {' | '.join(cells)} | {', '.join(told)} |")
    return lines


def show_verdicts(rows: list[dict[str, Any]]) -> None:
    """Print the table that counts."""

    def cell(found: dict[str, Any]) -> str:
        if not found["n"]:
            return f"{'':>30}"
        cells = [f"{100 * share:5.1f}" for share in found["coverage"]]
        cells[JUDGED] += f"+-{100 * found['errors'][JUDGED]:3.1f}"
        return f"{' '.join(cells):>30}"

    print(
        f"\n95 % should be {100 * LEAST:g} to {100 * MOST:g}, give or take two standard errors; 50, 90, 99 % beside it"
    )
    print("judged are data sets that would tell all parameters, whatever their noise, with all their intervals;")
    print("below them, those whose fit calls all parameters identified, and all with what is called so")
    print(f"{'system':20} {'bands inside':>30} {'bands beyond':>30} {'intervals':>30}  of them     poor  verdict")
    for row in rows:
        lines = (("judged", row["judged"], row["chosen"]), ("called", row["called"], row["told"]))
        for kind, found, count in (*lines, ("all", row, row["seeds"])):
            if kind == "judged" or row["all_intervals"]["n"]:
                bands = " ".join(cell(found["bands"][place]) for place in PLACES)
                said = f"{count:>3} of {row['seeds']:<4}" + f" {row['poor']:>3}  {verdict(row)}" * (kind == "judged")
                name = row["system"] if kind == "judged" else ""
                print(f"{name:20} {bands} {cell(found['all_intervals'])}  {said}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many data sets of each system")
    parser.add_argument("--jobs", type=int, default=1, help="how many fits at the same time")
    parser.add_argument("--systems", nargs="+", help="names in the catalog; all by default")
    parser.add_argument("--truth", choices=("plants", "drawn", "catalog"), default="plants", help="their source")
    parser.add_argument("--prior", default="latent", help="the prior of all fits")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    names = options.systems or [*(example.name for example in lk.catalog.examples()), *SLOW]
    levels = " ".join(f"{100 * share:3g} %" for share in SHARES)
    print(f"{'':28} {'all that was learned uncertain':32}   at the learned values")
    print(f"{'system':20} {'':7} {levels} {'density':>8}   {levels}  density")
    rows = []
    for name in names:
        tasks = (delayed(one)(name, seed, options.truth, options.prior) for seed in range(options.seeds))
        fits = Parallel(n_jobs=options.jobs)(tasks)
        rows.append(summarise(name, list(fits), options.truth))
        show(rows[-1])
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    show_verdicts(rows)


if __name__ == "__main__":
    main()
