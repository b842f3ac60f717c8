"""Every solution in the catalog satisfies its equations exactly, by SymPy's own calculus."""

import pytest
import sympy

import lodekit as lk

EXAMPLES = [
    *lk.catalog.examples(),
    lk.catalog.bipendulum(1, 1),
    lk.catalog.bipendulum("0.7", "1.3", parametric=True),
    lk.catalog.mass_chain(3, parametric=True),
]


def apply_operator(entry: sympy.Expr, d: sympy.Symbol, function: sympy.Expr) -> sympy.Expr:
    t = sympy.Symbol("t")
    return sum((c * function.diff(t, powers[0]) for powers, c in sympy.Poly(entry, d).terms()), sympy.S.Zero)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.name}-{len(e.system.parameters)}")
def test_solution_satisfies_the_equations(example: lk.catalog.Example) -> None:
    system = example.system
    values = {sympy.Symbol(name): sympy.Rational(str(value)) for name, value in example.values.items()}
    A = system.operator_matrix.subs(values)
    b = system.right_hand_side.subs(values)
    for i in range(A.rows):
        left = sum(
            (apply_operator(A[i, j], system.d, example.solution[name]) for j, name in enumerate(system.channels)),
            sympy.S.Zero,
        )
        assert sympy.simplify(left - b[i]) == 0


def test_there_are_the_papers_three_and_more_than_ten_classics() -> None:
    names = [example.name for example in lk.catalog.examples()]
    assert names[:3] == ["bipendulum", "heating", "three_tank"]
    assert len(set(names)) >= 13
