"""Warnings about data that tell little: a single value to learn noise from, constants, inputs that are still.

Warnings about channels that jump: no smooth prior follows them.

What is to be read before a fit is believed, in sentences, and hyperparameters by name.

What residuals say about a fit, for people and programs: one sentence for each channel, and the numbers below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.data.inputs import InputGapDetector, InputSignal, is_logged_every_row
from lodekit.data.noise import MIN_NOISE_RATIO_OF_ZEROS, NoiseModel
from lodekit.data.observations import TimeSeries
from lodekit.data.preview import looks_like_input
from lodekit.data.records import Measurements, ObservableStatistics, list_measurements
from lodekit.diagnostics.diagnosis import Diagnosis, to_json_values
from lodekit.diagnostics.equivalent_parameters import AlternativeOptimum
from lodekit.diagnostics.residual_tests import ResidualCheck, warn_residuals
from lodekit.errors import AlgebraError
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.inference.engine import Posterior
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.text import as_sentence, format_probability, join_list
from lodekit.system.system import System
from lodekit.uncertainty.estimates import AT_BOUND_MESSAGE, NOT_IDENTIFIED_MESSAGE, Estimate

#: What to do about inputs that are not there.
_GAP_ADVICE = "give its values there, or leave that part of the record out"
#: What is said of the noise of an observable that is zero throughout.
_ZERO_NOISE_NOTE = (
    f"; its noise, of which zeros say nothing, is taken to be at least {MIN_NOISE_RATIO_OF_ZEROS:.0%} of what the equations "
    "make of the rest: give noise_std where it is known"
)


def warn_uninformative_data(summaries: Sequence[ObservableStatistics], noise: NoiseModel) -> list[str]:
    """Return a warning for each level of noise that one value has to tell, and for each observable that is constant."""
    found = []
    for group in sorted(set(noise.level_indices)) if noise.n_levels else ():
        own = [
            item
            for item, level in zip(summaries, noise.level_indices, strict=True)
            if level == group and item.n_unknown_noise
        ]
        if sum(item.n_unknown_noise for item in own) == 1:
            found.append(
                f"the noise of {own[0].observable} is learned from a single value, which cannot tell it; give "
                "noise_std, or [noise] in a system file"
            )
    silent = [item.observable for item in summaries if item.is_zero and item.n_unknown_noise and not noise.shared]
    constant = [item for item in summaries if item.count > 1 and not item.std > 1e-12 * abs(item.mean)]
    return found + [
        f"all {item.count} values of {item.observable} are {item.mean:.6g}: a constant says little about parameters; "
        "check the column, its unit and the sensor" + (_ZERO_NOISE_NOTE if item.observable in silent else "")
        for item in constant
    ]


def warn_input_gaps(measurements: Measurements, time_unit: str = "") -> list[str]:
    """Return a warning for each known input with a hole: at the beginning, a long one, or one in which it moved."""
    found = []
    for part in list_measurements(measurements):
        counts = {item.observable: item.count for item in part.input_statistics}
        for name, signal in part.inputs.items():
            long = list[str]()
            if signal.missing:
                found += _warn_missing_start(name, signal, part.window[0], time_unit)
                kept = counts[name] == len(signal.times)
                long = _warn_long_gap(name, signal, part.window, time_unit, is_whole=kept)
            found += long or _warn_change_in_gap(name, signal, part, time_unit)
    return found


def warn_constant_inputs(measurements: Measurements) -> list[str]:
    """Return a warning of known inputs that never change, and are the same in all records.

    That is no fault where parameters are found nevertheless, as from a step that was made just before the record: it is
    for fits that fail, or leave parameters open.
    """
    parts, found = list_measurements(measurements), []
    for name in measurements.inputs:
        signals = [(part.inputs[name], part.window) for part in parts]
        levels = {float(signal.at([window[0]])[0]) for signal, window in signals}
        if len(levels) == 1 and not any(signal.changes(*window) for signal, window in signals):
            found.append(
                f"input {name} never changes (it is {levels.pop():.6g} throughout), so nothing tells how the plant "
                "answers to it: add a record in which it moves, or check its column"
            )
    return found


def _warn_missing_start(name: str, signal: InputSignal, start_time: float, unit: str) -> list[str]:
    """Return what is to be said of an input that is not there at the beginning of a record."""
    begin = float(signal.times[0])
    if not begin > start_time:
        return []
    return [
        f"{name} has no value before t = {_format_time(begin, unit)}, where measurements are already there: "
        f"it is taken to have been {signal.values[0]:.6g} since the beginning; {_GAP_ADVICE}"
    ]


def _warn_long_gap(
    name: str, signal: InputSignal, window: tuple[float, float], unit: str, *, is_whole: bool
) -> list[str]:
    """Return what is to be said of a long hole in one record; whole inputs have all samples that have a value."""
    first, last = window
    inside = signal.times[(signal.times >= first) & (signal.times <= last)]
    # A held input may be written where it changes only: most rows are without a value, and nothing is missing.
    if len(inside) < 2 or not is_whole or (signal.kind == "hold" and signal.missing > len(signal.times)):
        return []
    steps = np.diff(inside)
    place = int(np.argmax(steps))
    # Report gaps of a tenth of the record and five typical steps.
    if not steps[place] > max(0.1 * (last - first), 5.0 * float(np.median(steps))):
        return []
    ends = f"t = {inside[place]:.6g} and {_format_time(inside[place + 1], unit)}"
    what = "kept unchanged" if signal.kind == "hold" else "bridged by a straight line"
    share = f"{steps[place] / (last - first):.0%} of the record"
    return [f"{name} has no value between {ends}, {share}: it is {what}; {_GAP_ADVICE}"]


def _warn_change_in_gap(name: str, signal: InputSignal, part: Measurements, unit: str) -> list[str]:
    """Return a warning where an input has another value after a gap of its log than before."""
    moved = (
        part.stored_rows.input_statistics[name].gap
        if part.stored_rows and name in part.stored_rows.input_statistics
        else None
    )
    if not part.has_only_statistics:
        measured = np.unique(np.concatenate([item.times for item in part.series]))
        if is_logged_every_row(len(measured), int(np.isin(measured, signal.times).sum())):
            watch = InputGapDetector(signal.kind)
            watch.update(signal.times, signal.values)
            moved = watch.largest_gap
    if moved is None:
        return []
    more = f", and in {moved.n_gaps - 1} more" if moved.n_gaps > 1 else ""
    lasting, until = _format_time(moved.stop - moved.start, unit), _format_time(moved.stop, unit)
    return [
        f"{name} changed from {moved.value_before:.6g} to {moved.value_after:.6g} in a gap of {lasting} "
        f"(t = {moved.start:.6g} to {until}){more}, and when is not known: make two records, one before the "
        f"gap and one after; where you know when, add two rows with {name} alone, just before the change and at it"
    ]


def _format_time(value: float, unit: str) -> str:
    """Return a time as the warnings write it, with its unit where that is known."""
    return f"{value:.6g} {unit}".rstrip()


def warn_stepped_channels(
    series: Sequence[TimeSeries], noise: Mapping[str, float], channels: Sequence[str]
) -> list[str]:
    """Return a warning for each channel that is stepped."""
    found = []
    for item in series:
        order = np.argsort(item.times, kind="stable")
        if item.observable not in channels or not looks_like_input(item.values[order]):
            continue
        text = f"{item.observable} is stepped, and a smooth prior cannot follow a jump: its curve rings near jumps"
        level = noise.get(item.observable)
        if level is not None:
            text += f", its learned noise ({level:.3g}) includes rounded corners and what the equations do not explain"
        half = 0.5 * float(np.median(np.diff(np.unique(item.times))))
        text += f", and times can be off by about half a sampling step ({half:.3g}); "
        name = item.observable
        text += f'where somebody set it, say inputs={{"{name}": "hold"}}, or --input {name}=hold on the command line, '
        text += f'or {name} = "hold" under [inputs] in the system file'
        found.append(text)
    return found


#: What deviations of modes are called, before their number.
MODE_STD_LABEL = "deviation of mode"
#: Of so many sets of values that give the same behaviour all are told.
_MAX_LISTED_ALTERNATIVES = 2


def warn_near_degenerate(system: System, theta: NDArray[np.float64]) -> list[str]:
    """Return warnings for expressions that nearly vanish at the estimate and at whose zeros the structure changes.

    Shapes: theta (p,).
    """
    ring = system.operator.ring
    try:
        changing, unsuitable = system.degenerate_elements, system.unsuitable_elements
    except AlgebraError:
        return []
    elements = [(element, "the structure of the system changes") for element in changing]
    elements += [(element, "the chosen basis is none") for element in unsuitable if element not in changing]
    found = []
    for element, what in elements:
        terms = [Scalar(ring, ring.from_terms({exponents: value})) for exponents, value in ring.terms(element).items()]
        values, _ = ScalarFunctions(ring, terms).evaluate(theta)
        text = ring.format(element)
        if not values.any():  # all terms vanish, as c alone does where it is fixed at zero: no sum of sizes tells
            found.append(f"{what} at {text} = 0, which holds here; write the values that make it so into the equations")
        elif abs(values.sum()) < 1e-2 * np.abs(values).sum():
            found.append(f"{what} at {text} = 0, and the estimate is close to that")
    return found


def describe_hyperparameters(prior: Prior, hyper: Hyperparameters, channels: Sequence[str]) -> dict[str, float]:
    """Return lengthscales and deviations by name, in the user's units."""
    names = (
        [f"free function {i}" for i in range(1, prior.n_processes + 1)] if prior.channels is None else list(channels)
    )
    found = {}
    for name, ell, sigma in zip(names, hyper.lengthscales, hyper.amplitudes, strict=True):
        found[f"lengthscale of {name}"] = prior.units.unscale_durations(float(ell))
        found[f"deviation of {name}"] = float(sigma)
    for i, sigma in enumerate(hyper.mode_amplitudes, 1):
        found[f"{MODE_STD_LABEL} {i}"] = float(sigma)
    own = prior.observables.disturbances
    if own is not None:
        lengths = dict(zip(own.coloured_index, hyper.disturbance_lengthscales, strict=True))
        for number, (name, sigma) in enumerate(zip(own.names, hyper.disturbance_amplitudes, strict=True)):
            if number in lengths:
                found[f"lengthscale of {name}"] = prior.units.unscale_durations(float(lengths[number]))
            found[f"deviation of {name}"] = float(sigma)
    return found


