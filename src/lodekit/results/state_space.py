"""Fitted state space and transfer functions with standard errors by the delta method.

Poles and transmission zeros are generalised eigenvalues (the zeros of Rosenbrock's system matrix) with derivatives in
the parameters; dead times are approximated by Padé where a rational function is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eig

from lodekit.data.inputs import InputSignal
from lodekit.errors import LodekitError
from lodekit.prior.compile import ScalarFunctions, split_table
from lodekit.prior.input_response.response import ResponsePlan, StateMatrices, StateSpaceResponse
from lodekit.results.fit import Fit
from lodekit.support.arguments import Array, ComplexArray, as_float_array, as_times
from lodekit.support.text import format_number
from lodekit.system.state_space import StateSpace


@dataclass(frozen=True)
class Uncertain:
    """A number with its standard error.

    Parameters
    ----------
    value : float or complex
    std_error : float
        Standard error, for a complex number that of its real part; NaN if it is undefined, as for repeated roots.
    imaginary_error : float
        Standard error of the imaginary part.

    Examples
    --------
    >>> Uncertain(4.0312, 0.0524)
    4.031 ± 0.052
    """

    value: complex
    std_error: float
    imaginary_error: float = 0.0

    def __repr__(self) -> str:
        number, errors = complex(self.value), (self.std_error, self.imaginary_error)
        if not number.imag:
            return f"{format_number(number.real, errors[0])} ± {errors[0]:.2g}"
        sign = "-" if number.imag < 0 else "+"
        real, imaginary = format_number(number.real, errors[0]), format_number(abs(number.imag), errors[1])
        return f"{real} {sign} {imaginary}j (± {errors[0]:.2g}, ± {errors[1]:.2g}j)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; non-finite numbers are None."""
        number = complex(self.value)
        found: dict[str, float | None] = {"value": number.real, "std_error": self.std_error}
        if number.imag:
            found |= {"imaginary": number.imag, "imaginary_error": self.imaginary_error}
        return {key: value if value is not None and math.isfinite(value) else None for key, value in found.items()}


def delta_method_std(jacobian: NDArray[Any], covariance: Array) -> tuple[Array, Array]:
    """Return standard errors of real and imaginary parts, each of the shape of the numbers.

    Shapes: jacobian (p, ...), covariance (p, p).
    """
    both = []
    for part in (np.real(jacobian), np.imag(jacobian)):
        variance = np.einsum("p...,pq,q...->...", part, covariance, part)
        both.append(np.sqrt(np.maximum(variance, 0.0)))
    return both[0], both[1]


#: An imaginary part below this, relative to the root, is a rounding error.
_IMAGINARY_TOLERANCE = 1e-12


def generalized_eigenvalues(M: Array, E: Array, dM: Array, dE: Array) -> tuple[ComplexArray, ComplexArray]:
    """Return finite roots of ``det(M - z E)``, shape (k,), and derivatives (p, k); NaN for repeated roots.

    Shapes: M, E (n, n), dM, dE (p, n, n).
    """
    if not len(M):
        return np.zeros(0, dtype=complex), np.zeros((len(dM), 0), dtype=complex)
    values, left, right = eig(M, E, left=True, right=True)
    # Larger eigenvalues are infinite up to rounding errors.
    finite = np.flatnonzero(np.isfinite(values) & (np.abs(values) < 1e10 * max(float(np.abs(M).max()), 1.0)))
    slopes = np.full((len(dM), len(finite)), np.nan + 0j)
    for place, k in enumerate(finite):
        y, x = left[:, k].conj(), right[:, k]
        below = complex(y @ E @ x)
        # Repeated roots have no derivative.
        if abs(below) > 1e-7 * float(np.linalg.norm(y) * np.linalg.norm(E @ x)):
            slopes[:, place] = np.einsum("i,pij,j->p", y, dM - values[k] * dE, x) / below
    return np.asarray(values[finite], dtype=complex), slopes


