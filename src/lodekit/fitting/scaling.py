"""Expected magnitudes of parameters, from the equations and the data: the units of the search.

Time is in units of a fraction of the span of the data, measured channels in units of their spread. All terms of an
equation should then have the same magnitude: a linear system for the logarithms of the magnitudes of parameters and
unmeasured channels, solved by least squares. So the search does not depend on the units of time and channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lodekit.data.records import ObservableStatistics
from lodekit.fitting import search_options as options
from lodekit.prior.observables import ObservableCompiler
from lodekit.support.arguments import Array
from lodekit.support.interval_means import parse_interval
from lodekit.system.dimensions import Monomial, find_homogeneity_groups, find_monomials
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.system import System


def estimate_channel_scales(system: System, summaries: Sequence[ObservableStatistics], span: float) -> dict[str, float]:
    """Return the expected magnitude of each measured channel that is zero throughout."""
    zero = [item.observable for item in summaries if item.is_zero and item.observable in system.plain_channels]
    if not zero or len(zero) == len(summaries):
        return {}
    found = solve_balance_equations(system, summaries, span)
    return {name: found[name] for name in zero}


def solve_balance_equations(
    system: System, summaries: Sequence[ObservableStatistics], span: float, time_constant: float | None = None
) -> dict[str, float]:
    """Return the expected magnitudes of parameters and channels, by name, in the user's units; all positive."""
    names, summaries = system.operator.ring.parameters, [_instantaneous_summary(item) for item in summaries]
    longest = options.SEARCH.time_constant_fraction * span
    known = {"t": float(np.log(longest if time_constant is None else min(time_constant, longest)))}
    measured = [item for item in summaries if item.observable in system.channels and not item.is_zero]
    known |= {item.observable: float(np.log(item.scale)) for item in measured}
    for name in names:
        size = _given_magnitude(system.parameters[name])
        known |= {} if size is None else {name: float(np.log(size))}
    groups = find_homogeneity_groups(system)
    every = (*names, *system.plain_channels)
    unknown = [name for name in every if name not in known]
    index = {name: k for k, name in enumerate([*unknown, *range(len(groups))])}
    lines: list[tuple[dict[int, float], float]] = []
    # Log ratio of the mean of an observable to its spread, at least zero.
    offsets = {item.observable: float(np.log(max(1.0, abs(item.mean) / item.scale))) for item in summaries}
    constant = {"", *(item.observable for item in summaries if not item.std > 1e-9 * item.scale)}
    for number, group in enumerate(groups):
        # Constant terms balance the means of channels, not their changes.
        shift = max((offsets.get(term.channel, 0.0) for term in group.monomials if not term.order), default=0.0)
        for term in group.monomials:
            line, size = _log_linear_row(term, known, index)
            line[index[number]] = -1.0
            lines.append((line, (shift if term.channel in constant else 0.0) - size))
    for item in summaries:
        lines += _observation_rows(system, item, known, index)
    solved = _solve_sparse_rows(lines, len(index))
    logs = [known[name] if name in known else solved[index[name]] for name in every]
    sizes = np.exp(np.clip(logs, -np.log(1e60), np.log(1e60)))
    return dict(zip(every, sizes.tolist(), strict=True))


def _instantaneous_summary(item: ObservableStatistics) -> ObservableStatistics:
    """Return the statistics of the expression inside an interval mean or total; others are returned unchanged."""
    expression, window, is_total = parse_interval(item.observable) or (item.observable, 1, False)
    factor = float(window) if is_total else 1.0
    scale, mean, std = item.scale / factor, item.mean / factor, item.std / factor
    return replace(item, observable=expression, scale=scale, mean=mean, std=std)


def _given_magnitude(parameter: Parameter) -> float | None:
    """Return the magnitude given by a fixed value, start, prior or bounds; None if there is none or it is zero."""
    value = parameter.fixed if parameter.fixed is not None else parameter.start
    if value is None and isinstance(parameter.prior, LogNormal):
        value = parameter.prior.median
    if value is None and isinstance(parameter.prior, Normal):
        value = abs(parameter.prior.mean) + parameter.prior.std
    low, high = parameter.interval
    if value is None and np.isfinite(low) and np.isfinite(high):
        value = max(abs(low), abs(high))
    return abs(value) if value else None


def _log_linear_row(
    term: Monomial, known: Mapping[str, float], index: Mapping[str | int, int]
) -> tuple[dict[int, float], float]:
    """Return the coefficients of unknown logarithms in the log magnitude of a term, and its known part."""
    line, size = {}, term.log_number
    for name, power in term.powers.items():
        if name in known:
            size += float(power) * known[name]
        else:
            line[index[name]] = float(power)
    return line, size


def _observation_rows(
    system: System, item: ObservableStatistics, known: Mapping[str, float], index: Mapping[str | int, int]
) -> list[tuple[dict[int, float], float]]:
    """Return balance equations between a measured combination of channels and its unmeasured channels."""
    if item.observable in system.channels:
        return []
    operator, _ = ObservableCompiler(system).parse([item.observable])
    row = [operator.coefficients(0, j) for j in range(operator.width)]
    terms, _ = find_monomials(operator.ring, row, ExponentialPolynomial(operator.ring), system.channels)
    lines = [_log_linear_row(term, known, index) for term in terms]
    return [(line, float(np.log(item.scale)) - size) for line, size in lines if line]


def _solve_sparse_rows(lines: Sequence[tuple[Mapping[int, float], float]], count: int) -> Array:
    """Return the minimum-norm least-squares solution of sparse rows, shape (count,)."""
    matrix, right = np.zeros((len(lines), count)), np.zeros(len(lines))
    for row, (line, value) in enumerate(lines):
        matrix[row, list(line)], right[row] = list(line.values()), value
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-9)[0]) if len(lines) else np.zeros(count)


def time_gaps(record_times: Sequence[Array]) -> Array:
    """Return the intervals between consecutive times of each record, concatenated over records.

    Times that differ only by rounding errors, as those of two channels may, are treated as one.

    Examples
    --------
    >>> time_gaps([np.array([0.0, 0.3, 3 * 0.1, 0.5]), np.array([7.0])]).round(9).tolist()
    [0.3, 0.2]
    """
    found = [np.zeros(0)]
    for times in record_times:
        gaps = np.diff(times)
        if (gaps < 0.0).any():
            # Times of several channels, each of which ascends: a stable sort merges them.
            gaps = np.diff(np.sort(times, kind="stable"))
        rounding = 8.0 * float(np.spacing(np.max(np.abs(times), initial=0.0)))
        found.append(gaps[gaps > max(1e-9 * float(gaps.sum()), rounding)])
    return np.concatenate(found)
