"""For every operator matrix, the Smith form and the parametrization are right, proved and canonical."""

import random
from functools import reduce
from itertools import combinations

import pytest
import sympy
from hypothesis import HealthCheck, given, settings, strategies as st

import lodekit as lk
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import Parametrization, parametrize
from lodekit.algebra.polynomials import primitive_part
from lodekit.algebra.scalars import ScalarRing
from lodekit.algebra.smith import smith_form
from tests.properties.operator_strategies import RINGS, invariant_chains, matrices, operators, unimodular

PROFILE = settings(
    deadline=None,
    derandomize=True,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
d = sympy.Symbol("d")


@PROFILE
@given(operators())
def test_every_form_and_parametrization_is_proved(operator: OperatorMatrix) -> None:
    form = smith_form(operator)
    assert len(form.verify()) == 3
    parametrization = parametrize(operator)
    assert len(parametrization.verify()) == 4
    assert parametrization.free.width == operator.width - form.rank


@PROFILE
@given(st.data())
def test_invariants_are_the_gcds_of_minors(data: st.DataObject) -> None:
    """The classical definition, by SymPy: d_1 ... d_k is the monic gcd of all k x k minors."""
    ring = data.draw(st.sampled_from(RINGS[:2]))
    operator = data.draw(matrices(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), ring, 1))
    form = smith_form(operator)
    A, D = sympy.Matrix(operator.sympy), form.D
    product = sympy.S.One
    for k in range(1, min(A.shape) + 1):
        minors = [
            A.extract(list(rows), list(columns)).det()
            for rows in combinations(range(A.rows), k)
            for columns in combinations(range(A.cols), k)
        ]
        polynomials = [sympy.Poly(minor, d, domain=sympy.QQ.frac_field(sympy.Symbol("a"))) for minor in minors]
        divisor = reduce(sympy.gcd, polynomials)
        product *= D[k - 1, k - 1]
        expected = divisor.monic().as_expr() if divisor else sympy.S.Zero
        assert sympy.cancel(expected - product) == 0


@PROFILE
@given(st.data())
def test_planted_uncontrollable_parts_are_recovered(data: st.DataObject) -> None:
    ring = data.draw(st.sampled_from(RINGS[:2]))
    size, extra = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    chain = data.draw(invariant_chains(ring, size))
    rows = [[chain[i] if i == j else [] for j in range(size + extra)] for i in range(size)]
    planted = OperatorMatrix.from_vectors(ring, rows, size + extra)
    hidden = data.draw(unimodular(size, ring)) @ planted @ data.draw(unimodular(size + extra, ring))
    form = smith_form(hidden)
    assert form.invariants == [primitive_part(ring, entry) for entry in chain]
    parametrization = parametrize(hidden)
    parametrization.verify()
    assert sum(len(mode.annihilator) - 1 for mode in parametrization.modes) == sum(len(entry) - 1 for entry in chain)


def describe(parametrization: Parametrization) -> tuple[object, ...]:
    return (
        parametrization.free.to_lists(),
        parametrization.free_observables.to_lists(),
        [(mode.column.to_lists(), mode.observable.to_lists(), str(mode.annihilator)) for mode in parametrization.modes],
        parametrization.equations.to_lists(),
    )


@PROFILE
@given(st.data())
def test_the_parametrization_does_not_depend_on_how_equations_are_written(data: st.DataObject) -> None:
    operator = data.draw(operators())
    ring, height = operator.ring, len(operator.rows)
    rewritten = data.draw(unimodular(height, ring)) @ operator
    order = data.draw(st.permutations(range(height)))
    rewritten = rewritten.take_rows(order)
    # Repeat an equation, and add a derivative of another to it.
    repeated = rewritten.take_rows([*range(height), data.draw(st.integers(0, height - 1))])
    assert describe(parametrize(repeated)) == describe(parametrize(operator))


def test_degrees_of_random_state_spaces_are_minimal() -> None:
    """Ten states and three inputs: the controllability indices are 3, 3 and 4, so no column needs a higher degree."""
    for seed in range(5):
        generator = random.Random(seed)
        ring = ScalarRing()
        rows = []
        for i in range(10):
            row = [[ring.integer(generator.randint(-90, 90))] for _ in range(13)]
            row[i] = [*row[i], ring.integer(10)]
            rows.append([list(entry) if any(entry) else [] for entry in row])
        parametrization = parametrize(OperatorMatrix.from_vectors(ring, rows, 13))
        assert sorted(parametrization.degrees) == [3, 3, 4]
        parametrization.verify()


@pytest.mark.parametrize("masses", [1, 2, 5, 12])
def test_a_chain_driven_at_one_end_needs_two_derivatives_a_mass(masses: int) -> None:
    for parametric in (False, True):
        system = lk.catalog.mass_chain(masses, parametric=parametric).system
        assert system.parametrization.degrees == (2 * masses,)
        system.verify()
