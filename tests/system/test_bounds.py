"""Equations that could exhaust a machine: each is answered, or refused, in little memory."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest

import lodekit as lk
from lodekit.algebra import reduction
from lodekit.algebra.modes import elementary_divisors
from lodekit.algebra.polynomials import factor
from lodekit.algebra.smith import PopovDecomposition, invariant_factors_of_diagonal
from tests.limits import PATIENCE, ask_bounded

CODE = r"""
import random
from pathlib import Path
from tempfile import TemporaryDirectory

def matrix(n, end=""):
    names = [f"a{i}{j}" for i in range(n) for j in range(n)]
    lines = [f"x{i}' = " + " + ".join(f"a{i}{j}*x{j}" for j in range(n)) + end for i in range(n)]
    return lk.System(lines, parameters=names)

def dense(n, end=""):
    g = random.Random(0)
    return lk.System([f"x{i}' = " + " + ".join(f"{g.randint(-9, 9)}*x{j}" for j in range(n)) + end for i in range(n)])

def ring(n, order):
    return lk.System([f"x{i}{order} = x{(i + 1) % n} - 2*x{i} + x{i - 1 if i else n - 1}" for i in range(n)])

def named(n):
    with TemporaryDirectory() as folder:
        path = Path(folder, "names.toml")
        path.write_text('equations = ["x\' = v"]\nchannels = [' + ", ".join(f'"c{i}"' for i in range(n)) + "]\n")
        return lk.read_system_file(path)

many = [f"p{i}" for i in range(1000)]
sums = [" + ".join(f"sqrt({p})" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)[:k]) for k in (6, 10)]
def summed(names): return lk.System("x' = " + " + ".join(f"{p}*x" for p in names), parameters=names)
ask("1000 parameters", lambda: summed(many))
ask("100 parameters", lambda: summed(many[:100]).explain())
ask("500 channels", lambda: lk.System("x0' = " + " + ".join(f"x{i}" for i in range(1, 500))).explain())
ask("5x5", lambda: matrix(5).explain())
ask("5x5, shown", lambda: matrix(5))
ask("5x5, driven", lambda: matrix(5, " + u").explain())
ask("7x7, driven, shown", lambda: matrix(7, " + u"))
ask("tridiagonal", lambda: lk.System([f"x{i}' = " + " + ".join(f"a{i}_{j}*x{j}" for j in range(15) if abs(i - j) < 2)
    for i in range(15)], parameters=[f"a{i}_{j}" for i in range(15) for j in range(15) if abs(i - j) < 2]).explain())
ask("9x9", lambda: matrix(9).explain())
ask("ring", lambda: ring(200, "'").explain())
ask("ring of second order", lambda: ring(100, "''").explain())
ask("40 states", lambda: dense(40).explain())
ask("40 states, driven", lambda: dense(40, " + u").explain())
ask("six roots", lambda: lk.System(f"x' = -x/({sums[0]})").explain())
ask("a sine beside parameters", lambda: lk.System(["(a + b)*x' + pi*y + pi*z = 0", "pi*x'' + (a + b)*y = 0",
    "(a + b)*y'' + sin(0.3)*w'' + pi*z' = 0", "pi*x'' + (a + b)*z'' + pi*w = 0"], parameters=["a", "b"]).explain())
ask("ten roots", lambda: lk.System(f"x' = -x/({sums[1]})").explain())
ask("50,000 names in a file", lambda: named(50_000))
ask("50,000 names", lambda: lk.System("x' = v", channels=[f"c{i}" for i in range(50_000)]))
ask("1000 fractions", lambda: lk.System("x' = " + " + ".join(f"x/(a + {i})" for i in range(1000)), parameters=["a"]))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    return ask_bounded(CODE)


