"""Likelihood-ratio tests of disturbances: tests of standard deviations that cannot be negative (chi-bar-squared).

Twice the gain in log likelihood is compared with its distribution without the disturbance. A standard deviation of zero
is at the boundary: in half of all samples the estimate is zero, and the gain is zero; in the other half it is
chi-squared with one degree of freedom (Chernoff 1954, Self and Liang 1987). An estimated lengthscale is undefined at a
standard deviation of zero, and the asymptotic distribution is not simple. It is treated as one more degree of freedom,
so that gains have one or two of them, which is conservative (`benchmarks/boundary.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.prior.disturbances import WHITE_NOISE, CompiledDisturbances
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, Mask
from lodekit.support.text import format_probability
from lodekit.system.dimensions import white_noise_unit
from lodekit.system.system import System

#: Note of a disturbance that has no effect on the measured channels.
UNOBSERVED_MESSAGE = "no measured channel responds to it, so the data contain no information about it"


@dataclass(frozen=True)
class Disturbance:
    """An estimated disturbance, and the test whether it is needed.

    Parameters
    ----------
    name, kind : str
    deviation : float
        Standard deviation in the unit of the channel. For white noise, the square root of its spectral density, in that
        unit times the square root of the unit of time: its integral over a time T has the standard deviation
        ``deviation * sqrt(T)``. Zero if zero is optimal.
    std_error : float
        Standard error of the deviation; NaN if that is zero, infinite if the data do not identify it.
    lengthscale : float or None
        Lengthscale in the user's unit of time; None for white noise.
    gain : float
        Gain of the objective (log evidence plus log priors) over a fit without it.
    p_value : float
        Probability of such a gain without the disturbance.
    needed : bool
        Whether the p-value is below 0.05, given all other disturbances.
    note : str
        A remark; may be empty.
    beside : tuple of str
        The other disturbances of the fit, which the test includes.
    """

    name: str
    kind: str
    deviation: float
    std_error: float
    lengthscale: float | None
    gain: float
    p_value: float
    needed: bool
    note: str = ""
    beside: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; non-finite numbers are None."""
        found = asdict(self)
        del found["beside"]
        is_odd = {key: isinstance(value, float) and not np.isfinite(value) for key, value in found.items()}
        return {key: None if is_odd[key] else value for key, value in found.items()}

    def sentence(self, units: Mapping[str, str], system: System | None = None, measured: Sequence[str] = ()) -> str:
        """Return a sentence about the disturbance.

        Parameters
        ----------
        units : dict of str to str
            Units of channels and of the time, if known.
        system : System, optional
            The equations, from which the unit of white noise follows.
        measured : sequence of str
            Channels that the sentence should prefer.

        Examples
        --------
        >>> import lodekit as lk
        >>> system, found = lk.System("x' = w"), Disturbance("w", "white", 0.4, 0.02, None, 30.0, 4.7e-15, True)
        >>> found.sentence({"x": "m", "t": "s"}, system)
        'w: white noise of intensity 0.4 m/sqrt(s) (std of its integral over 1 s); needed (p < 1e-12)'
        """
        own, time = units.get(self.name, ""), units.get("t", "")
        unit, is_white = f" {own}" if own else "", self.kind == WHITE_NOISE
        if is_white:
            short, words = white_noise_unit(system, self.name, units, measured)
            unit = f" {short}" if words == short else f" in units of {short}"
            unit += f" (std of its integral over {f'1 {time}' if time else 'one unit of time'})"
        what = "white noise" if is_white else self.kind
        if self.note == UNOBSERVED_MESSAGE:
            return f"{self.name}: {what}; {self.note}"
        beside = f" beside {' and '.join(self.beside)}" if self.beside else ""
        if not self.deviation:
            return f"{self.name}: {what}, not needed{beside}: its best value is zero"
        size = f"{self.name}: {what}{' of intensity' if is_white else ','} {self.deviation:.4g}{unit}"
        if self.lengthscale is not None:
            size += f", lengthscale {self.lengthscale:.4g}{f' {time}' if time else ''}"
        note = f"; {self.note}" if self.note else ""
        return (
            f"{size}; {'needed' if self.needed else f'not needed{beside}'} ({format_probability(self.p_value)}){note}"
        )


