"""The state space of a fitted system in numbers, with derivatives in the parameters and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.arguments import read_numbers, read_times
from lodekit.data.inputs import InputSignal
from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.plant.roots import cancel, find_roots, find_zeros, order_roots, time_constants
from lodekit.plant.transfer import TransferFunction, control_module, signal_module
from lodekit.plant.uncertain import Uncertain, spreads
from lodekit.prior.compile import ScalarTable
from lodekit.prior.responses.matrices import StateMatrices
from lodekit.prior.responses.response import ResponsePlan
from lodekit.system.state_space import StateSpace

__all__ = ["FittedStateSpace", "state_space", "transfer_function"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
#: Beyond this condition a matrix is singular: something integrates.
_SINGULAR = 1e14


@dataclass(frozen=True, eq=False)
class FittedStateSpace:
    """``x' = F x + G v``, ``g = H x + D v + D1 v'`` at learned parameters, with standard errors of what follows.

    Parameters
    ----------
    exact : StateSpace
        The same with parameters in it.
    names : tuple of str
        The parameters.
    theta : array, shape (p,)
        Their values.
    covariance : array, shape (p, p)
        Their covariance; widened where residuals are correlated.
    time_unit : str
        Of the time, where it is known.
    """

    exact: StateSpace
    names: tuple[str, ...]
    theta: Array
    covariance: Array
    time_unit: str = ""

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        return ScalarTable(self.exact.ring, self.exact.scalars).evaluate(self.theta)

    def _take(self, name: str, part: Array) -> Array:
        """Return one of the matrices out of all their entries, or out of the derivatives of these."""
        start = 0
        for other, shape in self.exact.shapes.items():
            stop = start + int(np.prod(shape))
            if other == name:
                return part[..., start:stop].reshape(*part.shape[:-1], *shape)
            start = stop
        raise LodekitError(f"unknown matrix {name!r}; expected one of {', '.join(self.exact.shapes)}")

    @property
    def states(self) -> tuple[str, ...]:
        """What each state is, as an expression in the channels."""
        return self.exact.states

    @property
    def inputs(self) -> tuple[str, ...]:
        """What each column of G and D multiplies: a channel, or a delayed one."""
        return tuple(str(name) for name in self.exact.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The channels that respond."""
        return self.exact.outputs

    @property
    def F(self) -> Array:
        """How states move by themselves, states x states."""
        return self._take("F", self._table[0])

    @property
    def G(self) -> Array:
        """How inputs move the states, states x inputs."""
        return self._take("G", self._table[0])

    @property
    def H(self) -> Array:
        """How the channels follow from the states, outputs x states."""
        return self._take("H", self._table[0])

    @property
    def D(self) -> Array:
        """What inputs add to the channels at once, outputs x inputs."""
        return self._take("D", self._table[0])

    @property
    def D1(self) -> Array:
        """What slopes of inputs add to the channels, outputs x inputs."""
        return self._take("D1", self._table[0])

    @property
    def delays(self) -> Array:
        """By how much later each input acts, shape (inputs,)."""
        return self._take("delays", self._table[0])

    def slopes(self, name: str) -> Array:
        """Return derivatives of a matrix in the parameters, parameters first.

        Parameters
        ----------
        name : {"F", "G", "H", "D", "D1", "delays"}
        """
        return self._take(name, self._table[1])

    @cached_property
    def _eigenvalues(self) -> tuple[Complex, Complex]:
        """Those of F, shape (s,), and their derivatives in the parameters, (p, s)."""
        slopes = self.slopes("F")
        return find_roots(self.F, np.eye(len(self.F)), slopes, np.zeros_like(slopes))

    @cached_property
    def poles(self) -> tuple[Uncertain, ...]:
        """The eigenvalues of F, in the order of their distance from zero."""
        return order_roots(*self._eigenvalues, self.covariance)

    def to_scipy(self) -> Any:
        """Return a ``scipy.signal.StateSpace``; raise where an input is delayed or acts by its slope."""
        return signal_module().StateSpace(*self._plain("SciPy"))

    def to_control(self) -> Any:
        """Return a ``control.StateSpace`` of python-control, which must be installed."""
        module = control_module()
        names = {"inputs": list(self.inputs), "outputs": list(self.outputs)}
        return module.StateSpace(*self._plain("python-control"), **names)

    def _plain(self, who: str) -> tuple[Array, Array, Array, Array]:
        if self.delays.any():
            raise LodekitError(
                f"the inputs act after {', '.join(f'{each:.4g}' for each in self.delays)}, and a state space of {who} "
                "has no dead time; try transfer_function(...).to_scipy(order=3)"
            )
        if self.D1.any():
            raise LodekitError(f"the channels respond to slopes of inputs, which a state space of {who} does not have")
        return self.F, self.G, self.H, self.D

    def _columns(self, output: str, input: str) -> tuple[int, list[int]]:
        """Return the row of an output, and the columns of an input with all its delays."""
        if output not in self.outputs:
            raise LodekitError(f"unknown output {output!r}; expected one of {', '.join(self.outputs)}")
        columns = [j for j, name in enumerate(self.exact.channels) if name == input]
        if not columns:
            known = dict.fromkeys(self.exact.channels)
            raise LodekitError(f"unknown input {input!r}; expected one of {', '.join(known)}")
        # An input that acts with dead time alone has a column of its own all the same, of zeros.
        acting = [j for j in columns if any(part[:, j].any() for part in (self.G, self.D, self.D1))]
        return self.outputs.index(output), acting or columns

    def frequency_response(self, output: str, input: str, frequencies: ArrayLike) -> tuple[Complex, Complex]:
        """Return the response to waves, shape (n,), and its derivatives in the parameters, (p, n).

        Parameters
        ----------
        output, input : str
            A channel that responds, and an input.
        frequencies : array-like, shape (n,)
            In radians per unit of time.
        """
        row, columns = self._columns(output, input)
        s = 1j * read_numbers("frequencies", frequencies)
        h, d_h = self.H[row].astype(complex), self.slopes("H")[:, row]
        try:
            inverse = np.linalg.inv(s[:, None, None] * np.eye(len(self.F)) - self.F)
        except np.linalg.LinAlgError:
            raise LodekitError("a pole lies on one of these frequencies, where the response is infinite") from None
        left = h @ inverse
        total, slopes = np.zeros(len(s), dtype=complex), np.zeros((len(self.theta), len(s)), dtype=complex)
        for j in columns:
            right = inverse @ self.G[:, j]
            own = right @ h + self.D[row, j] + s * self.D1[row, j]
            change = np.einsum("ni,pij,nj->pn", left, self.slopes("F"), right)
            change += np.einsum("ni,pi->pn", left, self.slopes("G")[:, :, j])
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
            A channel that responds, and an input.
        times : array-like, shape (n,)
            In any order.
        """
        row, columns = self._columns(output, input)
        if self.D1[row, columns].any():
            raise LodekitError(f"{output} responds to the slope of {input}, which is infinite at a step")
        asked = read_times(times)
        matrices = StateMatrices(
            self.F,
            self.G[:, columns],
            self.H[row : row + 1],
            self.D[row : row + 1][:, columns],
            self.D1[row : row + 1][:, columns],
        )
        changes = StateMatrices(
            self.slopes("F"),
            self.slopes("G")[:, :, columns],
            self.slopes("H")[:, row : row + 1],
            self.slopes("D")[:, row : row + 1][:, :, columns],
            self.slopes("D1")[:, row : row + 1][:, :, columns],
        )
        step = InputSignal(np.array([-1.0, 0.0]), np.array([0.0, 1.0]), "hold")
        order = np.argsort(asked, kind="stable")
        plan = ResponsePlan([step] * len(columns), asked[order], min(-1.0, float(asked.min(initial=0.0))))
        found = plan.respond(matrices, self.delays[columns])
        values, errors = np.empty(len(asked)), np.empty(len(asked))
        values[order] = found.values[0]
        jacobian = found.jacobian(changes, self.slopes("delays")[:, columns])[:, 0]
        errors[order] = spreads(jacobian, self.covariance)[0]
        return values, errors

    def transfer_function(self, output: str, input: str) -> TransferFunction:
        """Return how one channel responds to one input, as a ratio of polynomials with a dead time.

        Parameters
        ----------
        output, input : str
            A channel that responds, and an input.
        """
        row, columns = self._columns(output, input)
        delays = self.delays[columns]
        if np.ptp(delays) > 0:
            raise LodekitError(
                f"{input} acts on {output} with several delays, which no ratio of polynomials is; try plot_bode, or "
                "the matrices of state_space()"
            )
        G, D, D1 = (getattr(self, name)[..., columns].sum(-1) for name in ("G", "D", "D1"))
        dG, dD, dD1 = (self.slopes(name)[..., columns].sum(-1) for name in ("G", "D", "D1"))
        H, dH = self.H[row], self.slopes("H")[:, row]
        zeros, d_zeros = find_zeros(
            (self.F, G, H, D[row], D1[row]), (self.slopes("F"), dG, dH, dD[:, row], dD1[:, row])
        )
        poles, d_poles = self._eigenvalues
        kept_zeros, kept_poles = cancel(zeros, poles)
        zeros, d_zeros = zeros[kept_zeros], d_zeros[:, kept_zeros]
        poles, d_poles = poles[kept_poles], d_poles[:, kept_poles]
        denominator = np.real(np.poly(poles)) if len(poles) else np.ones(1)
        numerator = np.real(np.poly(zeros)) if len(zeros) else np.ones(1)
        numerator = numerator * self._leading(output, input, zeros, poles)
        errors = spreads(self.slopes("delays")[:, columns[0]], self.covariance)
        return TransferFunction(
            output,
            input,
            np.atleast_1d(numerator),
            np.atleast_1d(denominator),
            order_roots(poles, d_poles, self.covariance),
            order_roots(zeros, d_zeros, self.covariance),
            time_constants(poles, d_poles, self.covariance),
            self._gain(row, columns),
            Uncertain(float(delays[0]), float(errors[0])),
            self.time_unit,
        )

    def gain(self, output: str, input: str) -> Uncertain:
        """Return where a constant input of one leads a channel to; infinite where it leads away.

        Parameters
        ----------
        output, input : str
            A channel that responds, and an input.
        """
        return self._gain(*self._columns(output, input))

    def _leading(self, output: str, input: str, zeros: Complex, poles: Complex) -> float:
        """Return the factor of the numerator, from the response at one frequency away from all roots."""
        frequency = 1.0 + 2.0 * float(np.abs(np.concatenate([zeros, poles])).max(initial=1.0))
        response, _ = self.frequency_response(output, input, [frequency])
        _, columns = self._columns(output, input)
        s = 1j * frequency
        plain = response[0] * np.exp(s * self.delays[columns[0]])
        return float(np.real(plain * np.prod(s - poles) / np.prod(s - zeros)))

    def _gain(self, row: int, columns: list[int]) -> Uncertain:
        """Return where a constant input of one leads to."""
        G, D = self.G[:, columns].sum(1), float(self.D[row, columns].sum())
        dG, dD = self.slopes("G")[:, :, columns].sum(2), self.slopes("D")[:, row, columns].sum(1)
        try:
            if len(self.F) and np.linalg.cond(self.F) > _SINGULAR:
                raise np.linalg.LinAlgError
            right, left = np.linalg.solve(self.F, G), np.linalg.solve(self.F.T, self.H[row])
        except np.linalg.LinAlgError:
            return Uncertain(np.inf, np.nan)
        slopes = dD - self.slopes("H")[:, row] @ right - dG @ left
        slopes += np.einsum("i,pij,j->p", left, self.slopes("F"), right)
        return Uncertain(D - float(self.H[row] @ right), float(spreads(slopes, self.covariance)[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        found: dict[str, Any] = {name: list(getattr(self, name)) for name in ("states", "inputs", "outputs")}
        found |= {name: getattr(self, name).tolist() for name in ("F", "G", "H", "D", "D1", "delays")}
        return found | {"poles": [each.to_dict() for each in self.poles]}

    def __repr__(self) -> str:
        lines = [f"x{i} = {meaning}" for i, meaning in enumerate(self.states, 1)]
        for name in ("F", "G", "H", "D", *(["D1"] if self.D1.any() else [])):
            text = np.array2string(getattr(self, name), precision=5, suppress_small=False, prefix=f"{name} = ")
            lines.append(f"{name} = {text}")
        lines.append(f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}")
        if self.delays.any():
            lines.append(f"delays {', '.join(f'{each:.5g}' for each in self.delays)}")
        return "\n".join([*lines, *(f"pole {each!r}" for each in self.poles)])


def state_space(fit: Fit, inputs: Mapping[str, str] | Iterable[str] | None = None) -> FittedStateSpace:
    """Return how the other channels respond to inputs, as a state space in numbers at the learned parameters.

    Parameters
    ----------
    inputs : sequence of str, or dict of str to str, optional
        Channels that are known: ``"hold"``, as by default, or ``"linear"``. Those of the fit where it has some.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 60)
    >>> system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    >>> y = 3 * (1 - np.exp(-t / 2)) + 0.01 * np.sin(40 * t)
    >>> gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(60)})
    >>> space = gp.state_space()
    >>> space.F.shape, space.to_scipy().A.shape, bool(abs(space.poles[0].value + 0.5) < 0.01)
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
    """Return how one channel responds to one input, with poles, zeros, gain and time constants and their errors.

    Parameters
    ----------
    output, input : str, optional
        A channel that responds, and an input; they may be left out where there is one of each only.
    inputs : sequence of str, or dict of str to str, optional
        All inputs, as in `state_space`; those of the fit, or else `input` alone.

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
