"""Ready systems with known solutions: the paper's three, and classics that engineers recognise.

Every function returns an `Example`. Its solution is exact: a test puts it into the equations with SymPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lodekit.errors import LodekitError
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

if TYPE_CHECKING:
    import numpy as np
    import sympy
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Example",
    "bipendulum",
    "cart_pendulum",
    "compartments",
    "coupled_tanks",
    "dc_motor",
    "examples",
    "find_example",
    "free_decay",
    "heating",
    "mass_chain",
    "quarter_car",
    "rlc_circuit",
    "shaken_oscillator",
    "spring_mass_damper",
    "three_tank",
    "two_mass",
    "two_room",
]

#: Returns the channels, given the module SymPy, the symbol t and the parameter values.
_Solution = Callable[[Any, Any, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Example:
    """A system with true parameter values and an exact solution.

    Parameters
    ----------
    name : str
        As its function in this module is called.
    story : str
        What it is, in one line.
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
        import sympy

        t, points = sympy.Symbol("t"), np.asarray(times, dtype=float)
        columns = [sympy.lambdify(t, self.solution[name], "numpy")(points) for name in self.system.channels]
        return np.stack([np.broadcast_to(column, points.shape) for column in columns], axis=1).astype(float)


def _positive_parameters(**values: Fraction | int | str) -> tuple[dict[str, Parameter], dict[str, Fraction]]:
    """Return positive parameters and their true values."""
    return {name: Parameter(positive=True) for name in values}, {name: Fraction(v) for name, v in values.items()}


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
        parameters={name: Parameter(positive=True) for name in ("l1", "l2")},
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
            # The difference of equal pendulums swings by itself.
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
    """Return a heater that warms an object (the paper's example with unknown parameters a = 3, b = 1).

    Examples
    --------
    >>> heating().system.equations
    ("f1' = -a*(f1 - f2) + u", "f2' = -b*(f2 - f1)")
    """
    parameters, values = _positive_parameters(a=3, b=1)

    def solve(sympy: Any, t: Any, _: Any) -> dict[str, Any]:
        decay, wave, turn = sympy.exp(-t / 10), sympy.sin(t / 2), sympy.cos(t / 2)
        half, tenth = sympy.Rational(1, 2), sympy.Rational(1, 10)
        return {
            "f1": decay * (half * turn + 9 * tenth * wave),
            "f2": decay * wave,
            "u": decay * (19 * tenth * turn - sympy.Rational(16, 25) * wave),
        }

    system = System("f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)", parameters=parameters)
    return Example(
        "heating", "A heating element f1, driven by u, exchanges heat with an object f2.", system, values, solve
    )


def three_tank() -> Example:
    """Return three tanks and two pumps (the paper's uncontrollable example).

    Examples
    --------
    >>> three_tank().system.is_controllable
    False
    """

    def solve(sympy: Any, t: Any, _: Any) -> dict[str, Any]:
        f1, f2 = sympy.exp(-t / 2), sympy.exp(-t / 4)
        return {"f1": f1, "f2": f2, "f3": f2 - f1, "u1": f1.diff(t), "u2": f2.diff(t) - f1.diff(t)}

    system = System("-f1' + u1 = 0; -f2' + u1 + u2 = 0; -f3' + u2 = 0", channels=["f1", "f2", "f3", "u1", "u2"])
    return Example("three_tank", "Two pumps fill three tanks; one balance of levels never changes.", system, {}, solve)


def spring_mass_damper() -> Example:
    """Return a mass on a spring with a damper, pushed by a force.

    Examples
    --------
    >>> spring_mass_damper().system.equations
    ("m*x'' + c*x' + k*x = F",)
    """
    parameters, values = _positive_parameters(m=1, c="0.4", k=4)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        x = sympy.exp(-t / 5) * sympy.sin(t)
        return {"x": x, "F": p["m"] * x.diff(t, 2) + p["c"] * x.diff(t) + p["k"] * x}

    system = System("m*x'' + c*x' + k*x = F", parameters=parameters)
    return Example(
        "spring_mass_damper", "A mass on a spring with a damper, pushed by a force F.", system, values, solve
    )


