"""Claim: "not identified" is said of parameters that the data do not determine, and of no others.

Simulated cases in which the truth about it is known: catalog systems and others, with random values of the parameters
and random units of time and channels. What is undetermined is known from the equations by hand (channels that are not
measured), or because the motion is too simple, or because an input does nothing; what is determined is checked on the
exact solution, by the singular values of what each parameter changes in the equations. Required: said for 95 of 100
that are undetermined, and for at most 2 of 100 that are determined. Fits that say that their search failed count, too.

The part "equivalent" checks the rule that no interval, bound or verdict excludes a point whose log evidence is within
1.92 of the maximum, as found by an independent global search (`interval_rule.py`). Required: no violation.

The part "invariance" checks that verdicts depend neither on the order of parameters, equations and channels nor on
units (`invariance.py`). Required: no difference in 100 systems (four seeds).

    python benchmarks/identification.py [--part NAME] [--seeds N] [--first N] [--jobs N] [--only TEXT] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import lodekit as lk
from interval_rule import check_case, draw_cases
from invariance import check_invariance, draw_invariance_cases
from lodekit.prior.observables import EquationResiduals
from lodekit.results.simulation import simulate

Array = NDArray[np.float64]
TIMES = 40
#: The noise of each channel in units of its spread, one after the other for the seeds.
NOISES = (0.01, 0.05, 0.002)
#: Where each system shows what it does at its values in the catalog.
WINDOWS = {
    "heating": 6.0,
    "free_decay": 8.0,
    "shaken_oscillator": 12.0,
    "spring_mass_damper": 10.0,
    "two_mass": 12.0,
    "rlc_circuit": 5.0,
    "coupled_tanks": 12.0,
    "compartments": 12.0,
    "two_room": 40.0,
    "quarter_car": 1.5,
    "cart_pendulum": 6.0,
}
#: What was measured, and which parameters that leaves open, from the equations by hand: system, channels,
#: parameters that are open, and some that are not.
HIDDEN = [
    ("heating", "f1 f2", "a", "b"),  # u makes up for any a
    ("spring_mass_damper", "x", "m c k", ""),  # x may be anything, whatever m, c and k are
    ("rlc_circuit", "q i", "R L C", ""),
    ("two_mass", "x1 x2", "m1 m2 k1 k2", ""),  # the first equation tells k1/m1 and k2/m1
    ("coupled_tanks", "h1 h2", "A1 A2 c1 c2", ""),  # the second one tells c1/A2 and c2/A2
    ("coupled_tanks", "h2 q", "A1 A2 c1", "c2"),  # three coefficients of h2'', h2' and h2 for four parameters
    ("compartments", "blood tissue", "k10", "k12 k21"),
    ("two_room", "T1 T2", "b", "a c Ta"),
    ("quarter_car", "zs zu zr", "ms mu ks cs kt", ""),  # all can be multiplied by one number
    ("cart_pendulum", "x phi", "M m", "l"),
]
#: What determines everything.
SEEN = [
    ("heating", "f1 f2 u"),
    ("heating", "f2 u"),
    ("free_decay", "x"),
    ("shaken_oscillator", "x"),
    ("spring_mass_damper", "x F"),
    ("rlc_circuit", "q i V"),
    ("rlc_circuit", "i V"),
    ("two_mass", "x1 x2 F"),
    ("coupled_tanks", "h1 h2 q"),
    ("compartments", "blood tissue dose"),
    ("two_room", "T1 T2 q"),
]


@dataclass(frozen=True)
class Case:
    """Data with a truth about what they determine."""

    name: str
    system: lk.System
    times: Array
    data: dict[str, Array]
    undetermined: tuple[str, ...]
    determined: tuple[str, ...]
    noise_std: float | None = None


def drawn_values(example: lk.catalog.Example, generator: np.random.Generator) -> dict[str, float]:
    """Values of the parameters within a factor of two of those of the catalog."""
    return {key: float(value) * float(2 ** generator.uniform(-1, 1)) for key, value in example.values.items()}


def in_other_units(
    system: lk.System, times: Array, data: dict[str, Array], generator: np.random.Generator
) -> tuple[Array, dict[str, Array]]:
    """The same data in random units of time and channels, as far as the equations leave them free."""
    found = system.dimensions()
    if found.numbers:
        return times, data
    units: dict[str, float] = {}

    def unit(name: str) -> float:
        return units.setdefault(name, float(10 ** generator.uniform(-3, 3)))

    scales = {
        name: float(np.prod([unit(base) ** float(power) for base, power in found.channels[name].items()]))
        for name in data
    }
    return times * unit("t"), {name: values * scales[name] for name, values in data.items()}


def told(example: lk.catalog.Example, values: dict[str, float], times: Array, table: Array, noise: float) -> set[str]:
    """Parameters that a solution on a fine grid determines well, from what they change in the equations."""
    terms = EquationResiduals(example.system)
    rows = slice(len(times) // 20, -(len(times) // 20))
    columns = []
    for j, k in terms.derivatives:
        column = table[:, j]
        for _ in range(k):
            column = np.gradient(column, times, edge_order=2)
        columns.append(column[rows])
    stack = np.stack(columns, axis=1)[None]
    theta = np.array(list(values.values()))
    sides = [
        [terms.residual(theta * (1 + h * unit), times[rows], stack, relative=False)[0] for h in (1e-4, -1e-4)]
        for unit in np.eye(len(theta))
    ]
    slopes = np.stack([(above - below) / 2e-4 for above, below in sides], axis=2)
    # Each equation in the size of what moves in it.
    slopes /= np.sqrt(np.mean(np.sum(slopes**2, axis=2), axis=0))[None, :, None] + 1e-300
    matrix = slopes.reshape(-1, len(theta))
    _, sizes, directions = np.linalg.svd(matrix / np.sqrt(len(matrix)), full_matrices=False)
    errors = np.sqrt(np.sum((directions / np.maximum(sizes, 1e-12)[:, None]) ** 2, axis=0))
    # A derivative has a few times the noise of its channel; TIMES measurements make some of it up.
    return {key for key, error in zip(values, errors, strict=True) if 5.0 * noise * error / np.sqrt(TIMES / 4) < 0.15}


def with_signs(system: lk.System, seed: int) -> lk.System:
    """The system as it is, or, for odd seeds, with parameters that may have either sign."""
    if seed % 2 == 0:
        return system
    return lk.System(list(system.equations), parameters=list(system.parameters), channels=system.channels)


def drawn_case(name: str, channels: list[str], undetermined: list[str], rest: list[str], seed: int) -> Case:
    """A solution drawn from the prior at random values, some of its channels measured with noise."""
    generator = np.random.default_rng([seed, len(name), len(channels)])
    example = lk.catalog.find_example(name)
    assert example is not None, name
    values, last, noise = drawn_values(example, generator), WINDOWS[name], NOISES[seed % 3]
    fine = np.linspace(0.0, last, 10 * (TIMES - 1) + 1)
    table = simulate(example.system, fine, values, lengthscale=last / 8, random_state=seed)[0]
    sure = told(example, values, fine, table, noise)
    times, exact = fine[::10], dict(zip(example.system.channels, table[::10].T, strict=True))
    data = {key: exact[key] + noise * exact[key].std() * generator.standard_normal(TIMES) for key in channels}
    times, data = in_other_units(example.system, times, data, generator)
    determined = tuple(n for n in rest if n in sure)
    return Case(
        f"{name}: {' '.join(channels)}", with_signs(example.system, seed), times, data, tuple(undetermined), determined
    )


def simple_motion(seed: int) -> Iterator[Case]:
    """Curves that solve the equations for many values: exact solutions of one rhythm, of one rate, or of none."""
    generator, noise = np.random.default_rng([seed, 77]), NOISES[seed % 3]
    for name, open_ones, rest in (
        ("spring_mass_damper", "m c k", ""),
        ("rlc_circuit", "R L C", ""),
        ("cart_pendulum", "M m", "l"),
    ):
        example = lk.catalog.find_example(name)
        assert example is not None, name
        times = np.linspace(0.0, WINDOWS[name], TIMES)
        exact = dict(zip(example.system.channels, example.solution_at(times).T, strict=True))
        data = {key: x + noise * x.std() * generator.standard_normal(TIMES) for key, x in exact.items()}
        times, data = in_other_units(example.system, times, data, generator)
        system = with_signs(example.system, seed)
        yield Case(f"{name}: one rhythm", system, times, data, tuple(open_ones.split()), tuple(rest.split()))
    times = np.linspace(0.0, 5.0, TIMES)
    rate = float(generator.uniform(0.3, 1.0))
    both = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    x = np.exp(-rate * times) + noise * 0.3 * generator.standard_normal(TIMES)
    times_, data = in_other_units(both, times, {"x": x}, generator)
    yield Case("x'' + c*x' + k*x = 0: one rate", both, times_, data, ("c", "k"), ())
    plant = lk.System("y' = -a*y + b*u", parameters={n: lk.Parameter(positive=True) for n in "ab"})
    y = np.exp(-rate * times) + noise * 0.3 * generator.standard_normal(TIMES)
    times_, data = in_other_units(plant, times, {"y": y, "u": 0.01 * generator.standard_normal(TIMES)}, generator)
    yield Case("y' = -a*y + b*u: no input", plant, times_, data, ("b",), ())


def clean_data(seed: int) -> Iterator[Case]:
    """Data with next to no noise, known or not: all is determined."""
    generator = np.random.default_rng([seed, 99])
    for name, channels, noise_std in (("coupled_tanks", "h1 h2 q", 1e-6), ("coupled_tanks", "h1 h2 q", None)):
        example = lk.catalog.find_example(name)
        assert example is not None, name
        times = np.linspace(0.0, WINDOWS[name], 30)
        exact = dict(zip(example.system.channels, example.solution_at(times).T, strict=True))
        data = {key: exact[key] + (noise_std or 0.0) * generator.standard_normal(30) for key in channels.split()}
        yield Case(f"{name}: no noise", example.system, times, data, (), tuple(example.values), noise_std)
    system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    times = np.linspace(0.0, 8.0, TIMES)
    c, k = float(generator.uniform(0.1, 0.8)), float(generator.uniform(2, 6))
    x = np.exp(-c / 2 * times) * np.cos(np.sqrt(k - c * c / 4) * times)
    x = x + 1e-6 * generator.standard_normal(TIMES)
    yield Case("x'' + c*x' + k*x = 0: no noise", system, times, {"x": x}, (), ("c", "k"), 1e-6)


def cases(seed: int, only: str) -> Iterator[Case]:
    """Yield the cases whose name contains a text; the others are not simulated."""
    for name, channels, open_ones, rest in HIDDEN:
        if only in f"{name}: {channels}":
            yield drawn_case(name, channels.split(), open_ones.split(), rest.split(), seed)
    for name, channels in SEEN:
        example = lk.catalog.find_example(name)
        assert example is not None, name
        if only in f"{name}: {channels}":
            yield drawn_case(name, channels.split(), [], list(example.values), seed)
    yield from (case for some in (simple_motion, clean_data) for case in some(seed) if only in case.name)


def judge(case: Case, seed: int) -> dict[str, Any]:
    """What is said about the parameters of one case."""
    start = time.process_time()
    with threadpool_limits(1, user_api="blas"):
        gp = lk.LODEGP(case.system, noise="channel", random_state=seed).fit(case.times, case.data, case.noise_std)
    said = {name: each.note for name, each in gp.parameters_.items() if not each.identified}
    return {
        "case": case.name,
        "seed": seed,
        "converged": gp.converged_,
        "missed": [name for name in case.undetermined if name not in said],
        "wrong": {name: said[name] for name in case.determined if name in said},
        "undetermined": len(case.undetermined),
        "determined": len(case.determined),
        "evidence": gp.log_evidence_,
        "seconds": time.process_time() - start,
    }


def print_verdicts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print how often "not identified" was said, and return the counts."""
    print(f"{'case':<42}{'undetermined':>14}{'said':>6}{'determined':>12}{'called open':>13}{'failed':>8}{'s':>7}")
    for name in dict.fromkeys(row["case"] for row in rows):
        own = [row for row in rows if row["case"] == name]
        open_ones = sum(row["undetermined"] for row in own)
        print(
            f"{name:<42}{open_ones:>14}{open_ones - sum(len(row['missed']) for row in own):>6}"
            f"{sum(row['determined'] for row in own):>12}{sum(len(row['wrong']) for row in own):>13}"
            f"{sum(not row['converged'] for row in own):>8}{np.mean([row['seconds'] for row in own]):>7.2f}"
        )
    open_ones, sure = (sum(row[key] for row in rows) for key in ("undetermined", "determined"))
    missed, wrong = (sum(len(row[key]) for row in rows) for key in ("missed", "wrong"))
    print(f"\nundetermined: said of {open_ones - missed} of {open_ones} (required: 95 %)")
    print(f"determined: said of {wrong} of {sure} (required: at most 2 %)")
    return {"undetermined": open_ones, "said": open_ones - missed, "determined": sure, "wrong": wrong}