def _warn_unidentified(
    system: System, measured: Sequence[str], diagnosis: Diagnosis, estimates: Mapping[str, Estimate]
) -> list[str]:
    """Return what the data do not tell, in sentences that say what to try."""
    found, told = [], set()
    by_reason: dict[str, list[str]] = {}
    for name, verdict in diagnosis.identifiability.items():
        if not verdict.identified and estimates[name].note == verdict.note:
            by_reason.setdefault(verdict.reason, []).append(name)
    hidden = [name for name in system.channels if name not in measured]
    for reason, names in by_reason.items():
        told |= set(names)
        who = f"parameter{'s' * (len(names) > 1)} {join_list(names)} {'are' if len(names) > 1 else 'is'}"
        if reason == "structure":
            sure = diagnosis.identifiable_combinations
            only = f"; only {join_list(sure)} {'are' if len(sure) > 1 else 'is'} determined" if sure else ""
            more = f"measure {join_list(hidden)}, or fix" if hidden else "fix"
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: other values, with all else changed to match, give the same solutions in all "
                f"that was measured{only}; {more} a value that is known"
            )
        elif reason == "size":
            cure = "fix it, at 1 for example" if len(names) == 1 else "fix one that is known"
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: with disturbances of another size to match, all that was measured is the "
                f"same; {cure}"
            )
        elif reason == "motion":
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: the same curves solve the equations for other values, too; what was measured "
                "moves too simply to tell: add data from another input or another start, or fix a value that is known"
            )
        elif reason == "flat":
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: moved far in either direction, with all else learned anew, the evidence "
                "hardly falls; measure where it matters, or fix a value that is known"
            )
        elif reason == "unresolved":
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: these leave nothing to noise, and are farther apart than they tell what "
                "happens between them, so that derivatives are anyone's guess; measure more often"
            )
        elif reason == "alias":
            found.append(
                f"{who} {NOT_IDENTIFIED_MESSAGE}: at times that are multiples of one step, with fewer than three of them in "
                "each period, a faster or slower oscillation looks the same; measure more often or at uneven times, "
                "or give bounds"
            )
        elif reason == "side":
            found += [
                f"parameter {name} is only bounded by these data: {diagnosis.identifiability[name].note}"
                for name in names
            ]
    rest = {n: each for n, each in estimates.items() if not each.identified and n not in told}
    tries = {
        AT_BOUND_MESSAGE: "; widen its bounds where it may go farther, or check the equations",
        NOT_IDENTIFIED_MESSAGE: ": there is too little of them; measure more, or fix a value that is known",
    }
    return found + [f"parameter {name} is {each.note}{tries.get(each.note, '')}" for name, each in rest.items()]