def transmission_zeros(matrices: tuple[Any, ...], jacobians: tuple[Any, ...]) -> tuple[ComplexArray, ComplexArray]:
    """Return the zeros from one input to one output, with derivatives: Rosenbrock's system matrix is singular there."""

    def pencil(A: Array, B: Array, C: Array, D: Any, D1: Any) -> tuple[Array, Array]:
        leading, s = A.shape[:-2], A.shape[-1]
        M, E = np.zeros((*leading, s + 1, s + 1)), np.zeros((*leading, s + 1, s + 1))
        M[..., :s, :s], M[..., :s, s], M[..., s, :s], M[..., s, s] = A, B, C, D
        E[..., s, s] = -np.asarray(D1)
        return M, E

    (M, E), (dM, dE) = pencil(*matrices), pencil(*jacobians)
    E[: len(M) - 1, : len(M) - 1] = np.eye(len(M) - 1)
    return generalized_eigenvalues(M, E, dM, dE)


def cancel_poles_and_zeros(zeros: ComplexArray, poles: ComplexArray) -> tuple[list[int], list[int]]:
    """Return the indices of the zeros and of the poles that remain after cancellation."""
    left = list(range(len(poles)))
    kept = []
    size = float(np.abs(poles).max(initial=0.0))
    for k, zero in enumerate(zeros):
        near = min(left, key=lambda j: abs(poles[j] - zero), default=-1)
        if near >= 0 and abs(poles[near] - zero) <= 1e-7 * max(size, abs(zero)):
            left.remove(near)
        else:
            kept.append(k)
    return kept, left


def describe_poles(
    poles: ComplexArray, jacobian: ComplexArray, covariance: Array
) -> tuple[tuple[Uncertain, ...], tuple[Uncertain, ...], tuple[Uncertain, ...]]:
    """Return ``-1/p`` of real poles, and ``|p|`` and ``-Re p / |p|`` of complex pairs; slowest first.

    Shapes: poles, jacobian (k,) and (p, k), covariance (p, p).
    """

    def estimate(value: float, change: ComplexArray) -> Uncertain:
        return Uncertain(value, float(delta_method_std(np.real(change), covariance)[0]))

    times, frequencies, ratios = [], [], []
    for k in np.argsort(np.abs(poles)).tolist():
        pole, slope, size = poles[k], jacobian[:, k], abs(poles[k])
        if abs(pole.imag) <= _IMAGINARY_TOLERANCE * size:
            times.append(estimate(-1.0 / pole.real, slope / pole**2) if size else Uncertain(np.inf, np.nan))
        elif pole.imag > 0:
            relative = slope / pole
            frequencies.append(estimate(size, size * relative))
            ratios.append(estimate(-pole.real / size, (pole.real * relative.real - slope) / size))
    return tuple(times), tuple(frequencies), tuple(ratios)


def sort_roots(roots: ComplexArray, jacobian: ComplexArray, covariance: Array) -> tuple[Uncertain, ...]:
    """Return roots with standard errors, in order of magnitude.

    Shapes: roots, jacobian (k,) and (p, k), covariance (p, p).
    """
    # A complex pair has the same magnitude up to rounding errors, which must not affect the order.
    order = sorted(range(len(roots)), key=lambda k: (float(f"{abs(roots[k]):.11e}"), -roots[k].imag))
    errors = delta_method_std(jacobian, covariance)
    found = []
    for k in order:
        is_real = abs(roots[k].imag) <= _IMAGINARY_TOLERANCE * abs(roots[k])
        value = complex(roots[k].real, 0.0) if is_real else complex(roots[k])
        found.append(Uncertain(value, float(errors[0][k]), 0.0 if is_real else float(errors[1][k])))
    return tuple(found)


#: Fields of a transfer function with several numbers.
_ESTIMATES = "time_constants", "natural_frequencies", "damping_ratios", "poles", "zeros"


