"""User-facing sentences about a fit: warnings, and what to try next."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.data.inputs import InputGapDetector, InputSignal, is_logged_every_row
from lodekit.data.noise import MIN_NOISE_RATIO_OF_ZEROS, NoiseModel
from lodekit.data.observations import TimeSeries
from lodekit.data.preview import describe_steps
from lodekit.data.records import Measurements, ObservableStatistics, find_gaps
from lodekit.data.time_reference import TimeReference
from lodekit.diagnostics.equivalent_parameters import AlternativeOptimum
from lodekit.diagnostics.identifiability import count_unknowns
from lodekit.diagnostics.residual_tests import SIGNIFICANCE_LEVEL, VERDICTS, ResidualCheck
from lodekit.errors import AlgebraError
from lodekit.fitting.lbfgs import UNDEFINED_MESSAGE, Optimum
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.setup import FitSetup
from lodekit.inference.engine import Posterior
from lodekit.prior.compile import ScalarFunctions
from lodekit.support.text import (
    as_sentence,
    format_below,
    format_count,
    format_probability,
    join_list,
    merge_records,
    to_json_values,
)
from lodekit.support.units import format_duration
from lodekit.system.system import System
from lodekit.uncertainty.estimates import AT_BOUND, AT_BOUND_MESSAGES, NOT_IDENTIFIED_MESSAGE, Estimate

if TYPE_CHECKING:
    from lodekit.diagnostics.diagnosis import Diagnosis

#: What to do about inputs that are not there.
_GAP_ADVICE = "give its values there, or leave that part of the record out"
#: The same for a part between two others.
_SPLIT_ADVICE = "give its values there, or split the record at gaps, split_gaps=True or --split-gaps"
#: The note on the noise of an observable that is zero throughout.
_ZERO_NOISE_NOTE = (
    f"; zeros do not determine its noise, which is assumed to be at least {100 * MIN_NOISE_RATIO_OF_ZEROS:.0f} % of "
    "the scale that follows from the other channels: give noise_std if it is known"
)


def uninformative_data_warnings(summaries: Sequence[ObservableStatistics], noise: NoiseModel) -> list[str]:
    """Return a warning for each noise level that is estimated from one value, and for each constant observable."""
    found = []
    for group in sorted(set(noise.level_indices)) if noise.n_levels else ():
        items = [item for item, level in zip(summaries, noise.level_indices, strict=True) if level == group]
        counts = {item.observable: item.n_unknown_noise for item in items if item.n_unknown_noise}
        if sum(counts.values()) == 1:
            found.append(
                f"the noise of {next(iter(counts))} cannot be estimated from a single value; give noise_std, or "
                "[noise] in a system file"
            )
    silent = [item.observable for item in summaries if item.is_zero and item.n_unknown_noise and not noise.shared]
    return found + [
        f"all {item.count} values of {item.observable} are {item.mean:.6g}: a constant signal cannot identify "
        "parameters; check the column, its unit and the sensor"
        + (_ZERO_NOISE_NOTE if item.observable in silent else "")
        for item in summaries
        if item.is_constant
    ]


def input_gap_warnings(measurements: Measurements, clock: TimeReference, *, is_doubtful: bool = False) -> list[str]:
    """Return a warning for each known input with a gap at its beginning, a long gap, or a gap in which it changed.

    is_doubtful: Whether errors are correlated or large, which inputs that changed during a gap and back may explain.
    """
    found = []
    for part in measurements.records.values():
        counts = {item.observable: item.count for item in part.input_statistics}
        for name, signal in part.inputs.items():
            start, long_gap = float(signal.times[0]), ""
            if signal.missing and start > part.window[0]:
                found.append(
                    f"input {name} has no value before {clock.format_times(start)}, and measurements begin "
                    f"earlier: it is assumed to be {signal.values[0]:.6g} before; {_GAP_ADVICE}"
                )
            # Long gaps are known if all samples with a value are kept.
            if signal.missing and counts[name] == len(signal.times):
                long_gap = _long_gap_warning(name, signal, part.window, clock)
            found.append(long_gap or _gap_change_warning(name, signal, part, clock, is_doubtful=is_doubtful))
    return [text for text in dict.fromkeys(found) if text]


def constant_input_warnings(measurements: Measurements) -> list[str]:
    """Return a warning of known inputs that never change, and are the same in all records.

    Parameters may be identified nevertheless, for example from a step just before the record, so this warning is only
    for fits that fail or leave parameters unidentified.
    """
    parts, found = measurements.records.values(), []
    for name in measurements.inputs:
        signals = [(part.inputs[name], part.window) for part in parts]
        levels = {float(signal.at([window[0]])[0]) for signal, window in signals}
        if len(levels) == 1 and not any(signal.changes(*window) for signal, window in signals):
            found.append(
                f"input {name} never changes (it is {levels.pop():.6g} throughout), so the data do not show its "
                "effect: add a record in which it changes, or check its column"
            )
    return found


def _long_gap_warning(name: str, signal: InputSignal, window: tuple[float, float], clock: TimeReference) -> str:
    """Return a warning of a long gap of an input in one record; empty if there is none."""
    first, last = window
    inside = signal.times[(signal.times >= first) & (signal.times <= last)]
    # A held input may be logged at its changes only: most rows have no value, but none is missing.
    if len(inside) < 2 or (signal.kind == "hold" and signal.missing > len(signal.times)):
        return ""
    steps = np.diff(inside)
    place = int(np.argmax(steps))
    # Report gaps longer than a tenth of the record and five typical steps.
    if not steps[place] > max(0.1 * (last - first), 5.0 * float(np.median(steps))):
        return ""
    ends = clock.format_times(*inside[place : place + 2])
    what = "keeps its last value" if signal.kind == "hold" else "is interpolated linearly"
    share = f"{100 * steps[place] / (last - first):.0f} % of the record"
    return f"input {name} has no value between {ends}, {share}: it {what}; {_SPLIT_ADVICE}"


def _gap_change_warning(
    name: str, signal: InputSignal, part: Measurements, clock: TimeReference, *, is_doubtful: bool
) -> str:
    """Return a warning if an input has another value after a gap of its log than before, or may have had one in it."""
    stored = part.stored_rows.input_statistics if part.stored_rows else {}
    moved, gaps = stored[name].gap if name in stored else None, np.zeros((0, 2))
    if not part.has_only_statistics:
        measured = np.unique(np.concatenate([item.times for item in part.series]))
        if is_logged_every_row(len(measured), int(np.isin(measured, signal.times).sum())):
            watch = InputGapDetector(signal.kind)
            watch.update(signal.times, signal.values)
            moved, gaps = watch.largest_gap, find_gaps(signal.times)
    if moved is None and not (is_doubtful and len(gaps)):
        return ""
    ends = gaps[np.argmax(np.ptp(gaps, axis=1))].tolist() if moved is None else [moved.start, moved.stop]
    gap = f"gap of {format_duration(ends[1] - ends[0], clock.unit, 3)} (between {clock.format_times(*ends)})"
    split = "split the record at gaps (split_gaps=True or --split-gaps)"
    if moved is None:
        return f"the record has a {gap}, in which inputs may have changed: {split}"
    more = f", and in {moved.n_gaps - 1} more" if moved.n_gaps > 1 else ""
    return (
        f"input {name} changed from {moved.value_before:.6g} to {moved.value_after:.6g} during a {gap}{more}, at an "
        f"unknown time: {split}, or, if you know the time, add two rows that contain only {name}, just before the "
        "change and at it"
    )


def stepped_channel_warnings(
    series: Sequence[TimeSeries], noise: Mapping[str, float], channels: Sequence[str]
) -> list[str]:
    """Return a warning for each channel that is stepped."""
    found = []
    for item in series:
        order = np.argsort(item.times, kind="stable")
        if item.observable not in channels or not describe_steps(item.values[order]):
            continue
        name, level = item.observable, noise.get(item.observable)
        learned = "" if level is None else f", its learned noise ({level:.3g}) includes rounded corners and what the "
        learned += "equations do not explain" * bool(learned)
        half = 0.5 * float(np.median(np.diff(np.unique(item.times))))
        found.append(
            f"{name} is stepped, and a smooth prior cannot follow a jump: its curve rings near jumps"
            f"{learned}, and times can be off by about half a sampling step ({half:.3g}); if it is "
            f'a known input, set inputs={{"{name}": "hold"}}, or --input {name}=hold on the command line, or '
            f'{name} = "hold" under [inputs] in the system file'
        )
    return found


def near_degenerate_warnings(system: System, theta: NDArray[np.float64]) -> list[str]:
    """Return warnings for expressions that nearly vanish at the estimate and at whose zeros the structure changes.

    Shapes: theta (p,).
    """
    ring = system.operator.ring
    try:
        changing, unsuitable = system.degenerate_elements, system.unsuitable_elements
    except AlgebraError:
        return []
    elements = [(element, "the structure of the system changes") for element in changing]
    elements += [(element, "the chosen basis is invalid") for element in unsuitable if element not in changing]
    found = []
    for element, what in elements:
        terms = [Scalar(ring, ring.from_terms({exponents: value})) for exponents, value in ring.terms(element).items()]
        values, _ = ScalarFunctions(ring, terms).evaluate(theta)
        text = ring.format(element)
        if not values.any():  # all terms vanish: the relative test below would fail
            found.append(f"{what} at {text} = 0, as here; write these values into the equations")
        elif abs(values.sum()) < 1e-2 * np.abs(values).sum():
            found.append(f"{what} at {text} = 0, and the estimate is close to that")
    return found


#: Why the data do not identify parameters, and what to try, by the reason of an `IdentifiabilityResult`.
_NOT_IDENTIFIED_REASONS = {
    "structure": "other values, with the remaining parameters adjusted, give the same solutions for all measured "
    "channels{combinations}; {measure} a value that is known",
    "size": "other values, with the size of the disturbances adjusted, describe the data equally well; {fix}",
    "motion": "the measured curves are too simple: they satisfy the equations with other values, too; "
    "add data with another input or another initial state, or fix a value that is known",
    "flat": "the evidence hardly changes over a wide range of values if everything else is estimated again"
    "{combinations}; add data that depend on them more, or fix a value that you know",
    "few": "{n_unknown} unknowns (parameters, initial values and noise levels) need more than {measurements}; measure "
    "more",
    "unresolved": "they seem free of noise, and are too far apart to determine derivatives; measure more often",
    "alias": "at times that are multiples of one step, an oscillation that is faster by a full period per step looks "
    "the same (aliasing); measure more often or at uneven times, or give bounds",
}


def _unneeded_parameters(layout: ParameterLayout, estimates: Mapping[str, Estimate]) -> dict[str, str]:
    """Return a sentence for each unidentified parameter that tends to zero or, if positive, to infinity."""
    found = {}
    for number, transform in layout.transforms.items():
        name, size = layout.names[number], transform.expected_magnitude
        value, is_open = estimates[name].value, not estimates[name].identified
        is_positive = transform.low == 0.0 and math.isinf(transform.high)
        is_stuck = transform.is_unbounded and estimates[name].note in AT_BOUND_MESSAGES and abs(value) < size
        if is_open and ((is_positive and not 0.01 * size < value < 100.0 * size) or is_stuck):
            end = "zero" if value < size else "infinity"
            found[name] = (
                f"parameter {name} tends to {end} ({value:.2g}, while the scales of the data suggest {size:.1g} "
                "in the same unit): the data can be explained without the state or coupling that it describes; remove "
                "it from the equations or give it a fixed value"
            )
    return found


def _unidentified_warnings(
    system: System,
    measured: Sequence[str],
    diagnosis: Diagnosis,
    estimates: Mapping[str, Estimate],
    unneeded: Mapping[str, str],
    counts: Mapping[str, str],
) -> list[str]:
    """Return one sentence for each reason why the data do not identify parameters, with what to try.

    counts: Numbers of measurements, as text, and of unknown parameters, initial values and noise levels.
    """
    by_reason: dict[str, list[str]] = {}
    known = diagnosis.identifiability or {}
    # Values of parameters that the equations leave open are arbitrary.
    opened = [name for name, result in known.items() if result.reason in ("structure", "size")]
    unneeded = {name: text for name, text in unneeded.items() if name not in opened}
    for name, result in known.items():
        is_needed = name not in unneeded or result.reason not in ("flat", "motion")
        if not result.identified and estimates[name].note == result.note and is_needed:
            by_reason.setdefault(result.reason, []).append(name)
    hidden, found = [name for name in system.channels if name not in measured], []
    for reason, names in by_reason.items():
        told = dict.fromkeys(text for name in names for text in known[name].combinations)
        sure = list(diagnosis.identifiable_combinations if reason == "structure" else told)
        combinations = f"; only {join_list(sure)} {'are' if len(sure) > 1 else 'is'} determined" if sure else ""
        if reason == "side":
            results = ((name, known[name]) for name in sorted(names))
            found += [f"parameter {name} is only bounded by these data: {result.note}" for name, result in results]
            found[-1] += combinations
        elif reason in _NOT_IDENTIFIED_REASONS:
            who = f"parameter{'s' * (len(names) > 1)} {join_list(names)} {'are' if len(names) > 1 else 'is'}"
            why = _NOT_IDENTIFIED_REASONS[reason].format(
                combinations=combinations,
                measure=f"measure {join_list(hidden)}, or fix" if hidden else "fix",
                fix="fix it, at 1 for example" if len(names) == 1 else "fix one that is known",
                **counts,
            )
            found.append(f"{who} {NOT_IDENTIFIED_MESSAGE}: {why}")
    found += unneeded.values()
    reported = {*unneeded, *(name for names in by_reason.values() for name in names)}
    others = {name: each for name, each in estimates.items() if not each.identified and name not in reported}
    advice = {
        AT_BOUND: "; widen its bounds if values beyond them are possible, or check the equations",
        NOT_IDENTIFIED_MESSAGE: ": it hardly affects the curves; add data with another input or initial state, "
        "or fix it at a known value",
    }
    verbs = {name: "" if each.note.startswith("tends") else "is " for name, each in others.items()}
    return found + [
        f"parameter {name} {verbs[name]}{each.note}{advice.get(each.note, '')}" for name, each in others.items()
    ]


def _describe_equivalent_parameters(
    system: System,
    measured: Sequence[str],
    alternatives: Sequence[AlternativeOptimum],
    estimates: Mapping[str, Estimate],
) -> list[str]:
    """Return a sentence on other values with the same behaviour of all measured signals; at most two are listed."""
    if not alternatives:
        return []
    names = [name for name in estimates if any(name in each.values for each in alternatives)]
    listed = [
        join_list([f"{each.values.get(name, estimates[name].value):.3g}" for name in names])
        for each in alternatives[:2]
    ]
    more = f", or {len(alternatives) - 2} more" if len(alternatives) > 2 else ""
    unlikely = min(each.below for each in alternatives)
    likely = f", though less likely by {unlikely:.1f} nats" if unlikely > 0.05 else ""
    hidden = [name for name in system.plain_channels if name not in measured]
    cure = f"measure {join_list(hidden)}, bound or fix" if hidden else "bound or fix"
    same = join_list(measured) if len(measured) < 4 else "measured channels"
    return [
        f"{join_list(names)} may equally well be {' or '.join(listed)}{more}{likely}, with exactly the same {same}; "
        f"{cure} one of them, or give a prior"
    ]


def _describe_alternatives(optima: Sequence[AlternativeOptimum], estimates: Mapping[str, Estimate]) -> list[str]:
    """Return one sentence on parameters that can exchange their values, and one on all other optima."""
    found, others = [], []
    for values, below in ((each.values, each.below) for each in optima):
        if all(estimates[name].note == NOT_IDENTIFIED_MESSAGE for name in values):
            continue
        listed = join_list([f"{name} = {value:.4g}" for name, value in values.items()])
        old = {name: estimates[name].value for name in values}
        partners = {a: b for a, value in values.items() for b in old if math.isclose(value, old[b], rel_tol=0.01)}
        if len(partners) == len(values):
            low, high = sorted(next(iter(partners.items())), key=old.__getitem__)
            found.append(
                f"the parameters {join_list([*old])} can exchange their values: {listed} fit equally well; bound one "
                f"of them, for example {high} > {(old[low] + old[high]) / 2:.3g}, to determine which is which"
            )
        else:
            others.append(f"{listed} (less likely by {below:.1f} nats)" if below > 0.05 else listed)
    if others:
        found.append(
            f"other values fit about as well: {join_list(others, 'or')}; if they are physically impossible, exclude "
            "them with bounds"
        )
    return found


def describe_sign_symmetry(names: Sequence[str]) -> str:
    """Return a sentence on parameters that can change their signs together without any effect on the data."""
    return (
        f"the data do not identify the sign{'s' * (len(names) > 1)} of {join_list(names)}: "
        f"{'all of them' if len(names) > 2 else 'both' if len(names) == 2 else 'it'} can change"
        f"{' together' * (len(names) > 1)}; the solution with the most positive values is reported. If you "
        "know signs, declare them: positive = true"
    )


def convergence_failures(layout: ParameterLayout, optimum: Optimum) -> list[str]:
    """Return why the search did not converge."""
    found = []
    if optimum.message == UNDEFINED_MESSAGE:
        advice = "give noise_std if you know the noise" if layout.n_noise_levels else "give a larger noise_std"
        found.append(
            "the evidence grows towards values at which rounding leaves too few digits of it, because the noise is "
            f"very small against the data; parameters may be far from their best values: {advice}"
        )
    elif not optimum.converged:
        found.append(
            "the search did not converge; parameters may be far from their best values: give start values or bounds, "
            "more restarts, or check for channels that are constant"
        )
    far = [
        layout.names[number]
        for position, number in enumerate(layout.free_parameters)
        if optimum.at_bound[position] and layout.transforms[number].is_unbounded and abs(optimum.x[position]) > 1.0
    ]
    if far:
        found.append(f"the search moved {join_list(far)} to the limit of its range: give start values or bounds")
    return found


def describe_poor_fit(nats: float, poor: Sequence[str], fixed: Sequence[str], *, is_loud: bool) -> str:
    """Return a sentence on the null model: its gain, and what it explains better."""
    values = f"the fixed values ({', '.join(fixed)}), " if fixed else ""
    gain = f" (their log evidence is higher by {nats:.0f})" if math.isfinite(nats) else ""
    loud = ", or their noise is larger than stated" * is_loud
    return (
        f"the equations do not describe these data, or the search ended at a local optimum{loud}: smooth curves "
        f"without equations fit much better{gain}, and explain more of the variance of {join_list(poor)}; try start "
        f"values, bounds or more restarts, and check the equations and their signs, {values}the units and the data"
    )


def collect_warnings(
    setup: FitSetup,
    optimum: Optimum,
    posteriors: Iterable[Posterior],
    estimates: Mapping[str, Estimate],
    diagnosis: Diagnosis,
    unexplained_std: Mapping[str, float],
    clock: TimeReference,
) -> list[str]:
    """Return the warnings of a fit, beginning with those about names, inputs and outliers, which may cause others."""
    system, layout, prior, measurements = setup.reduced_system, setup.layout, setup.prior, setup.measurements
    hyper, measured, checks = layout.unpack(optimum.x), measurements.names, diagnosis.checks
    is_doubtful = diagnosis.failed or any(check.is_suspicious for check in checks)
    found = [*setup.unmeasured_name_warnings, *input_gap_warnings(measurements, clock, is_doubtful=is_doubtful)]
    if diagnosis.failed or diagnosis.needs_more_data:
        found += constant_input_warnings(measurements)
    found += outlier_warnings({check.title: check.outliers for check in checks}, clock)
    n_unknown = count_unknowns(setup.objective, len(setup.record_setups))
    unneeded = _unneeded_parameters(layout, estimates) if measurements.size >= n_unknown else {}
    counts = {"measurements": format_count(measurements.size, "measurement"), "n_unknown": str(n_unknown)}
    found += [*diagnosis.failures, *_unidentified_warnings(system, measured, diagnosis, estimates, unneeded, counts)]
    equivalent = [each for each in diagnosis.alternatives if each.is_twin]
    found += _describe_equivalent_parameters(system, measured, equivalent, estimates)
    found += _describe_alternatives([each for each in diagnosis.alternatives if not each.is_twin], estimates)
    factors = [diagnosis.widening.get(name, 1.0) for name, each in estimates.items() if each.has_interval]
    largest, is_shared = max(factors, default=math.nan), layout.n_noise_levels == 1
    found += residual_warnings(checks, prior.noise, clock, widening=largest)
    # Constant observables have a warning of their own.
    constant = {check.name for check in checks if np.isnan(check.explained)}
    is_informative = [is_shared or name not in constant for name in measured][: layout.n_noise_levels]
    if optimum.at_bound[layout.slices.noise][is_informative].any():
        found.append("a noise level is at the limit of its range: the data look free of noise, or are all noise")
    found += [*near_degenerate_warnings(system, hyper.theta), *instability_warnings(setup, hyper.theta, clock.unit)]
    found += [text for posterior in posteriors for text in posterior.warnings()]
    found += uninformative_data_warnings(measurements.observable_statistics, prior.noise)
    series = [item for part in measurements.records.values() if prior.kernels for item in part.series]
    noise, channels = prior.noise.levels_by_name(hyper.noise_std), setup.system.plain_channels
    # Steps also leave residuals under a smooth prior, but have another remedy.
    found += stepped_channel_warnings(series, noise, channels) or unexplained_warnings(
        unexplained_std, is_conditioned=prior.channels is not None
    )
    return list(dict.fromkeys(found))


def instability_warnings(setup: FitSetup, theta: NDArray[np.float64], time_unit: str = "") -> list[str]:
    """Return a warning if a mode grows although no measured channel does.

    Shapes: theta (p,).
    """
    prior, parts = setup.prior, setup.measurements.records.values()
    coefficients = prior.observables.evaluate(theta)
    exponents = prior.observables.exponents(coefficients, prior.groups, include_signals=False)
    fastest = float(np.max(exponents.real, initial=-np.inf))
    if not 1.0 < fastest < np.inf or not setup.layout.free_parameters or setup.measurements.has_only_statistics:
        return []
    growth = [0.0]
    for item in (item for part in parts for item in part.decimated_series()):
        halves = np.array_split(np.abs(item.values - np.median(item.values)), 2)
        growth.append(float(np.max(halves[1], initial=0.0) / max(np.max(halves[0], initial=0.0), 1e-300)))
    # A growing mode increases by at least this factor from one half of a record to the next.
    if max(growth) > np.exp(min(0.25 * fastest, 300.0)):
        return []
    constant = prior.units.unscale_durations(1.0 / fastest)
    return [
        f"the fitted model is unstable: a mode grows with a time constant of {f'{constant:.3g} {time_unit}'.rstrip()}, "
        "though the data do not grow; unless a controller keeps it stable, check the signs in the equations, or give "
        "bounds at which it is stable"
    ]


def outlier_warnings(outliers_by_title: Mapping[str, Sequence[tuple[float, float]]], clock: TimeReference) -> list[str]:
    """Return one sentence per observable with outliers: which values, how far off, and what to do."""
    found = []
    for title, outliers in outliers_by_title.items():
        if outliers:
            times = clock.format_times(*sorted(time for time, _ in outliers[:3]))
            more = f" (and at {len(outliers) - 3} more times)" if len(outliers) > 3 else ""
            several = ("the values", "are", "them", "they are errors")
            what, verb, them, slips = several if len(outliers) > 1 else ("the value", "is", "it", "it is an error")
            ends = (float(f"{each:.2g}") for each in (outliers[-1][1], outliers[0][1]))
            how_far = " to ".join(dict.fromkeys(f"{each:g}" for each in ends))
            found.append(
                f"{what} of {title} at {times}{more} {verb} {how_far} standard deviations away from the curve, which "
                f"is implausible for normal noise: leave {them} out (NaN, or missing=[VALUE] for a table) if {slips}, "
                f"or give {them} a larger noise_std"
            )
    return found


def describe_check(check: ResidualCheck, time_unit: str = "", widening: float = math.nan) -> str:
    """Return the verdict on the residuals of one observable in one sentence."""
    found = check.whiteness
    if not check.looked:
        return f"residuals of {check.title} were not tested: all values are exact, or only sums of them were kept"
    if found is None:
        return f"residuals of {check.title} are too few to tell whether they are independent"
    text = check.subject
    if check.is_below_noise:
        text += f" are far smaller than the noise ({check.size:.1g} of it)"
        if check.has_inflated_noise:
            text += (
                f", and correlated ({describe_lag(check)}): outliers, or the other records and channels, increase the "
                "estimated noise; leave outliers out (NaN), or give noise_std for each record"
            )
    elif not check.is_correlated:
        few = "are too few to tell whether they are independent"
        text += f" {'look like independent noise' if found.is_conclusive else few} (lag 1: {check.memory:.2f})"
    elif check.is_autocorrelated:
        cause = f"the equations miss dynamics {describe_time_scale(check, time_unit)}, or errors are not independent"
        if check.copied:
            cause = "rows are duplicated, with the same time and value; remove the duplicates"
        text += f" are correlated ({describe_lag(check)}): {cause}{_describe_effect(check, widening)}"
        if check.suggests_coloured_noise:
            text += (
                f"; try {describe_coloured_noise(check)}, or a higher order, and keep the fit with the larger log "
                "evidence; it can be compared only between fits of the same measurements"
            )
    else:
        text += (
            f" alternate in sign ({describe_lag(check)}): the measurements are not independent, or the "
            "curve follows their noise; where the noise is known, give noise_std"
        )
    if check.has_dependent_noise:
        text += (
            f", but the noise depends on the value of {check.name}: it differs by a factor of {check.noise_ratio:.1f} "
            "between low and high values, so bands are too wide for some and too narrow for others; give noise_std for "
            "each row"
        )
    but = "; residuals are also correlated" if check.is_correlated else ", but they are correlated"
    for name in found.correlated_inputs:
        remedies = [f"a dead time delay({name}, Td)"] * (name not in check.delayed) + ["a higher order"]
        remedies += [f"inputs={{'{name}': 'auto'}} (straight lines between samples)"] * found.links[name].restless
        remedies += ["a disturbance"] * (check.is_autocorrelated and not found.innovations)
        text += f"{but} {describe_input_correlation(check, name, time_unit)}; try {join_list(remedies, 'or')}"
    return text


def describe_input_correlation(check: ResidualCheck, name: str, time_unit: str = "") -> str:
    """Return how residuals correlate with a known input."""
    found = None if check.whiteness is None else check.whiteness.links.get(name)
    if found is None:
        return ""
    lag = f" at a lag of {format_duration(found.delay, time_unit)}" if found.delay else ""
    return f"with {name} ({found.correlation:.2f}{lag}): the equations do not describe its effect correctly"


def describe_coloured_noise(check: ResidualCheck) -> str:
    """Return the suggestion to model white-noise disturbances as coloured; empty without any."""
    white = join_list(check.white, "or")
    return f'"matern-1/2" (correlated in time) instead of "white" for {white}' * check.suggests_coloured_noise


def describe_lag(check: ResidualCheck) -> str:
    """Return the strongest autocorrelation and its lag."""
    lag, value = check.strongest_lag
    return f"lag {lag}: {value:.2f}" if abs(value) < 0.995 else f"lag {lag}: {value:.4f}"


def describe_time_scale(check: ResidualCheck, time_unit: str) -> str:
    """Return how slow or fast the missing dynamics are."""
    found = check.whiteness
    # White noise in place of something slow has too much power at high frequencies.
    is_misleading = found is not None and found.excursion < 0 and check.suggests_coloured_noise
    if found is None or is_misleading or found.periodogram_p_value > SIGNIFICANCE_LEVEL or not found.period > 0:
        return "on time scales longer than the sampling interval"
    period = format_duration(found.period, time_unit or "(in units of t)")
    return f"with periods {'above' if found.excursion > 0 else 'below'} {period}"


def low_coverage_failures(share: float, least: float, *, are_innovations: bool, may_differ: bool) -> list[str]:
    """Return a failure if the band contains too few measurements of a validation record.

    may_differ: Whether the plant, or its log, may differ from that of the fit.
    """
    if share >= least:
        return []
    ahead, parts = " one row ahead" * are_innovations, format_below(share, least)
    text = f"band{ahead} too narrow: it contains {parts[0]} of the measurements, but should contain at least {parts[1]}"
    return [text + "; perhaps the plant has changed since the fit, or units or columns differ" * may_differ]


def autocorrelation_failures(check: ResidualCheck, time_unit: str, *, is_linked: bool) -> list[str]:
    """Return a failure if errors are autocorrelated."""
    if not check.is_correlated:
        return []
    are_innovations = check.whiteness is not None and check.whiteness.innovations
    scale, kind = describe_time_scale(check, time_unit), " one row ahead" * are_innovations
    text = f"errors{kind} are correlated ({describe_lag(check)}): the equations miss dynamics {scale}"
    # If an input is the cause, the next message describes it. Innovations are those of a model with a disturbance.
    disturbance = describe_coloured_noise(check) or "a disturbance" * (not are_innovations)
    cure = ", or ".join(filter(None, [disturbance, "a higher order"]))
    return [text if is_linked else f"{text}, or measurements have errors that are not independent; try {cure}"]


def input_failures(linked: Mapping[str, str], delayed: Collection[str]) -> list[str]:
    """Return a failure if errors are correlated with inputs, with what to try."""
    if not linked:
        return []
    new = [f"a dead time delay({name}, Td)" for name in linked if name not in delayed]
    how = "; ".join(f"errors are correlated {how}" for how in linked.values())
    return [f"{how}; try {join_list([*new, 'a higher order', *['another path'] * (not new)], 'or')}"]


def _describe_effect(check: ResidualCheck, widening: float) -> str:
    """Return the effect of correlated residuals on intervals; empty without any. Factors below 1.05 are ignored."""
    if math.isnan(widening):
        return ""
    if widening >= 1.05:
        factor = f"by factors of up to {widening:.1f}, but this does not correct a bias from missing dynamics"
        return f"; parameter intervals are widened to allow for this, {factor}"
    if check.whiteness is not None and check.whiteness.innovations and check.std_error_inflation < 1.05:
        # With free functions, the effect on standard errors is unknown.
        return "; intervals of parameters may be too narrow"
    return "; parameter intervals need not be widened"


def _describe_remedy(check: ResidualCheck) -> str:
    """Return what to try if residuals are autocorrelated; empty if their description contains a remedy."""
    found = check.whiteness
    told = check.copied or check.suggests_coloured_noise or (found is not None and found.correlated_inputs)
    if found is None or not check.is_autocorrelated or told:
        return ""
    late = [f"a dead time delay({name}, Td)" for name in found.links if name not in check.delayed][:1]
    return f"; try {join_list([*late, 'a higher order', *['a disturbance'] * (not found.innovations)], 'or')}"


def residual_warnings(
    checks: Sequence[ResidualCheck], noise: NoiseModel, clock: TimeReference, *, widening: float = math.nan
) -> list[str]:
    """Return what residuals suggest against a fit, and what to try; empty if they look like noise."""
    doubts = (
        describe_check(check, clock.unit, widening) + _describe_remedy(check)
        for check in checks
        if check.is_suspicious or check.has_dependent_noise or check.has_inflated_noise
    )
    records = [check.record for check in checks if check.record]
    found = merge_records(doubts, records)
    loud = [f"{check.title} ({check.size:.1f} times)" for check in checks if check.exceeds_noise]
    learned = dict(zip(noise.observables, noise.learned, strict=True))
    if loud and noise.n_levels == 1 and len({check.name for check in checks}) > 1:
        found.append(
            f"residuals are larger than the shared noise in {join_list(loud)}: "
            'noise="channel" learns one level for each'
        )
    elif loud:
        cause, advice = "is set too small", "leave noise_std out to learn it"
        if all(learned[check.name] for check in checks if check.exceeds_noise):
            cause, advice = "is not the same everywhere", "give noise_std for each record, or check outlying ones"
        text = f"residuals are larger than the noise in {join_list(loud)}: it {cause}, or the equations miss dynamics"
        found.append(f"{text}; {advice}")
    shares = (f"{100 * max(check.explained, 0.0):.0f} % of {check.title}" for check in checks if check.explains_little)
    low = merge_records(shares, records)
    if low:
        found.append(
            f"the curves explain little of the variance of the data, {join_list(low)}; the rest is treated as noise: "
            "if it is not noise, try start values, or other equations"
        )
    return found


def unexplained_warnings(unexplained_std: Mapping[str, float], *, is_conditioned: bool) -> list[str]:
    """Return a warning of observables whose residuals are a curve and not noise; empty if there are none."""
    if not unexplained_std:
        return []
    sizes = ", ".join(f"{deviation:.2g}" for deviation in unexplained_std.values())
    names = join_list(list(unexplained_std))
    text = f"residuals of {names} vary smoothly, unlike noise; bands include them, about {sizes}"
    advice = (
        ": if the equations are right, such a motion (for example ringing under a slow input) is unlikely under the "
        'prior of the free functions; try prior="channels"'
    )
    return [text if is_conditioned else text + advice]


def describe_input(
    name: str, kind: str, samples: int, missing: int, advantage: float | None = None, *, changes: bool = True
) -> str:
    """Return a description of a known input.

    Examples
    --------
    >>> describe_input("u", "hold", 12, 0)
    'u: known input, held constant between its 12 samples'
    """
    way = "held constant" if kind == "hold" else "interpolated linearly"
    between = f"between its {samples} samples" if samples != 1 else "from its only sample"
    text = f"{name}: known input, {way} {between}"
    if missing:
        what = "filled with the last value" if kind == "hold" else "interpolated"
        text += f", {missing} missing sample{'s' * (missing != 1)} {what}"
    if advantage is not None:
        other = "straight lines" if kind == "hold" else "held values"
        text += f"; more likely than {other} by {advantage:.1f} nats"
    if not changes:
        text += "; it does not change during the measurements, so it acts like a constant"
    return text


@dataclass(frozen=True)
class Findings:
    """Results of the residual tests of a fit.

    Parameters
    ----------
    checks : tuple of ResidualCheck
        Sizes, correlations and tests of the residuals of each observable.
    widening : dict of str to float
        Factors by which standard errors of parameters were widened for correlated residuals; empty for none.
    time_unit : str
        Unit of time, if known.
    """

    checks: tuple[ResidualCheck, ...]
    widening: Mapping[str, float]
    time_unit: str = ""

    @classmethod
    def of(cls, diagnosis: Diagnosis, time_unit: str = "") -> Findings:
        """Return the residual findings of a diagnosis.

        Parameters
        ----------
        diagnosis : Diagnosis
        time_unit : str
            Unit of time.
        """
        return cls(diagnosis.checks, dict(diagnosis.widening), time_unit)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict on each observable, in order."""
        largest = max(self.widening.values(), default=math.nan)
        return tuple(describe_check(check, self.time_unit, largest) for check in self.checks)

    @property
    def verdict(self) -> str:
        """The most important result of the tests: of all observables, the one that comes first in `VERDICTS`."""
        return min((check.verdict for check in self.checks), key=VERDICTS.index, default="not tested")

    @property
    def is_independent(self) -> bool:
        """Whether the residuals of all observables look independent of each other and of the inputs."""
        return not any(check.is_suspicious for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; non-finite numbers are None."""
        residuals = {}
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            own = {"verdict": verdict, "correlated": check.is_correlated, "rms": check.size, "count": check.count}
            own |= {"noise_p_value": check.noise_p_value, "noise_ratio": check.noise_ratio}
            residuals[check.title] = own | ({} if check.whiteness is None else asdict(check.whiteness))
        found: dict[str, Any] = to_json_values({"residuals": residuals, "widening": dict(self.widening)})
        return found

    def __repr__(self) -> str:
        lines = []
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            lines.append(as_sentence(verdict))
            found = check.whiteness
            if found is None:
                continue
            chance = format_probability
            lines += [
                f"  lags       {' '.join(f'{each:.2f}' for each in found.lags)}, step {found.step:.3g}",
                f"  Ljung-Box  {found.ljung_box:.1f} over {len(found.lags)} lags, {chance(found.p_value)}",
                f"  cumulative periodogram  largest deviation {found.excursion:.3f}, 95 % limit {found.band:.3f}",
            ]
            if not math.isnan(check.noise_p_value):
                lines.append(
                    f"  noise, high versus low values  factor {check.noise_ratio:.2f}, {chance(check.noise_p_value)}"
                )
            for name, link in found.links.items():
                delay = f"at a delay of {link.delay:.3g}, {chance(link.p_value)}"
                lines.append(f"  with {name}  {link.correlation:.2f} {delay}")
        widened = [f"{name} {factor:.2f}" for name, factor in self.widening.items() if factor > 1.005]
        if widened:
            lines.append(f"Standard errors are widened: {', '.join(widened)}.")
        return "\n".join(lines)