def _describe_equivalent_parameters(
    system: System,
    measured: Sequence[str],
    alternatives: Sequence[AlternativeOptimum],
    estimates: Mapping[str, Estimate],
) -> list[str]:
    """Return which other values give the same behaviour of all that was measured, in one sentence for all of them."""
    if not alternatives:
        return []
    names = [name for name in estimates if any(name in twin.values for twin in alternatives)]
    told = [
        join_list([f"{twin.values.get(name, estimates[name].value):.3g}" for name in names])
        for twin in alternatives[:_MAX_LISTED_ALTERNATIVES]
    ]
    more = (
        f", or {len(alternatives) - _MAX_LISTED_ALTERNATIVES} more"
        if len(alternatives) > _MAX_LISTED_ALTERNATIVES
        else ""
    )
    unlikely = min(twin.below for twin in alternatives)
    likely = f", though less likely by {unlikely:.1f} nats" if unlikely > 0.05 else ""
    hidden = [name for name in system.plain_channels if name not in measured]
    cure = f"measure {join_list(hidden)}, bound or fix" if hidden else "bound or fix"
    same = f"{join_list(measured)} {'are' if len(measured) > 1 else 'is'}" if len(measured) < 4 else "all measured is"
    which = "with either" if len(alternatives) == 1 else "with all of them"
    return [
        f"{join_list(names)} could as well be {' or '.join(told)}{more}{likely}: {same} exactly the same {which}; "
        f"{cure} one of them, or give a prior"
    ]


