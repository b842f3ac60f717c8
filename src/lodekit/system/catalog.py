"""Example systems with exact solutions: the three of the paper, and standard systems of engineering.

Every function returns an `Example`; most of them are defined in catalog.toml. A test substitutes the exact solutions
into the equations with SymPy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lodekit.algebra.scalars import ScalarRing
from lodekit.errors import LodekitError
from lodekit.system import grammar
from lodekit.system.linear import LinearFormBuilder, extend_ring_by_constants
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

if TYPE_CHECKING:
    import numpy as np
    import sympy
    from numpy.typing import ArrayLike, NDArray

#: Returns the channels, given the module SymPy, the symbol t and the parameter values.
_Solution = Callable[[Any, Any, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Example:
    """A system with true parameter values and an exact solution.

    Parameters
    ----------
    name : str
        Name of its function in this module.
    story : str
        Description in one line.
    system : System
        The equations.
    values : dict of str to Fraction
        The true parameter values.

    Examples
    --------
    >>> example = heating()
    >>> example.system.channels, example.values
    (('f1', 'f2', 'u'), {'a': Fraction(3, 1), 'b': Fraction(1, 1)})
    >>> example.solution["f2"]
    exp(-t/10)*sin(t/2)
    """

    name: str
    story: str
    system: System
    values: Mapping[str, Fraction]
    _solve: _Solution = field(repr=False, compare=False)

    @cached_property
    def solution(self) -> dict[str, sympy.Expr]:
        """Each channel as a SymPy expression in the symbol t, at the true parameter values."""
        import sympy

        t = sympy.Symbol("t")
        values = {name: sympy.Rational(v.numerator, v.denominator) for name, v in self.values.items()}
        found = self._solve(sympy, t, values)
        return {name: sympy.S.Zero + found[name] for name in self.system.channels}

    def solution_at(self, times: ArrayLike) -> NDArray[np.float64]:
        """Return the exact solution at some times, shape (n, channels).

        Parameters
        ----------
        times : array-like, shape (n,)

        Examples
        --------
        >>> heating().solution_at([0.0, 1.0]).shape
        (2, 3)
        """
        import numpy as np

        points = np.asarray(times, dtype=float)
        columns = [_compile_solution(self.solution[name])(points) for name in self.system.channels]
        return np.stack([np.broadcast_to(column, points.shape) for column in columns], axis=1).astype(float)


@cache
def _compile_solution(expression: Any) -> Callable[[NDArray[np.float64]], Any]:
    """Return a SymPy expression as a function of arrays of times; examples are loaded and evaluated repeatedly."""
    import sympy

    return sympy.lambdify(sympy.Symbol("t"), expression, "numpy")  # type: ignore[no-any-return]


@cache
def _read_catalog() -> dict[str, dict[str, Any]]:
    """Return the content of catalog.toml by example; decimal numbers are fractions."""
    text = files("lodekit.system").joinpath("catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Fraction)


def _load_example(name: str) -> Example:
    """Return an example of catalog.toml."""
    own = _read_catalog()[name]
    positive = own.get("positive", {})
    values = {key: Fraction(value) for key, value in {**positive, **own.get("parameters", {})}.items()}
    parameters = {key: Parameter(positive=key in positive) for key in values}
    system = System(own["equations"], parameters=parameters, channels=own.get("channels"))
    return Example(name, own["story"], system, values, partial(_evaluate_solution, own["solution"], values))


def _evaluate_solution(texts: Mapping[str, str], values: Mapping[str, Fraction], *_: Any) -> dict[str, Any]:
    """Return each channel as a SymPy expression, from texts that may contain parameters and earlier channels."""
    trees = {name: grammar.parse_expression(str(value)) for name, value in values.items()}
    for name, text in texts.items():
        trees[name] = grammar.replace_names(grammar.parse_expression(text), trees)

    def build(ring: ScalarRing) -> dict[str, Any]:
        builder = LinearFormBuilder(ring, ())
        return {name: builder.form(trees[name]).affine_term.to_sympy() for name in texts}

    return extend_ring_by_constants((), build)[1]


def bipendulum(l1: float | str = 1, l2: float | str = 2, *, parametric: bool = False) -> Example:
    """Return two pendulums on one accelerated rod (the paper's running example).

    Parameters
    ----------
    l1, l2 : number
        The lengths. With equal lengths the system is not controllable.
    parametric : bool
        Whether the lengths are unknown parameters of the system.

    Examples
    --------
    >>> bipendulum(1, 1).system.is_controllable
    False
    """
    lengths = [_parse_length(value) for value in (l1, l2)]
    system = System(
        "f1'' + 9.81/l1*f1 - u/l1 = 0; f2'' + 9.81/l2*f2 - u/l2 = 0",
        parameters=dict.fromkeys(("l1", "l2"), Parameter(positive=True)),
        channels=["f1", "f2", "u"],
    )
    values = dict(zip(("l1", "l2"), lengths, strict=True))
    if not parametric:
        system = system.substitute(values)

    def solve(sympy: Any, t: Any, _: Any) -> dict[str, Any]:
        g = sympy.Rational(981, 100)
        first, second = (sympy.Rational(v.numerator, v.denominator) for v in lengths)
        z = sympy.sin(3 * t) / (10 * (t + 1))
        f1 = z.diff(t, 2) + g / second * z
        if first == second:
            # The difference of equal pendulums oscillates freely.
            f1, f2 = z, z + sympy.cos(sympy.sqrt(g / first) * t) / 10
        else:
            f2 = first / second * (z.diff(t, 2) + g / first * z)
        return {"f1": f1, "f2": f2, "u": first * f1.diff(t, 2) + g * f1}

    story = "Two pendulums hang from one rod; its acceleration u moves both (lengths "
    story += "unknown)." if parametric else f"{lengths[0]} and {lengths[1]})."
    return Example("bipendulum", story, system, values if parametric else {}, solve)


def _parse_length(value: float | str) -> Fraction:
    try:
        length = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        length = Fraction(0)
    if length <= 0:
        raise LodekitError(f"expected a positive length, got {value!r}")
    return length


def heating() -> Example:
    """Return a heater and an object that it heats (the paper's example with unknown parameters a = 3, b = 1).

    Examples
    --------
    >>> heating().system.equations
    ("f1' = -a*(f1 - f2) + u", "f2' = -b*(f2 - f1)")
    """
    return _load_example("heating")


def three_tank() -> Example:
    """Return three tanks and two pumps (the paper's uncontrollable example).

    Examples
    --------
    >>> three_tank().system.is_controllable
    False
    """
    return _load_example("three_tank")


def spring_mass_damper() -> Example:
    """Return a mass with a spring and a damper, driven by a force.

    Examples
    --------
    >>> spring_mass_damper().system.equations
    ("m*x'' + c*x' + k*x = F",)
    """
    return _load_example("spring_mass_damper")


def free_decay() -> Example:
    """Return a damped oscillator without input; its roots depend on the unknown damping and stiffness.

    Examples
    --------
    >>> free_decay().system.free_functions
    0
    """
    return _load_example("free_decay")


def shaken_oscillator() -> Example:
    """Return an oscillator with a known periodic force: an equation with a known function of time.

    Examples
    --------
    >>> shaken_oscillator().system.equations
    ("x'' + c*x' + k*x = sin(3*t)",)
    """
    return _load_example("shaken_oscillator")


def two_mass() -> Example:
    """Return two masses and two springs, with a force at the far end.

    Examples
    --------
    >>> two_mass().system.channels
    ('x1', 'x2', 'F')
    """
    return _load_example("two_mass")


def mass_chain(n: int = 4, *, parametric: bool = False) -> Example:
    """Return a chain of masses between springs, with a force at the first mass.

    Parameters
    ----------
    n : int
        Number of masses, 1 to 200.
    parametric : bool
        Whether mass m and stiffness k are unknown parameters (otherwise both are 1).

    Examples
    --------
    >>> mass_chain(2).system.equations
    ("x1'' + 2*x1 - x2 - F = 0", "-x1 + x2'' + 2*x2 = 0")
    """
    if not isinstance(n, int) or not 1 <= n <= 200:
        raise LodekitError(f"expected a chain of 1 to 200 masses, got {n!r}")
    lines = []
    for i in range(1, n + 1):
        right = f" + k*x{i + 1}" if i < n else ""
        left = f" + k*x{i - 1}" if i > 1 else ""
        force = " + F" if i == 1 else ""
        lines.append(f"m*x{i}'' = -2*k*x{i}{left}{right}{force}")
    values = {"m": Fraction(2), "k": Fraction(3)} if parametric else {"m": Fraction(1), "k": Fraction(1)}
    channels = [f"x{i}" for i in range(1, n + 1)] + ["F"]
    system = System(lines, parameters=dict.fromkeys(values, Parameter(positive=True)), channels=channels)
    if not parametric:
        system = system.substitute(values)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        m, k = p.get("m", 1), p.get("k", 1)
        after, here = sympy.S.Zero, sympy.cos(t / 2)
        found = {f"x{n}": here}
        for i in range(n, 0, -1):
            # k times the position of the mass before, from the equation of mass i; for the first, the force.
            before = sympy.expand(m * here.diff(t, 2) + 2 * k * here - k * after)
            found[f"x{i - 1}" if i > 1 else "F"] = before / k if i > 1 else before
            after, here = here, before / k
        return found

    story = f"{n} masses between springs; a force F drives the first and all others follow."
    return Example("mass_chain", story, system, values if parametric else {}, solve)


def rlc_circuit() -> Example:
    """Return a resistor, an inductor and a capacitor in series.

    Examples
    --------
    >>> rlc_circuit().system.equations
    ("q' = i", "L*i' + R*i + q/C = V")
    """
    return _load_example("rlc_circuit")


def dc_motor() -> Example:
    """Return a DC motor: speed and current, with a voltage as input.

    Examples
    --------
    >>> dc_motor().system.channels
    ('w', 'i', 'V')
    """
    return _load_example("dc_motor")


def cart_pendulum() -> Example:
    """Return an inverted pendulum on a cart, linearised at the upright position.

    Examples
    --------
    >>> cart_pendulum().system.is_controllable
    True
    """
    return _load_example("cart_pendulum")


def quarter_car() -> Example:
    """Return a quarter-car model: body, wheel and road.

    Examples
    --------
    >>> quarter_car().story
    'Body zs and wheel zu of a car follow the road zr.'
    """
    return _load_example("quarter_car")


def coupled_tanks() -> Example:
    """Return two tanks connected by a pipe, one of them filled by a pump (linearised).

    Examples
    --------
    >>> coupled_tanks().system.channels
    ('h1', 'h2', 'q')
    """
    return _load_example("coupled_tanks")


def compartments() -> Example:
    """Return a two-compartment model of a drug in blood and tissue.

    Examples
    --------
    >>> compartments().system.channels
    ('blood', 'tissue', 'dose')
    """
    return _load_example("compartments")


def two_room() -> Example:
    """Return two rooms that lose heat to each other and to an unknown ambient temperature.

    Examples
    --------
    >>> [str(value) for value in two_room().values.values()]
    ['3/10', '1/10', '1/5', '8']
    """
    return _load_example("two_room")


def examples() -> tuple[Example, ...]:
    """Return every example, with its default arguments.

    Examples
    --------
    >>> [example.name for example in examples()][:3]
    ['bipendulum', 'heating', 'three_tank']
    """
    return (bipendulum(), *map(_load_example, _read_catalog()), mass_chain())


def find_example(name: str) -> Example | None:
    """Return an example by name, written with ``-`` or ``_``; None if there is none.

    Parameters
    ----------
    name : str
        Name of its function in this module.

    Examples
    --------
    >>> find_example("three-tank").name
    'three_tank'
    """
    return next((example for example in examples() if example.name == name.replace("-", "_")), None)