EXPECTED = {
    "1000 parameters": ["ParameterError", "at most 100 parameters, got 1000"],
    "100 parameters": ["determined by one initial value", "exp((p0 + p1 + p2"],
    "500 channels": ["499 functions of time can be chosen freely, for example x0, x1", "The system is controllable"],
    "5x5": [
        "five initial values",
        "mode of order 5 with characteristic equation d^5 + (-a00 - a11 - a22 - a33 - a44)*d^4",
        "not determined",
    ],
    "5x5, shown": [
        "Equations\n",
        "not determined: the symbolic expressions grow too large",
        "mode of order 5 with characteristic equation d^5",
    ],
    "5x5, driven": ["any one of x0, x1, x2, x3, x4 or u", "The system is controllable", "not determined"],
    "7x7, driven, shown": [
        "Every solution\n  not determined: the symbolic expressions grow too large",
        "The system is controllable",
    ],
    "tridiagonal": ["15 initial values", "The free response was not determined"],
    "9x9": ["determined by nine initial values", "The free response was not determined"],
    "ring": ["200 initial values", "one constant mode, one decaying mode (time constant 0.5), one decaying mode"],
    "ring of second order": ["200 initial values", "one constant mode with multiplicity 2"],
    "40 states": ["40 initial values", "mode of order 40 with exponents -29.12 - 22.32i"],
    "40 states, driven": ["One function of time can be chosen freely: any one of x0", "The system is controllable"],
    "six roots": ["decaying mode (time constant 14.95)"],
    "a sine beside parameters": ["six initial values", "The free response was not determined"],
    "ten roots": ["EquationError", "at most 6 constants that are square roots (of primes) or sines"],
    "50,000 names in a file": ["EquationError", "at most 500 channel names, got 50000"],
    "50,000 names": ["EquationError", "at most 500 channel names, got 50000"],
    "1000 fractions": ["EquationError", "a coefficient grows too large"],
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_could_exhaust_a_machine_is_answered_or_refused(name: str, answers: dict[str, str]) -> None:
    for words in EXPECTED[name]:
        assert words in answers[name], answers[name][:500]


def count_steps(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    """Return how many vectors the eliminations of some work have made."""
    steps, cancel = [0], vars(reduction)["_cancel_term"]

    def counted(*arguments: object) -> object:
        steps[0] += 1
        return cancel(*arguments)

    monkeypatch.setattr(reduction, "_cancel_term", counted)
    work()
    return steps[0]


def test_steps_of_eliminations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_steps(monkeypatch, lk.System("x' = y; y' = -x + u").verify) > 0


def driven(states: int) -> lk.System:
    generator = random.Random(0)
    entries = [[generator.randint(-9, 9) for _ in range(states)] for _ in range(states)]
    return lk.System.from_state_space(entries, [[1]] * states)


@pytest.mark.parametrize(
    "system",
    [
        lk.System("x0' = " + " + ".join(f"x{i}" for i in range(1, 60))),
        lk.System([f"x{i}' = x{(i + 1) % 60} - x{i}" for i in range(60)]),
        driven(12),
    ],
    ids=["one equation", "ring", "driven"],
)
def test_sentences_take_no_elimination(system: lk.System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such equations are in their canonical form already; all the rest is decided by determinants."""
    assert count_steps(monkeypatch, system.explain) == 0


@pytest.mark.parametrize(
    "text",
    [
        "x' = -x; y' = -2*y",
        "x' = -x; y' = -y",
        "x' = -x + y; y' = -y",
        "x' = y; y' = -x; u' = v; v' = -u",
        "x'' + 2*x' + x = 0; y''' = 0; z' = -z; w' = y + z",
        "x' = y + z; y' = z; z' = 0; w' = 0; v' = w; q' = 0",
        "a*x' = y; y' = -x; z' = -x - a*z",
        "x' = -x + y; y = 0; z' = a*z; w' = a*w + z",
    ],
)
def test_exponents_without_transformations_are_those_of_the_smith_form(text: str) -> None:
    """Two ways: blocks of the state matrix at a point, and the exact diagonal of the decomposition."""
    system = lk.System(text, parameters=["a"] if "a" in text else [])
    ring = system.operator.ring
    stages = PopovDecomposition(ring, system.operator.rows, system.operator.width)
    found = elementary_divisors(ring, stages.equations)
    exact = [
        part
        for entry in invariant_factors_of_diagonal(ring, stages.diagonal_form.diagonal)
        for part in factor(ring, entry)
    ]

    def key(item: tuple[list[object], int]) -> str:
        return f"{[str(value) for value in item[0]]} {item[1]}"

    assert sorted(map(key, found)) == sorted(map(key, exact))
    assert sum((len(part) - 1) * count for part, count in found) == system.states


@pytest.mark.parametrize("seed", range(12))
def test_sets_of_inputs_are_those_whose_rows_of_the_basis_are_independent(seed: int) -> None:
    """Two ways: exchanges in the equations at a point, and exact ranks of rows of the kernel."""
    generator = random.Random(seed)
    width = generator.randint(3, 6)
    names = [f"x{j}" for j in range(width)]
    lines = []
    for _ in range(generator.randint(1, width - 1)):
        picked = generator.sample(names, generator.randint(1, 3))
        lines.append(
            " + ".join(f"{generator.choice(['1', '2', 'a'])}*{n}{generator.choice(['', chr(39)])}" for n in picked)
        )
    system = lk.System(lines, parameters=["a"] if any("a*" in line for line in lines) else [], channels=names)
    free = system.free_functions
    if not free:
        assert system.possible_inputs == ()
        return
    basis = system.parametrization.free
    expected = []
    for chosen in combinations(range(width), free):
        found, _ = reduction.popov_basis(basis.ring, [basis.rows[i] for i in chosen], [0] * free)
        if len(found) == free:
            expected.append(tuple(names[i] for i in chosen))
    assert system.possible_inputs == tuple(expected)


HONEST = """
import sys
import lodekit as lk
system = lk.System([f"x{i}' = x{(i + 1) % 200} - x{i}" for i in range(200)])
print("started", flush=True)
system.smith_form
"""


def test_long_honest_work_can_be_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HONEST], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert errors.strip().endswith("KeyboardInterrupt")