def collect_warnings(
    system: System,
    posterior: Posterior,
    layout: ParameterLayout,
    optimum: Optimum,
    estimates: Mapping[str, Estimate],
    diagnosis: Diagnosis,
    measured: Sequence[str],
    time_unit: str = "",
) -> list[str]:
    """Return sentences that users should read before they believe a fit; none where nothing is wrong."""
    found = [*diagnosis.failures, *_warn_unidentified(system, measured, diagnosis, estimates)]
    found += _describe_equivalent_parameters(
        system, measured, [rival for rival in diagnosis.alternatives if rival.is_twin], estimates
    )
    for rival in (each for each in diagnosis.alternatives if not each.is_twin):
        values = join_list([f"{name} = {value:.4g}" for name, value in rival.values.items()])
        likely = f"less likely by {rival.below:.1f} nats" if rival.below > 0.05 else "as likely"
        found.append(f"other values fit about as well, {likely}: {values}; give bounds where they cannot be")
    largest = max(diagnosis.widening.values(), default=math.nan)
    is_shared = layout.n_noise_levels == 1
    found += warn_residuals(diagnosis.checks, is_shared=is_shared, time_unit=time_unit, widening=largest)
    # Of an observable that does not change, something else is said.
    steady = {check.name for check in diagnosis.checks if np.isnan(check.explained)}
    telling = [is_shared or name not in steady for name in measured][: layout.n_noise_levels]
    if optimum.at_bound[layout.slices.noise][telling].any():
        found.append("a noise level sits at the limit of its search: the data look free of noise, or are all noise")
    return found + warn_near_degenerate(system, layout.unpack(optimum.x).theta) + posterior.warnings()