@dataclass(frozen=True, eq=False)
class TransferFunction:
    """The transfer function from one input to one channel, ``numerator(s) / denominator(s) * exp(-delay s)``.

    Parameters
    ----------
    output, input : str
        Channels.
    numerator, denominator : arrays
        Coefficients, highest power of s first, after cancellation; the denominator is monic.
    poles, zeros : tuple of Uncertain
        The roots of both, in order of magnitude.
    time_constants : tuple of Uncertain
        ``-1/p`` for each real pole p; slowest first, infinite at zero.
    natural_frequencies, damping_ratios : tuple of Uncertain
        ``|p|`` in radians per unit of time, and ``-Re p / |p|``, for each pair of complex poles; slowest first.
    gain : Uncertain
        The static gain, the value at s = 0; infinite for an integrator.
    delay : Uncertain
        The dead time; zero if there is none.
    time_unit : str
        Unit of time, if known.
    """

    output: str
    input: str
    numerator: Array
    denominator: Array
    poles: tuple[Uncertain, ...]
    zeros: tuple[Uncertain, ...]
    time_constants: tuple[Uncertain, ...]
    natural_frequencies: tuple[Uncertain, ...]
    damping_ratios: tuple[Uncertain, ...]
    gain: Uncertain
    delay: Uncertain
    time_unit: str = ""

    def at(self, frequencies: ArrayLike) -> ComplexArray:
        """Return the frequency response, including dead time; infinite at a pole.

        Parameters
        ----------
        frequencies : array-like
            In radians per unit of time.
        """
        s = 1j * np.asarray(frequencies, dtype=float)
        below = np.polyval(self.denominator, s)
        is_pole = below == 0
        found = np.polyval(self.numerator, s) / np.where(is_pole, 1.0, below) * np.exp(-s * self.delay.value)
        return np.where(is_pole, np.inf, found)

    def to_scipy(self, *, order: int | None = None) -> Any:
        """Return a ``scipy.signal.TransferFunction``, without the dead time, or with it approximated.

        Parameters
        ----------
        order : int, optional
            Order of the Padé approximation of the dead time; required if there is one, because SciPy has no delays.
        """
        return import_module("scipy.signal").TransferFunction(*self._rational(order))

    def to_control(self, *, order: int | None = None) -> Any:
        """Return a ``control.TransferFunction`` of python-control, which must be installed.

        Parameters
        ----------
        order : int, optional
            As in `to_scipy`.
        """
        return import_control().TransferFunction(*self._rational(order), inputs=[self.input], outputs=[self.output])

    def _rational(self, order: int | None) -> tuple[Array, Array]:
        delay = float(np.real(self.delay.value))
        if not delay:
            return self.numerator, self.denominator
        if order is None:
            raise LodekitError(
                f"the response of {self.output} to {self.input} has a dead time of {delay:.4g}, which a rational "
                "transfer function cannot represent; pass order=3 for a Padé approximation, or order=0 to omit it"
            )
        top, bottom = pade_approximation(delay, order)
        return np.convolve(self.numerator, top), np.convolve(self.denominator, bottom)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "output": self.output,
            "input": self.input,
            "numerator": self.numerator.tolist(),
            "denominator": self.denominator.tolist(),
            "gain": self.gain.to_dict(),
            "delay": self.delay.to_dict(),
            **{name: [each.to_dict() for each in getattr(self, name)] for name in _ESTIMATES},
        }

    def __repr__(self) -> str:
        unit = f" {self.time_unit}" if self.time_unit else ""
        late = f" exp(-{np.real(self.delay.value):.4g} s)" if self.delay.value else ""
        ratio = f"({_format_polynomial(self.numerator)}) / ({_format_polynomial(self.denominator)})"
        lines = [f"{self.output} = {ratio}{late} {self.input}", f"  static gain        {self.gain!r}"]
        lines += [f"  dead time          {self.delay!r}{unit}"] if self.delay.value else []
        lines += [f"  time constant      {each!r}{unit}" for each in self.time_constants]
        rate = f" rad/{self.time_unit}" if unit else ""
        for speed, damping in zip(self.natural_frequencies, self.damping_ratios, strict=True):
            lines += [f"  natural frequency  {speed!r}{rate}, damping ratio {damping!r}"]
        # A complex pair has one line.
        for label, roots in (("pole", self.poles), ("zero", self.zeros)):
            shown = [repr(each) for each in roots if complex(each.value).imag >= 0.0]
            lines += [f"  {label:<19}{text.replace(' + ', ' ± ', 1)}" for text in shown]
        return "\n".join(lines)


def _format_polynomial(coefficients: Array) -> str:
    order = len(coefficients) - 1
    parts = []
    for k, value in enumerate(coefficients):
        power = order - k
        if value or (order == 0):
            unit = "" if power == 0 else "s" if power == 1 else f"s^{power}"
            number = "" if value == 1.0 and unit else f"{value:.4g}"
            parts.append(" ".join(part for part in (number, unit) if part))
    return " + ".join(parts).replace("+ -", "- ")