def free_decay() -> Example:
    """Return a damped oscillation without any input: unknown damping and stiffness inside the roots.

    Examples
    --------
    >>> free_decay().system.free_functions
    0
    """
    parameters, values = _positive_parameters(c="0.4", k=4)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        rate, speed = p["c"] / 2, sympy.sqrt(p["k"] - p["c"] ** 2 / 4)
        return {"x": sympy.exp(-rate * t) * (sympy.cos(speed * t) + sympy.sin(speed * t) / 2)}

    system = System("x'' + c*x' + k*x = 0", parameters=parameters)
    return Example(
        "free_decay", "A plucked oscillator rings down by itself; damping and stiffness unknown.", system, values, solve
    )


def shaken_oscillator() -> Example:
    """Return an oscillator under a known periodic force: an equation with a function of time in it.

    Examples
    --------
    >>> shaken_oscillator().system.equations
    ("x'' + c*x' + k*x = sin(3*t)",)
    """
    parameters, values = _positive_parameters(c="0.5", k=2)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        w, c, k = 3, p["c"], p["k"]
        scale = (k - w**2) ** 2 + (c * w) ** 2
        forced = ((k - w**2) * sympy.sin(w * t) - c * w * sympy.cos(w * t)) / scale
        free = sympy.exp(-c / 2 * t) * sympy.cos(sympy.sqrt(k - c**2 / 4) * t)
        return {"x": forced + free}

    system = System("x'' + c*x' + k*x = sin(3*t)", parameters=parameters)
    return Example(
        "shaken_oscillator", "An oscillator under a known force sin(3 t), after a push.", system, values, solve
    )


def two_mass() -> Example:
    """Return two masses and two springs, pushed at the far end.

    Examples
    --------
    >>> two_mass().system.channels
    ('x1', 'x2', 'F')
    """
    parameters, values = _positive_parameters(m1=1, m2=2, k1=3, k2=1)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        x1 = sympy.sin(t) + sympy.cos(t / 3) / 2
        x2 = (p["m1"] * x1.diff(t, 2) + p["k1"] * x1) / p["k2"] + x1
        return {"x1": x1, "x2": x2, "F": p["m2"] * x2.diff(t, 2) + p["k2"] * (x2 - x1)}

    system = System("m1*x1'' = -k1*x1 + k2*(x2 - x1); m2*x2'' = -k2*(x2 - x1) + F", parameters=parameters)
    return Example("two_mass", "Two masses in a row on two springs; a force F pulls the second.", system, values, solve)