def describe_inputs(measurements: Measurements, hold_preference: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return what is known of each input by name: its kind, how many samples it has, and how many were missing."""
    found: dict[str, dict[str, Any]] = {}
    for name, signal in measurements.inputs.items():
        every = [part.inputs[name] for part in list_measurements(measurements)]
        # On disk some samples may not be kept, as they change nothing.
        told = [
            each
            for part in list_measurements(measurements)
            for each in part.input_statistics
            if each.observable == name
        ]
        samples, missing = sum(each.count for each in told), sum(each.missing for each in every)
        found[name] = {"kind": signal.kind, "samples": samples, "missing": missing}
        if not any(part.inputs[name].changes(*part.window) for part in list_measurements(measurements)):
            found[name]["changes"] = False
        if name in hold_preference:
            found[name]["advantage"] = float(hold_preference[name])
    return found


def describe_input(
    name: str, kind: str, samples: int, missing: int, advantage: float | None = None, *, changes: bool = True
) -> str:
    """Return what is known of an input.

    Examples
    --------
    >>> describe_input("u", "hold", 12, 0)
    'u: known, held between 12 samples'
    >>> describe_input("u", "hold", 1, 0, changes=False)
    'u: known, held between 1 sample; it does not change while anything was measured, so nothing tells what it does'
    """
    between = "held" if kind == "hold" else "straight lines"
    text = f"{name}: known, {between} between {samples} sample{'s' * (samples != 1)}"
    if missing:
        what = "kept unchanged" if kind == "hold" else "bridged"
        text += f", {missing} missing sample{'s' * (missing != 1)} {what}"
    if advantage is not None:
        other = "straight lines" if kind == "hold" else "held values"
        text += f"; more likely than {other} by {advantage:.1f} nats"
    if not changes:
        text += "; it does not change while anything was measured, so nothing tells what it does"
    return text


@dataclass(frozen=True)
class Findings:
    """What residuals say about a fit.

    Parameters
    ----------
    checks : tuple of Check
        Of each observable: sizes, correlations and tests.
    widening : dict of str to float
        Factors by which standard errors of parameters were widened for correlated residuals; empty for none.
    time_unit : str
        Of the time, where it is known.
    """

    checks: tuple[ResidualCheck, ...]
    widening: Mapping[str, float]
    time_unit: str = ""

    @classmethod
    def of(cls, diagnosis: Diagnosis, time_unit: str = "") -> Findings:
        """Return what a diagnosis holds about residuals.

        Parameters
        ----------
        diagnosis : Diagnosis
        time_unit : str
            Of the time.
        """
        return cls(diagnosis.checks, dict(diagnosis.widening), time_unit)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict on each observable, in its order."""
        largest = max(self.widening.values(), default=math.nan)
        return tuple(check.message(self.time_unit, largest) for check in self.checks)

    @property
    def is_independent(self) -> bool:
        """Whether nothing speaks against independent residuals of all observables."""
        return not any(check.is_suspicious for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is not finite is None."""
        residuals = {}
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            own: dict[str, Any] = {"verdict": verdict, "correlated": check.is_correlated, "rms": check.size}
            own["count"] = check.count
            own |= {} if check.whiteness is None else asdict(check.whiteness)
            residuals[check.title] = own
        found: dict[str, Any] = to_json_values({"residuals": residuals, "widening": dict(self.widening)})
        return found

    def __repr__(self) -> str:
        lines = []
        for check, verdict in zip(self.checks, self.sentences, strict=True):
            lines.append(as_sentence(verdict))
            found = check.whiteness
            if found is None:
                continue
            lines.append(f"  lags       {' '.join(f'{each:.2f}' for each in found.lags)}, step {found.step:.3g}")
            lines.append(
                f"  Ljung-Box  {found.ljung_box:.1f} over {len(found.lags)} lags, {format_probability(found.p_value)}"
            )
            lines.append(f"  cumulated periodogram  {found.excursion:.3f} from a line, 95 % band {found.band:.3f}")
            lines += [
                f"  with {name}  {link.correlation:.2f} at a delay of {link.delay:.3g}, {format_probability(link.p_value)}"
                for name, link in found.links.items()
            ]
        if self.widening:
            listed = ", ".join(f"{name} {factor:.2f}" for name, factor in self.widening.items())
            lines.append(f"Standard errors are widened: {listed}.")
        return "\n".join(lines)
