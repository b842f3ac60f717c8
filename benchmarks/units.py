"""Claim: a fit does not depend on the units of time and of the channels.

Every system of the catalog is fitted to noisy data, with all parameters unknown, and again in other units: equations
are rewritten exactly, the data multiplied. The same answer means the same evidence (less the Jacobian, and relative to
its size), the same parameters called identified, the same values of these, and the same curves; the table shows how far
apart they are. Where data tell no more than combinations of parameters, the curves hold these; each by itself is open,
and is said to be.

    python benchmarks/units.py [--quick] [--systems NAME ...] [--noise SHARE ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import lodekit as lk

#: Factors of time, and of the channels in turn; ties between channels are kept, or not.
SCALINGS = (
    ("time 1e-9", Fraction(1, 10**9), (Fraction(1),), True),
    ("time 86400", Fraction(86400), (Fraction(1),), True),
    ("time 1e9", Fraction(10**9), (Fraction(1),), True),
    ("channels 1e-6, 1e6", Fraction(1), (Fraction(1, 10**6), Fraction(10**6)), True),
    ("all, consistently", Fraction(1, 10**9), (Fraction(10**6), Fraction(1, 1000)), True),
    ("all, each on its own", Fraction(10**9), (Fraction(10**6), Fraction(7, 10**6), Fraction(1, 300)), False),
)
#: Noise as a share of the spread of each channel, and how far apart two answers may be.
NOISES, CLOSE = (0.02, 0.002), 1e-6


def in_other_units(
    example: lk.catalog.Example, unit: Fraction, factors: tuple[Fraction, ...], *, tied: bool
) -> tuple[lk.System, dict[str, Fraction], dict[str, Fraction]]:
    """Return the system for ``unit * t`` and for channels times factors, and the factors of channels and parameters."""
    system, dimensions = example.system, example.system.dimensions()
    scales = {"t": unit}
    for i, name in enumerate(system.channels):
        powers = dimensions.channels[name]
        is_base = not tied or powers == {name: 1}
        scales[name] = factors[i % len(factors)] if is_base else product(powers, scales)
    sizes = {name: product(dimensions[name], scales) for name in system.parameters}
    lines = []
    for i, known in enumerate(system.forcing):
        terms = [
            (str(value), unit**k / scales[name], f"D({name}, {k})" if k else name)
            for j, name in enumerate(system.channels)
            for k, value in enumerate(system.operator.coefficients(i, j))
            if value
        ]
        text = " + ".join(f"({rewrite(value, sizes)})*({factor})*{shape}" for value, factor, shape in terms)
        lines.append(f"{text} = {rewrite(str(known), {**sizes, 't': unit})}")
    parameters = {name: lk.Parameter(positive=each.positive) for name, each in system.parameters.items()}
    return lk.System(lines, parameters=parameters, channels=system.channels), scales, sizes


def product(powers: Mapping[str, Fraction], scales: Mapping[str, Fraction]) -> Fraction:
    total = Fraction(1)
    for name, power in powers.items():
        total *= scales.get(name, Fraction(1)) ** int(power)
    return total


def rewrite(text: str, sizes: Mapping[str, Fraction]) -> str:
    """Return an expression with every name divided by its factor."""
    return re.sub(r"[A-Za-z_]\w*", lambda m: f"({m[0]}/({sizes[m[0]]}))" if m[0] in sizes else m[0], text)


def fit(system: lk.System, times: Any, data: Any) -> tuple[lk.LODEGP, float]:
    start = time.perf_counter()
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    return gp, time.perf_counter() - start


def compare(example: lk.catalog.Example, points: int, noise: float, scalings: Any = SCALINGS) -> list[dict[str, Any]]:
    """Return, for each scaling, how far evidence, parameters and curves are from those in the original units."""
    times, finer = np.linspace(0.1, 8.1, points), np.linspace(0.1, 9.1, 73)
    exact = example.solution_at(times)
    data = exact + noise * exact.std(axis=0) * np.random.default_rng(0).standard_normal(exact.shape)
    system, *_ = in_other_units(example, Fraction(1), (Fraction(1),), tied=True)
    first, seconds = fit(system, times, data)
    curves, spread = first.predict(finer), data.std(axis=0)
    rows = []
    for name, unit, factors, tied in scalings:
        other, scales, sizes = in_other_units(example, unit, factors, tied=tied)
        own = np.array([float(scales[channel]) for channel in other.channels])
        gp, elapsed = fit(other, times * float(unit), data * own)
        evidence = gp.log_evidence_ + points * float(np.log(own).sum())
        moved = gp.predict(finer * float(unit)) / own
        known = [key for key, estimate in first.parameters_.items() if estimate.identified]
        errors = [gp.parameters_[key].value / float(sizes[key]) / first.parameters_[key].value - 1 for key in known]
        rows.append(
            {
                "system": example.name,
                "noise": noise,
                "scaling": name,
                "evidence": abs(evidence - first.log_evidence_) / max(1.0, abs(first.log_evidence_)),
                "parameters": max(map(abs, errors), default=0.0),
                "curves": float(np.max(np.abs(moved - curves) / spread)),
                "same_identified": all(
                    gp.parameters_[key].identified == each.identified for key, each in first.parameters_.items()
                ),
                "same_converged": gp.converged_ == first.converged_,
                "identified": f"{len(known)} of {len(sizes)}",
                "seconds": elapsed,
                "seconds_first": seconds,
            }
        )
    return rows


def is_same(row: dict[str, Any]) -> bool:
    """Return whether an answer is the one in the original units."""
    close = max(row["evidence"], row["parameters"], row["curves"]) < CLOSE
    return bool(close and row["same_identified"] and row["same_converged"])


def units(names: list[str], points: int, noises: Sequence[float]) -> list[dict[str, Any]]:
    rows = []
    print("off by:")
    figures = f"{'evidence':>10}{'parameters':>11}{'curves':>9}"
    print(f"{'system':<20}{'noise':>6}  {'scaling':<22}{figures}{'identified':>12}{'s':>6}")
    for example in lk.catalog.examples():
        for noise in noises if example.name in names else ():
            for row in compare(example, points, noise):
                rows.append(row)
                mark = "" if row["same_identified"] else "  others are identified"
                mark += "" if row["same_converged"] else "  convergence differs"
                print(
                    f"{row['system']:<20}{100 * noise:>5g}%  {row['scaling']:<22}{row['evidence']:>10.1e}"
                    f"{row['parameters']:>11.1e}{row['curves']:>9.1e}{row['identified']:>12}{row['seconds']:>6.2f}"
                    f"{mark}{'' if is_same(row) else '  NO'}",
                    flush=True,
                )
    worst = {key: max(row[key] for row in rows) for key in ("evidence", "parameters", "curves")}
    print("largest: " + ", ".join(f"{key} {value:.1e}" for key, value in worst.items()) + f" (required: {CLOSE:g})")
    print(f"{sum(map(is_same, rows))} of {len(rows)} answers are the same")
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer measurements")
    arguments.add_argument("--systems", nargs="+", help="names in the catalog; all by default")
    arguments.add_argument(
        "--noise", nargs="+", type=float, default=NOISES, help="shares of the spread of each channel"
    )
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    options = arguments.parse_args()
    names = options.systems or [example.name for example in lk.catalog.examples()]
    rows = units(names, 15 if options.quick else 30, options.noise)
    if options.json:
        options.json.write_text(json.dumps({"units": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
