"""Roots of modes agree with mpmath at 50 digits to full float accuracy, clustered ones too."""

from fractions import Fraction

import mpmath
import pytest

import lodekit as lk
from lodekit.algebra.modes import isolate_roots
from lodekit.algebra.polynomials import factor
from lodekit.algebra.scalars import ScalarRing

RING = ScalarRing()


def polynomial_from_roots(roots: list[tuple[Fraction, Fraction]]) -> list[Fraction]:
    """Return coefficients, lowest first, of the real polynomial with these roots (pairs stand for conjugates)."""
    coefficients = [Fraction(1)]
    for real, imaginary in roots:
        part = [-real, Fraction(1)] if not imaginary else [real**2 + imaginary**2, -2 * real, Fraction(1)]
        product = [Fraction(0)] * (len(coefficients) + len(part) - 1)
        for i, a in enumerate(coefficients):
            for j, b in enumerate(part):
                product[i + j] += a * b
        coefficients = product
    return coefficients


def to_ring(coefficients: list[Fraction]) -> list[object]:
    scale = 1
    for value in coefficients:
        scale = scale * value.denominator
    return [RING.integer(int(value * scale)) for value in coefficients]


CLUSTERS = {
    "three within 1e-12": [
        (Fraction(-1), Fraction(0)),
        (-1 - Fraction(1, 10**12), Fraction(0)),
        (-1 + Fraction(1, 10**12), Fraction(0)),
    ],
    "two within 1e-20": [(Fraction(1, 3), Fraction(0)), (Fraction(1, 3) + Fraction(1, 10**20), Fraction(0))],
    "pairs within 1e-14": [(Fraction(-1, 10), Fraction(3)), (Fraction(-1, 10) + Fraction(1, 10**14), Fraction(3))],
    "wilkinson": [(Fraction(k), Fraction(0)) for k in range(1, 21)],
    "far apart": [(Fraction(10**12), Fraction(0)), (Fraction(1, 10**12), Fraction(0)), (Fraction(0), Fraction(1, 7))],
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_clustered_roots_are_isolated_to_full_accuracy(name: str) -> None:
    roots = CLUSTERS[name]
    expected = sorted(
        (complex(float(re), sign * float(im)) for re, im in roots for sign in ((1, -1) if im else (1,))),
        key=lambda z: (z.real, z.imag),
    )
    found = isolate_roots(RING, to_ring(polynomial_from_roots(roots)))
    assert all(count == 1 for _, count in found)
    assert [root for root, _ in found] == expected


@pytest.mark.parametrize("seed", range(6))
def test_roots_of_random_polynomials_agree_with_mpmath_at_50_digits(seed: int) -> None:
    import random

    generator = random.Random(seed)
    coefficients = [generator.randint(-1000, 1000) for _ in range(9)] + [generator.randint(1, 9)]
    with mpmath.workdps(50):
        expected = mpmath.polyroots(list(reversed(coefficients)), maxsteps=500, extraprec=400)
    found = isolate_roots(RING, [RING.integer(value) for value in coefficients])
    # Every root, and none twice.
    assert [count for _, count in found] == [1] * 9
    assert len({min(range(9), key=lambda k: abs(expected[k] - mpmath.mpc(root))) for root, _ in found}) == 9
    for root, _ in found:
        nearest = min(expected, key=lambda z: abs(z - mpmath.mpc(root)))
        with mpmath.workdps(50):
            # Each part is correctly rounded, so the error is at most half a unit in the last place of each.
            assert abs(nearest - mpmath.mpc(root)) <= mpmath.mpf(2) ** -53 * abs(nearest) * 1.5


def test_multiplicities_are_exact() -> None:
    pieces = [(Fraction(-1), Fraction(0))] * 3 + [(Fraction(0), Fraction(2))] * 2 + [(Fraction(1, 2), Fraction(0))]
    found = isolate_roots(RING, to_ring(polynomial_from_roots(pieces)))
    assert found == [((-1 + 0j), 3), (-2j, 2), (2j, 2), ((0.5 + 0j), 1)]
    parts = factor(RING, to_ring(polynomial_from_roots(pieces)))
    assert sorted((len(part) - 1, count) for part, count in parts) == [(1, 1), (1, 3), (2, 2)]


def test_a_double_root_behind_a_square_root_is_found() -> None:
    (mode,) = lk.System("x'' - 2*sqrt(2)*x' + 2*x = 0").modes
    assert mode.multiplicity == 2
    assert mode.roots == (pytest.approx(2**0.5, rel=1e-15),)


def test_roots_with_constants_agree_with_mpmath() -> None:
    (mode,) = lk.System("x''' + pi*x'' + sqrt(3)*x' + exp(1)*x = 0").modes
    with mpmath.workdps(50):
        expected = mpmath.polyroots([1, mpmath.pi, mpmath.sqrt(3), mpmath.e], maxsteps=200, extraprec=200)
        for z in expected:
            assert min(abs(z - mpmath.mpc(complex(root))) / abs(z) for root in mode.roots) < mpmath.mpf(2) ** -52
    assert len(mode.roots) == 3


def test_roots_at_values_cross_from_complex_to_real() -> None:
    (mode,) = lk.System("x'' + c*x' + k*x = 0", parameters=["c", "k"]).modes
    assert mode.roots_at({"c": 2, "k": 1}) == (-1 + 0j, -1 + 0j)
    assert mode.roots_at({"c": 2, "k": 2}) == (-1 - 1j, -1 + 1j)
    assert mode.roots_at({"c": 3, "k": 2}) == (-2 + 0j, -1 + 0j)


CONSTANTS = {
    "exp(pi)": lambda: mpmath.exp(mpmath.pi),
    "exp(pi/3)": lambda: mpmath.exp(mpmath.pi / 3),
    "exp(-pi/3)": lambda: mpmath.exp(-mpmath.pi / 3),
    "exp(-2)": lambda: mpmath.exp(-2),
    "exp(3)": lambda: mpmath.exp(3),
    "exp(-1/2)": lambda: mpmath.exp(mpmath.mpf(-0.5)),
    "cos(0.3)": lambda: mpmath.cos(mpmath.mpf(3) / 10),
    "sin(-0.3)": lambda: -mpmath.sin(mpmath.mpf(3) / 10),
    "cos(2*pi/5)": lambda: mpmath.cos(2 * mpmath.pi / 5),
    "sin(-7*pi/12)": lambda: mpmath.sin(-7 * mpmath.pi / 12),
    "sqrt(8/3)": lambda: mpmath.sqrt(mpmath.mpf(8) / 3),
    "pi^2/6": lambda: mpmath.pi**2 / 6,
}


@pytest.mark.parametrize("text", CONSTANTS)
def test_constants_have_their_values(text: str) -> None:
    (mode,) = lk.System(f"x' = ({text})*x").modes
    with mpmath.workdps(50):
        expected = float(CONSTANTS[text]())
    assert mode.roots == (pytest.approx(expected, rel=1e-15),)