def mass_chain(n: int = 4, *, parametric: bool = False) -> Example:
    """Return a row of masses between springs, pushed at the first.

    Parameters
    ----------
    n : int
        How many masses, 1 to 200.
    parametric : bool
        Whether mass m and stiffness k are unknown parameters (else both are 1).

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
    parameters, values = _positive_parameters(m=2, k=3) if parametric else _positive_parameters(m=1, k=1)
    channels = [f"x{i}" for i in range(1, n + 1)] + ["F"]
    system = System(lines, parameters=parameters, channels=channels)
    if not parametric:
        system = system.substitute(values)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        m, k = p.get("m", 1), p.get("k", 1)
        after, here = sympy.S.Zero, sympy.cos(t / 2)
        found = {f"x{n}": here}
        for i in range(n, 0, -1):
            # k times the mass before, from the equation of mass i; before the first there is the force.
            before = sympy.expand(m * here.diff(t, 2) + 2 * k * here - k * after)
            found[f"x{i - 1}" if i > 1 else "F"] = before / k if i > 1 else before
            after, here = here, before / k
        return found

    story = f"{n} masses between springs; a force F drives the first and all others follow."
    return Example("mass_chain", story, system, values if parametric else {}, solve)


def rlc_circuit() -> Example:
    """Return a resistor, a coil and a capacitor in series.

    Examples
    --------
    >>> rlc_circuit().system.equations
    ("q' = i", "L*i' + R*i + q/C = V")
    """
    parameters, values = _positive_parameters(R=2, L="0.5", C="0.25")

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        charge = sympy.exp(-t) * sympy.sin(2 * t) / 5
        current = charge.diff(t)
        voltage = p["L"] * current.diff(t) + p["R"] * current + charge / p["C"]
        return {"q": charge, "i": current, "V": voltage}

    system = System("q' = i; L*i' + R*i + q/C = V", parameters=parameters)
    return Example(
        "rlc_circuit",
        "Resistor, coil and capacitor in series at a voltage V; charge q, current i.",
        system,
        values,
        solve,
    )


def dc_motor() -> Example:
    """Return a DC motor: speed and current, driven by a voltage.

    Examples
    --------
    >>> dc_motor().system.channels
    ('w', 'i', 'V')
    """
    parameters, values = _positive_parameters(J="0.01", b="0.1", K="0.05", R=1, L="0.5")

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        speed = 1 - sympy.exp(-t) * sympy.cos(t)
        current = (p["J"] * speed.diff(t) + p["b"] * speed) / p["K"]
        return {"w": speed, "i": current, "V": p["L"] * current.diff(t) + p["R"] * current + p["K"] * speed}

    system = System("J*w' + b*w = K*i; L*i' + R*i = V - K*w", parameters=parameters)
    return Example("dc_motor", "A DC motor turns at speed w with current i under a voltage V.", system, values, solve)


def cart_pendulum() -> Example:
    """Return a pendulum that stands on a cart, linearised at the upright position.

    Examples
    --------
    >>> cart_pendulum().system.is_controllable
    True
    """
    parameters, values = _positive_parameters(M=1, m="0.2", l="0.5")

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        g = sympy.Rational(981, 100)
        # The flat output y = x + l*phi moves by y'' = g*phi.
        y = sympy.sin(t) / 2
        phi = y.diff(t, 2) / g
        x = y - p["l"] * phi
        return {"x": x, "phi": phi, "F": (p["M"] + p["m"]) * x.diff(t, 2) + p["m"] * p["l"] * phi.diff(t, 2)}

    system = System("(M + m)*x'' + m*l*phi'' = F; x'' + l*phi'' - 9.81*phi = 0", parameters=parameters)
    return Example(
        "cart_pendulum",
        "A pendulum balances upright on a cart that a force F pushes (linearised).",
        system,
        values,
        solve,
    )


def quarter_car() -> Example:
    """Return a quarter of a car: body, wheel and road.

    Examples
    --------
    >>> quarter_car().story
    'Body zs and wheel zu of a car follow the road zr.'
    """
    parameters, values = _positive_parameters(ms=300, mu=40, ks=20000, cs=1500, kt=180000)

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        # The flat output z gives body and wheel such that the body's equation holds.
        z = sympy.sin(2 * t) / 100
        body = p["cs"] * z.diff(t) + p["ks"] * z
        wheel = p["ms"] * z.diff(t, 2) + body
        push = p["ks"] * (body - wheel) + p["cs"] * (body - wheel).diff(t)
        return {"zs": body, "zu": wheel, "zr": (p["mu"] * wheel.diff(t, 2) - push) / p["kt"] + wheel}

    system = System(
        "ms*zs'' = -ks*(zs - zu) - cs*(zs' - zu'); mu*zu'' = ks*(zs - zu) + cs*(zs' - zu') - kt*(zu - zr)",
        parameters=parameters,
    )
    return Example("quarter_car", "Body zs and wheel zu of a car follow the road zr.", system, values, solve)


def coupled_tanks() -> Example:
    """Return two tanks joined by a pipe, one filled by a pump (linearised).

    Examples
    --------
    >>> coupled_tanks().system.channels
    ('h1', 'h2', 'q')
    """
    parameters, values = _positive_parameters(A1=2, A2=1, c1="0.5", c2="0.3")

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        h2 = 1 - sympy.exp(-t / 4)
        h1 = (p["A2"] * h2.diff(t) + p["c2"] * h2) / p["c1"] + h2
        return {"h1": h1, "h2": h2, "q": p["A1"] * h1.diff(t) + p["c1"] * (h1 - h2)}

    system = System(
        "A1*h1' = q - c1*(h1 - h2); A2*h2' = c1*(h1 - h2) - c2*h2", parameters=parameters, channels=["h1", "h2", "q"]
    )
    return Example(
        "coupled_tanks", "A pump q fills a tank h1 that drains into a second one, h2.", system, values, solve
    )


def compartments() -> Example:
    """Return two compartments: a drug in blood and tissue.

    Examples
    --------
    >>> compartments().system.channels
    ('blood', 'tissue', 'dose')
    """
    parameters, values = _positive_parameters(k10="0.2", k12="0.5", k21="0.3")

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        tissue = t * sympy.exp(-t / 3)
        blood = (tissue.diff(t) + p["k21"] * tissue) / p["k12"]
        dose = blood.diff(t) + (p["k10"] + p["k12"]) * blood - p["k21"] * tissue
        return {"blood": blood, "tissue": tissue, "dose": dose}

    system = System(
        "blood' = -(k10 + k12)*blood + k21*tissue + dose; tissue' = k12*blood - k21*tissue", parameters=parameters
    )
    return Example(
        "compartments", "A drug dose spreads between blood and tissue and leaves the body.", system, values, solve
    )


def two_room() -> Example:
    """Return two rooms that lose heat to each other and to an unknown ambient temperature.

    Examples
    --------
    >>> [str(value) for value in two_room().values.values()]
    ['3/10', '1/10', '1/5', '8']
    """
    parameters, values = _positive_parameters(a="0.3", b="0.1", c="0.2")
    parameters, values = {**parameters, "Ta": Parameter()}, {**values, "Ta": Fraction(8)}

    def solve(sympy: Any, t: Any, p: Any) -> dict[str, Any]:
        t2 = 18 + 2 * sympy.sin(t / 4)
        t1 = (t2.diff(t) + p["c"] * (t2 - p["Ta"])) / p["a"] + t2
        return {"T1": t1, "T2": t2, "q": t1.diff(t) - p["a"] * (t2 - t1) - p["b"] * (p["Ta"] - t1)}

    system = System("T1' = a*(T2 - T1) + b*(Ta - T1) + q; T2' = a*(T1 - T2) + c*(Ta - T2)", parameters=parameters)
    return Example(
        "two_room", "A heater q warms one of two rooms; the ambient temperature Ta is unknown.", system, values, solve
    )


def examples() -> tuple[Example, ...]:
    """Return every example, with its default arguments.

    Examples
    --------
    >>> [example.name for example in examples()][:3]
    ['bipendulum', 'heating', 'three_tank']
    """
    makers = (
        bipendulum,
        heating,
        three_tank,
        spring_mass_damper,
        free_decay,
        shaken_oscillator,
        two_mass,
        mass_chain,
        rlc_circuit,
        dc_motor,
        cart_pendulum,
        quarter_car,
        coupled_tanks,
        compartments,
        two_room,
    )
    return tuple(make() for make in makers)


def find_example(name: str) -> Example | None:
    """Return the example of a name, written with ``-`` or ``_``; None where there is none.

    Parameters
    ----------
    name : str
        Of the function in this module that makes it.

    Examples
    --------
    >>> find_example("three-tank").name
    'three_tank'
    """
    return next((example for example in examples() if example.name == name.replace("-", "_")), None)
