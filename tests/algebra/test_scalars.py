"""Field elements are in lowest terms, and zero is recognised under the relations of square roots and sines."""

from fractions import Fraction

import pytest

from lodekit.algebra.polynomials import sample_points
from lodekit.algebra.scalars import NamedConstant, Scalar, ScalarRing, format_rational
from lodekit.errors import AlgebraError

ROOT2 = NamedConstant("sqrt", Fraction(2))
ROOT3 = NamedConstant("sqrt", Fraction(3))
COS, SIN = NamedConstant("cos", Fraction(1, 3)), NamedConstant("sin", Fraction(1, 3))
RING = ScalarRing(("a", "b"), (COS, SIN, ROOT2, ROOT3))


def test_denominators_are_free_of_square_roots() -> None:
    one, root = RING.rational(1), RING.constant(ROOT2)
    inverse = one / (one + root)
    assert inverse == root - one
    assert str(inverse) == "sqrt(2) - 1"


def test_nested_roots_are_cleared_together() -> None:
    a, two, three = RING.parameter("a"), RING.constant(ROOT2), RING.constant(ROOT3)
    value = a + two + three
    assert value * (RING.rational(1) / value) == RING.rational(1)
    assert not any(exponents[2] or exponents[3] for exponents in RING.terms((RING.rational(1) / value).denominator))


def test_sine_and_cosine_know_each_other() -> None:
    sine, cosine = RING.constant(SIN), RING.constant(COS)
    assert sine * sine + cosine * cosine == RING.rational(1)


@pytest.mark.parametrize("times_pi", [False, True])
def test_random_points_respect_the_squares_of_roots_and_sines(times_pi: bool) -> None:
    sine = NamedConstant("sin", Fraction(1, 5), times_pi)
    ring = ScalarRing(("a",), (sine.cosine, sine, ROOT2))
    field, (cosine, value, root, _) = next(sample_points(ring))
    assert value**2 + cosine**2 == field.one
    assert root**2 == field.integer(2)


def test_equal_values_have_equal_hashes_however_they_were_made() -> None:
    a, b = RING.parameter("a"), RING.parameter("b")
    left, right = (a * a - b * b) / (a - b), a + b
    assert left == right
    assert hash(left) == hash(right)


def test_division_by_a_hidden_zero_is_refused() -> None:
    root = RING.constant(ROOT2)
    with pytest.raises(AlgebraError, match="division by zero"):
        Scalar(RING, RING.one, (root * root - RING.rational(2)).numerator)


def test_products_of_roots_are_enclosed_by_their_value() -> None:
    value = RING.constant(ROOT2) * RING.constant(ROOT2) * RING.constant(ROOT3)
    assert abs(float(RING.enclose(value.numerator).mid()) - 2 * 3**0.5) < 1e-14


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(1, 8), "0.125"),
        (Fraction(1, 3), "1/3"),
        (Fraction(3), "3"),
        (Fraction(-981, 200), "-4.905"),
        (Fraction(1, 1000), "0.001"),
    ],
)
def test_rationals_are_shown_as_people_write_them(value: Fraction, text: str) -> None:
    assert format_rational(value) == text
    assert Fraction(text) == value


@pytest.mark.parametrize("denominator", [1, 2, 5, 8, 10, 20, 25, 40, 125, 3, 6, 15, 10**12, 5**12, 2**12])
def test_decimals_are_written_where_they_are_exact(denominator: int) -> None:
    for numerator in (1, -1, 7, -1234567):
        value = Fraction(numerator, denominator)
        text = format_rational(value)
        assert Fraction(text) == value
        assert ("/" in text) == (10**12 % value.denominator != 0)
        # As few digits as there can be.
        assert "." not in text or text[-1] not in ".0"