def print_violations(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print what intervals, bounds and verdicts exclude although it is about as likely, and return the counts."""
    for row in rows:
        for name, each in row["excluded"].items():
            low, high = each["interval"]
            print(
                f"{row['case']}, seed {row['seed']}: {name} in ({low:.4g}, {high:.4g}), "
                f"but {each['value']:.4g} is within {-each['height']:.2f} of the maximum"
            )
    violated, better = sum(bool(row["excluded"]) for row in rows), sum(row["gain"] > 0.1 for row in rows)
    print(f"{len(rows)} cases, {violated} with an interval, bound or verdict that is wrong (required: 0)")
    refused = sum("refused" in row for row in rows)
    print(f"{better} with an optimum that is higher by more than 0.1 nats, {refused} refused because of rounding")
    return {"cases": len(rows), "violated": violated, "better": better, "refused": refused}


def print_differences(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print how many systems differ in what if they are written differently, and return the counts."""
    for row in rows:
        for change, lines in row["details"].items():
            print(f"{row['case']}, seed {row['seed']}, {change}: {', '.join(row['different'][change])}")
            print(*(f"    {line}" for line in lines), sep="\n")
    kinds = dict.fromkeys(kind for row in rows for found in row["different"].values() for kind in found)
    counts = {
        change: {kind: sum(kind in row["different"][change] for row in rows) for kind in kinds}
        for change in rows[0]["different"]
    }
    print(f"{'changed':<14}" + "".join(f"{kind:>14}" for kind in kinds))
    for change, found in counts.items():
        print(f"{change:<14}" + "".join(f"{found[kind]:>14}" for kind in kinds))
    different = sum(any(row["different"].values()) for row in rows)
    print(f"{len(rows)} systems, {different} of which differ in something (required: 0)")
    return {"cases": len(rows), "different": different, "counts": counts}


#: What draws the cases of each part, what judges one, and what prints the results.
PARTS: dict[str, tuple[Any, Any, Any]] = {
    "verdicts": (cases, judge, print_verdicts),
    "equivalent": (draw_cases, check_case, print_violations),
    "invariance": (draw_invariance_cases, check_invariance, print_differences),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=tuple(PARTS), default="verdicts")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    drawn, work, show = PARTS[options.part]
    tasks = [(case, seed) for seed in seeds for case in drawn(seed, options.only)]
    rows = Parallel(n_jobs=options.jobs)(delayed(work)(case, seed) for case, seed in tasks)
    counts = show(rows)
    if options.json:
        options.json.write_text(json.dumps({**counts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
