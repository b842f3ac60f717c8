"""Claim: exact analysis of engineering systems takes milliseconds, and grows gently with size.

Times are the best of several runs of the whole way from text (or matrix) to a verified parametrization. The last column
is SymPy's `smith_normal_decomp` on the same matrix in the same run, given up after a limit: the reason for our own
elimination.

    python benchmarks/algebra.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import sympy
from sympy.polys.matrices import DomainMatrix
from sympy.polys.matrices.normalforms import smith_normal_decomp

import lodekit as lk

SYMPY_LIMIT = 20.0


def state_space(states: int, inputs: int, seed: int = 1) -> lk.System:
    """A random system with dense one-decimal coefficients."""
    generator = random.Random(seed)
    A = [[generator.randint(-90, 90) / 10 for _ in range(states)] for _ in range(states)]
    B = [[generator.randint(-90, 90) / 10 for _ in range(inputs)] for _ in range(states)]
    return lk.System.from_state_space(A, B)


def chain(masses: int, *, parametric: bool = False) -> lk.System:
    return lk.catalog.mass_chain(masses, parametric=parametric).system


CASES: dict[str, tuple[Callable[[], lk.System], float | None]] = {
    "bipendulum, lengths 1 and 2": (lambda: lk.catalog.bipendulum().system, 0.02),
    "bipendulum, equal lengths": (lambda: lk.catalog.bipendulum(1, 1).system, 0.02),
    "heating": (lambda: lk.catalog.heating().system, 0.02),
    "three tank": (lambda: lk.catalog.three_tank().system, 0.02),
    "chain of 4": (lambda: chain(4), None),
    "chain of 8": (lambda: chain(8), None),
    "chain of 16": (lambda: chain(16), 1.0),
    "chain of 32": (lambda: chain(32), None),
    "chain of 6, two parameters": (lambda: chain(6, parametric=True), 1.0),
    "chain of 12, two parameters": (lambda: chain(12, parametric=True), None),
    "quarter car, five parameters": (lambda: lk.catalog.quarter_car().system, None),
    "5 states, 3 inputs": (lambda: state_space(5, 3), None),
    "10 states, 3 inputs": (lambda: state_space(10, 3), 1.0),
    "20 states, 3 inputs": (lambda: state_space(20, 3), 10.0),
    "10 states, autonomous": (lambda: state_space(10, 0), None),
}


def measure(make: Callable[[], lk.System], seconds: float) -> dict[str, float]:
    """Return the best time of each stage."""
    best: dict[str, float] = {}
    end = time.perf_counter() + seconds
    while not best or time.perf_counter() < end:
        marks = [time.perf_counter()]
        system = make()
        marks.append(time.perf_counter())
        _ = system.smith_form
        marks.append(time.perf_counter())
        _ = system.parametrization
        marks.append(time.perf_counter())
        system.verify()
        marks.append(time.perf_counter())
        stages = dict(zip(("read", "smith", "reduce", "verify"), (b - a for a, b in pairwise(marks)), strict=True))
        stages["analysis"] = stages["read"] + stages["smith"] + stages["reduce"]
        best = {stage: min(value, best.get(stage, value)) for stage, value in stages.items()}
    return best


def time_sympy(operator: sympy.Matrix, symbol: sympy.Symbol) -> float:
    parameters = sorted(operator.free_symbols - {symbol}, key=str)
    ring = (sympy.QQ.frac_field(*parameters) if parameters else sympy.QQ)[symbol]
    rows = [[ring.from_sympy(sympy.expand(operator[i, j])) for j in range(operator.cols)] for i in range(operator.rows)]
    matrix = DomainMatrix(rows, operator.shape, ring)
    start = time.perf_counter()
    smith_normal_decomp(matrix)
    return time.perf_counter() - start


def _child(connection: object, name: str) -> None:
    system = CASES[name][0]()
    connection.send(time_sympy(system.operator_matrix, system.d))  # type: ignore[attr-defined]


def sympy_seconds(name: str) -> float | None:
    """Return SymPy's time in a process of its own, or None where it takes longer than the limit."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, name))
    process.start()
    answered = ours.poll(SYMPY_LIMIT + 5)
    value = float(ours.recv()) if answered else None
    process.kill()
    process.join()
    return value


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path, help="write the table to this file")
    arguments.add_argument("--quick", action="store_true", help="one run each, without SymPy")
    arguments.add_argument("--only", default="", help="systems whose name contains this")
    options = arguments.parse_args()
    header = (
        f"{'system':<30} {'read':>8} {'smith':>8} {'reduce':>8} {'analysis':>9} {'limit':>7} {'verify':>8} {'SymPy':>9}"
    )
    print("seconds, best of several\n")
    print(header)
    print("-" * len(header))
    rows: list[dict[str, object]] = []
    late: list[str] = []
    for name in [name for name in CASES if options.only in name]:
        make, limit = CASES[name]
        stages = measure(make, 0.0 if options.quick else 1.0)
        other = None if options.quick else sympy_seconds(name)
        degrees = make().parametrization.degrees
        shown = "" if options.quick else f"> {SYMPY_LIMIT:.0f}" if other is None else f"{other:.4f}"
        cells = " ".join(f"{stages[stage]:8.4f}" for stage in ("read", "smith", "reduce"))
        bound = "" if limit is None else f"{limit:g}"
        print(f"{name:<30} {cells} {stages['analysis']:9.4f} {bound:>7} {stages['verify']:8.4f} {shown:>9}", flush=True)
        rows.append({"system": name, **stages, "limit": limit, "sympy": other, "free_degrees": degrees})
        if limit is not None and stages["analysis"] > limit:
            late.append(name)
    print("\nover the limit: " + (", ".join(late) if late else "none"))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