def pade_approximation(delay: float, order: int) -> tuple[Array, Array]:
    """Return numerator and denominator of the Pade approximation of ``exp(-delay s)``, highest power first.

    Examples
    --------
    >>> [part.tolist() for part in pade_approximation(2.0, 1)]
    [[-1.0, 1.0], [1.0, 1.0]]
    """
    if isinstance(order, bool) or not isinstance(order, int) or not 0 <= order <= 20:
        raise LodekitError(f"expected order as a whole number from 0 to 20, got {order!r}")
    comb, factorial, n = math.comb, math.factorial, 2 * order
    bottom = np.array([comb(order, k) * factorial(n - k) / factorial(n) * delay**k for k in range(order, -1, -1)])
    return bottom * (-1.0) ** np.arange(order, -1, -1), bottom


def import_control() -> Any:
    """Return python-control; raise if it is not installed."""
    try:
        return import_module("control")
    except ImportError:
        raise LodekitError("python-control is not installed; try: pip install control, or use to_scipy()") from None


@dataclass(frozen=True, eq=False)
class FittedStateSpace:
    """``x' = A x + B v``, ``g = C x + D v + D1 v'`` at the estimated parameters, with standard errors of results.

    Parameters
    ----------
    exact : StateSpace
        The same as functions of the parameters.
    names : tuple of str
        Names of the parameters.
    theta : array, shape (p,)
        Their values.
    covariance : array, shape (p, p)
        Their covariance; widened if residuals are correlated.
    time_unit : str
        Unit of time, if known.

    Attributes
    ----------
    A, B, C : array
        State matrix, states x states; input matrix, states x inputs; output matrix, outputs x states.
    D, D1 : array
        Feedthrough matrices of the inputs and of their derivatives, outputs x inputs.
    delays : array
        The delay of each input, shape (inputs,).
    """

    exact: StateSpace
    names: tuple[str, ...]
    theta: Array
    covariance: Array
    time_unit: str = ""
    A: Array = field(init=False)
    B: Array = field(init=False)
    C: Array = field(init=False)
    D: Array = field(init=False)
    D1: Array = field(init=False)
    delays: Array = field(init=False)

    def __post_init__(self) -> None:
        for name, matrix in self._matrices[0].items():
            object.__setattr__(self, name, matrix)

    @cached_property
    def _matrices(self) -> list[dict[str, Array]]:
        """The matrices by name, and their derivatives by the parameters, parameters first."""
        shapes = self.exact.shapes
        tables = ScalarFunctions(self.exact.ring, self.exact.scalars).evaluate(self.theta)
        return [dict(zip(shapes, split_table(np, table, list(shapes.values())), strict=True)) for table in tables]

    @property
    def states(self) -> tuple[str, ...]:
        """The states, each as an expression in the channels."""
        return self.exact.states

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the columns of B and D: channels, or delayed channels."""
        return tuple(str(name) for name in self.exact.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output channels."""
        return self.exact.outputs

    def slopes(self, name: str) -> Array:
        """Return derivatives of a matrix by the parameters, parameters first.

        Parameters
        ----------
        name : {"A", "B", "C", "D", "D1", "delays"}
        """
        if name not in self.exact.shapes:
            raise LodekitError(f"unknown matrix {name!r}; expected one of {', '.join(self.exact.shapes)}")
        return self._matrices[1][name]

    @cached_property
    def _eigenvalues(self) -> tuple[ComplexArray, ComplexArray]:
        """The eigenvalues of A, shape (s,), and their derivatives by the parameters, (p, s)."""
        slopes = self.slopes("A")
        return generalized_eigenvalues(self.A, np.eye(len(self.A)), slopes, np.zeros_like(slopes))

    @cached_property
    def poles(self) -> tuple[Uncertain, ...]:
        """The eigenvalues of A, in order of magnitude."""
        return sort_roots(*self._eigenvalues, self.covariance)

    def to_scipy(self) -> Any:
        """Return a ``scipy.signal.StateSpace``; raise if an input is delayed, or enters by its derivative."""
        return import_module("scipy.signal").StateSpace(*self._undelayed_matrices("SciPy"))

    def to_control(self) -> Any:
        """Return a ``control.StateSpace`` of python-control, which must be installed."""
        module = import_control()
        names = {"inputs": list(self.inputs), "outputs": list(self.outputs)}
        return module.StateSpace(*self._undelayed_matrices("python-control"), **names)

    def _undelayed_matrices(self, who: str) -> tuple[Array, Array, Array, Array]:
        if self.delays.any():
            raise LodekitError(
                f"the inputs act after {', '.join(f'{each:.4g}' for each in self.delays)}, and a state space of {who} "
                "has no dead time; try transfer_function(...).to_scipy(order=3)"
            )
        if self.D1.any():
            raise LodekitError(f"the channels respond to slopes of inputs, which a state space of {who} does not have")
        return self.A, self.B, self.C, self.D

    def _columns(self, output: str, input: str) -> tuple[int, list[int]]:
        """Return the row of an output, and the columns of an input with all its delays."""
        if output not in self.outputs:
            raise LodekitError(f"unknown output {output!r}; expected one of {', '.join(self.outputs)}")
        columns = [j for j, name in enumerate(self.exact.channels) if name == input]
        if not columns:
            known = dict.fromkeys(self.exact.channels)
            raise LodekitError(f"unknown input {input!r}; expected one of {', '.join(known)}")
        # An input that only acts with dead time has an undelayed column of zeros as well.
        acting = [j for j in columns if any(part[:, j].any() for part in (self.B, self.D, self.D1))]
        return self.outputs.index(output), acting or columns

    def frequency_response(self, output: str, input: str, frequencies: ArrayLike) -> tuple[ComplexArray, ComplexArray]:
        """Return the frequency response, shape (n,), and its derivatives by the parameters, (p, n).

        Parameters
        ----------
        output, input : str
            An output channel and an input.
        frequencies : array-like, shape (n,)
            In radians per unit of time.
        """
        row, columns = self._columns(output, input)
        s = 1j * as_float_array("frequencies", frequencies)
        h, d_h = self.C[row].astype(complex), self.slopes("C")[:, row]
        try:
            inverse = np.linalg.inv(s[:, None, None] * np.eye(len(self.A)) - self.A)
        except np.linalg.LinAlgError:
            raise LodekitError("a pole lies on one of these frequencies, where the response is infinite") from None
        left = h @ inverse
        total, slopes = np.zeros(len(s), dtype=complex), np.zeros((len(self.theta), len(s)), dtype=complex)
        for j in columns:
            right = inverse @ self.B[:, j]
            own = right @ h + self.D[row, j] + s * self.D1[row, j]
            change = np.einsum("ni,pij,nj->pn", left, self.slopes("A"), right)
            change += np.einsum("ni,pi->pn", left, self.slopes("B")[:, :, j])
            change += np.einsum("pi,ni->pn", d_h, right)
            change += self.slopes("D")[:, row, j, None] + s * self.slopes("D1")[:, row, j, None]
            late = np.exp(-s * self.delays[j])
            total += late * own
            slopes += late * (change - s * own * self.slopes("delays")[:, j, None])
        return total, slopes

    def step_response(self, output: str, input: str, times: ArrayLike) -> tuple[Array, Array]:
        """Return the response to a unit step at zero, from rest, shape (n,), and its standard errors, (n,).

        Parameters
        ----------
        output, input : str
            An output channel and an input.
        times : array-like, shape (n,)
            In any order.
        """
        row, columns = self._columns(output, input)
        if self.D1[row, columns].any():
            raise LodekitError(f"{output} responds to the slope of {input}, which is infinite at a step")
        asked = as_times(times)

        def select(A: Array, B: Array, C: Array, D: Array, D1: Array) -> StateMatrices:
            C, D, D1 = (each[..., row : row + 1, :] for each in (C, D, D1))
            return StateMatrices(A, B[..., columns], C, D[..., columns], D1[..., columns])

        matrices = select(self.A, self.B, self.C, self.D, self.D1)
        changes = select(*map(self.slopes, ("A", "B", "C", "D", "D1")))
        step = InputSignal(np.array([-1.0, 0.0]), np.array([0.0, 1.0]), "hold")
        order = np.argsort(asked, kind="stable")
        plan = ResponsePlan([step] * len(columns), asked[order], min(-1.0, float(asked.min(initial=0.0))))
        found = StateSpaceResponse(plan, matrices, self.delays[columns])
        values, errors = np.empty(len(asked)), np.empty(len(asked))
        values[order] = found.values[0]
        jacobian = found.jacobian(changes, self.slopes("delays")[:, columns])[:, 0]
        errors[order] = delta_method_std(jacobian, self.covariance)[0]
        return values, errors

    def transfer_function(self, output: str, input: str) -> TransferFunction:
        """Return the transfer function from one input to one channel.

        Parameters
        ----------
        output, input : str
            An output channel and an input.
        """
        row, columns = self._columns(output, input)
        delays = self.delays[columns]
        if np.ptp(delays) > 0:
            raise LodekitError(
                f"{input} acts on {output} with several delays, which is not a ratio of polynomials; try plot_bode, or "
                "the matrices of state_space()"
            )
        B, D, D1 = (getattr(self, name)[..., columns].sum(-1) for name in ("B", "D", "D1"))
        dB, dD, dD1 = (self.slopes(name)[..., columns].sum(-1) for name in ("B", "D", "D1"))
        C, dC = self.C[row], self.slopes("C")[:, row]
        changes = self.slopes("A"), dB, dC, dD[:, row], dD1[:, row]
        zeros, d_zeros = transmission_zeros((self.A, B, C, D[row], D1[row]), changes)
        poles, d_poles = self._eigenvalues
        kept_zeros, kept_poles = cancel_poles_and_zeros(zeros, poles)
        zeros, d_zeros = zeros[kept_zeros], d_zeros[:, kept_zeros]
        poles, d_poles = poles[kept_poles], d_poles[:, kept_poles]
        denominator, numerator = (np.atleast_1d(np.real(np.poly(roots))) for roots in (poles, zeros))
        # The leading coefficient of the numerator follows from the response at one frequency away from all roots.
        s = 1j * (1.0 + 2.0 * float(np.abs(np.concatenate([zeros, poles])).max(initial=1.0)))
        response = self.frequency_response(output, input, [s.imag])[0][0] * np.exp(s * delays[0])
        numerator = numerator * float(np.real(response * np.prod(s - poles) / np.prod(s - zeros)))
        errors = delta_method_std(self.slopes("delays")[:, columns[0]], self.covariance)
        return TransferFunction(
            output,
            input,
            numerator,
            denominator,
            sort_roots(poles, d_poles, self.covariance),
            sort_roots(zeros, d_zeros, self.covariance),
            *describe_poles(poles, d_poles, self.covariance),
            self.gain(output, input),
            Uncertain(float(delays[0]), float(errors[0])),
            self.time_unit,
        )

    def gain(self, output: str, input: str) -> Uncertain:
        """Return the static gain ``D - C inv(A) B``; infinite for an integrator.

        Parameters
        ----------
        output, input : str
            An output channel and an input.
        """
        row, columns = self._columns(output, input)
        B, D = self.B[:, columns].sum(1), float(self.D[row, columns].sum())
        dB, dD = self.slopes("B")[:, :, columns].sum(2), self.slopes("D")[:, row, columns].sum(1)
        try:
            if len(self.A) and np.linalg.cond(self.A) > 1e14:
                raise np.linalg.LinAlgError
            right, left = np.linalg.solve(self.A, B), np.linalg.solve(self.A.T, self.C[row])
        except np.linalg.LinAlgError:
            return Uncertain(np.inf, np.nan)
        slopes = dD - self.slopes("C")[:, row] @ right - dB @ left
        slopes += np.einsum("i,pij,j->p", left, self.slopes("A"), right)
        return Uncertain(D - float(self.C[row] @ right), float(delta_method_std(slopes, self.covariance)[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found: dict[str, Any] = {name: list(getattr(self, name)) for name in ("states", "inputs", "outputs")}
        found |= {name: getattr(self, name).tolist() for name in ("A", "B", "C", "D", "D1", "delays")}
        return found | {"poles": [each.to_dict() for each in self.poles]}

    def __repr__(self) -> str:
        lines = [f"x{i} = {meaning}" for i, meaning in enumerate(self.states, 1)]
        for name in ("A", "B", "C", "D", *(["D1"] if self.D1.any() else [])):
            text = np.array2string(getattr(self, name), precision=5, suppress_small=False, prefix=f"{name} = ")
            lines.append(f"{name} = {text}")
        lines.append(f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}")
        if self.delays.any():
            lines.append(f"delays {', '.join(f'{each:.5g}' for each in self.delays)}")
        return "\n".join([*lines, *(f"pole {each!r}" for each in self.poles)])


def state_space(fit: Fit, inputs: Mapping[str, str] | Iterable[str] | None = None) -> FittedStateSpace:
    """Return the state space from inputs to all other channels at the estimated parameters.

    Parameters
    ----------
    inputs : sequence of str, or dict of str to str, optional
        Input channels: ``"hold"``, the default, or ``"linear"``. By default the known inputs of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 60)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> y = 3 * (1 - np.exp(-t / 2)) + 0.01 * np.sin(40 * t)
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(60)})
    >>> space = gp.state_space()
    >>> space.A.shape, space.to_scipy().A.shape, bool(abs(space.poles[0].value + 0.5) < 0.01)
    ((1, 1), (1, 1), True)
    """
    kinds: Any = inputs
    if inputs is None:
        kinds = {name: signal.kind for name, signal in fit.measurements.inputs.items()}
        if not kinds:
            raise LodekitError(
                "expected inputs=, the channels that others respond to, because the fit has no known inputs; "
                f"channels are {', '.join(fit.system.channels)}"
            )
    disturbances = list(fit.prior.disturbances)
    exact = (fit.system.given(disturbances, are_all=False) if disturbances else fit.system).state_space(kinds)
    names = tuple(fit.layout.names)
    return FittedStateSpace(exact, names, fit.hyperparameters.theta, fit.parameter_covariance, fit.clock.unit)


def transfer_function(
    fit: Fit,
    output: str | None = None,
    input: str | None = None,
    *,
    inputs: Mapping[str, str] | Iterable[str] | None = None,
) -> TransferFunction:
    """Return the transfer function from one input to one channel, with standard errors of poles, zeros and gain.

    Parameters
    ----------
    output, input : str, optional
        An output channel and an input; optional if there is only one of each.
    inputs : sequence of str, or dict of str to str, optional
        All inputs, as in `state_space`; by default those of the fit, otherwise `input` alone.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 60)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> y = 3 * (1 - np.exp(-t / 2)) + 0.01 * np.sin(40 * t)
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(60)})
    >>> found = gp.transfer_function("y", "u")
    >>> [round(float(each.value.real), 1) for each in (found.gain, found.time_constants[0])]
    [3.0, 2.0]
    """
    if inputs is None and not fit.measurements.inputs and input is not None:
        inputs = [input]
    found = state_space(fit, inputs)
    channels = tuple(dict.fromkeys(found.exact.channels))
    if (output is None and len(found.outputs) > 1) or (input is None and len(channels) > 1):
        raise LodekitError(
            f"expected transfer_function(output, input); outputs are {', '.join(found.outputs)}, inputs are "
            f"{', '.join(channels)}"
        )
    return found.transfer_function(output or found.outputs[0], input or channels[0])


#: Number of points of a curve.
_N_POINTS = 240


def data_frequency_band(fit: Fit) -> tuple[float, float]:
    """Return the frequency band of the data, in radians per unit of time.

    Periods range from two sampling intervals to the length of the record.
    """
    first, last = fit.measurements.window
    steps = np.concatenate([np.diff(part.measurements.time_grid()) for part in fit.record_fits])
    step = float(np.median(steps)) if len(steps) else 1.0
    return 2.0 * np.pi / max(last - first, 1e-300), np.pi / step


def frequency_grid(fit: Fit, space: FittedStateSpace) -> Array:
    """Return frequencies around the poles, in radians per unit of time."""
    sizes = [abs(pole.value) for pole in space.poles if abs(pole.value) > 0] or list(data_frequency_band(fit))
    return np.geomspace(0.03 * min(sizes), 30.0 * max(sizes), _N_POINTS)


def step_grid(fit: Fit, space: FittedStateSpace) -> Array:
    """Return times after a step: six of the slowest time constants, or the length of the record."""
    first, last = fit.measurements.window
    rates = [-complex(pole.value).real for pole in space.poles]
    slow = [1.0 / rate for rate in rates if rate > 0]
    long = 6.0 * max(slow) if slow and min(rates) > 0 else last - first
    return np.linspace(0.0, long + 1.2 * float(space.delays.max(initial=0.0)), _N_POINTS)