def chi_bar_p_value(gain: float, *, coloured: bool) -> float:
    """Return the probability of such a gain without a disturbance.

    Examples
    --------
    >>> round(chi_bar_p_value(1.3528, coloured=False), 4), chi_bar_p_value(0.0, coloured=False)
    (0.05, 1.0)
    """
    if gain <= 0.0:
        return 1.0
    one, two = (float(chdtrc(freedom, 2.0 * gain)) for freedom in (1, 2))
    return 0.5 * (one + two) if coloured else 0.5 * one


def summarize_disturbances(
    prior: Prior,
    layout: ParameterLayout,
    hyper: Hyperparameters,
    covariance: Array,
    at_bound: Mask,
    gains: Mapping[str, float],
    scale_confounded: Sequence[str] = (),
) -> dict[str, Disturbance]:
    """Return the estimated disturbances by name.

    Shapes: covariance (n, n), at_bound (n,).
    """
    own = prior.observables.disturbances
    if own is None:
        return {}
    found, start = {}, layout.slices.disturbance_deviations.start
    alike = _group_collinear(own, hyper.theta)
    for number, (name, kind) in enumerate(zip(own.names, own.kinds, strict=True)):
        is_zero, gain = bool(at_bound[start + number]), max(float(gains.get(name, 0.0)), 0.0)
        deviation = 0.0 if is_zero else float(hyper.disturbance_amplitudes[number])
        error = np.nan if is_zero else deviation * float(np.sqrt(covariance[start + number, start + number]))
        coloured = number in own.coloured_index
        length, note = None, ""
        if coloured:
            place = own.coloured_index.index(number)
            scaled = float(hyper.disturbance_lengthscales[place])
            length = np.nan if is_zero else prior.units.unscale_durations(scaled)
            if not is_zero and at_bound[layout.slices.disturbance_lengthscales.start + place]:
                short = "as short as the sampling times can resolve: use 'white' instead"
                note = f"the lengthscale is {short if scaled < 1.0 else 'longer than the record'}"
        p_value = chi_bar_p_value(0.0 if is_zero else gain, coloured=coloured)
        others = tuple(other for other in own.names if other != name)
        twins = [other for other in others if alike[own.names.index(other)] == alike[number]]
        if alike[number] is None:
            deviation, note = 0.0, UNOBSERVED_MESSAGE
        elif twins and not is_zero:
            error, note = np.inf, f"it acts in the same way as {' and '.join(twins)}: keep one of them"
        elif scale_confounded and error > 30.0 * deviation:
            error, note = np.inf, f"its size cannot be distinguished from {' and '.join(scale_confounded)}"
        # At the significance level of 5 %.
        needed = p_value < 0.05
        found[name] = Disturbance(name, kind, deviation, error, length, gain, p_value, needed, note, others)
    return found


def _group_collinear(disturbed: CompiledDisturbances, theta: Array) -> list[int | None]:
    """Return for each disturbance the first white one with the same effect, or itself; None without effect.

    Responses are compared by the coefficients of w and its derivatives, and by ``X F^j G``, which determine them.
    """
    F, G, H, D = disturbed.split(disturbed.table.evaluate(theta)[0])
    rate = float(np.abs(F).sum(axis=-1).max(initial=0.0)) or 1.0
    rows, states = [part * rate**k for k, part in enumerate(D)], G / rate
    for _ in range(len(F)):
        rows.append(H @ states)
        states = F @ states / rate
    table = np.array(rows).reshape(len(rows), -1, len(disturbed.names))
    # The comparison must not depend on the units of observables.
    table = table / np.maximum(np.abs(table).max(axis=(0, 2), initial=0.0), 1e-300)[:, None]
    columns = table.reshape(-1, len(disturbed.names)).T
    groups: list[int | None] = []
    for number, (column, kind) in enumerate(zip(columns, disturbed.kinds, strict=True)):
        size = float(np.linalg.norm(column))
        equal = [
            k for k in range(number)
            if kind == WHITE_NOISE == disturbed.kinds[k] and groups[k] == k
            and 1.0 - abs(column @ columns[k]) / (size * np.linalg.norm(columns[k]) or 1.0) < 1e-9
        ]  # fmt: skip
        groups.append(None if not size else equal[0] if equal else number)
    return groups
