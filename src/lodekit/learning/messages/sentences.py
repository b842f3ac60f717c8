"""What is to be read before a fit is believed, in sentences, and hyperparameters by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.data.measurements import Measurements
from lodekit.data.records import parts_of
from lodekit.errors import AlgebraError
from lodekit.inference.engine import Posterior
from lodekit.learning.diagnosis.diagnosis import Diagnosis
from lodekit.learning.diagnosis.residuals import residual_doubts
from lodekit.learning.estimates import AT_BOUND, NOT_IDENTIFIED, Estimate
from lodekit.learning.identifiability.rivals import Rival
from lodekit.learning.searches.search import Optimum
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import ScalarTable
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior
from lodekit.system.system import System
from lodekit.wording import join_words

__all__ = [
    "MODES",
    "describe_hyperparameters",
    "describe_inputs",
    "find_warnings",
    "input_sentence",
    "near_degeneracies",
]

#: What deviations of modes are called, before their number.
MODES = "deviation of mode"
#: An expression is close to zero when it is this much smaller than the sum of the sizes of its terms.
_CLOSE = 1e-2
#: Of so many sets of values that give the same behaviour all are told.
_TOLD = 2


def near_degeneracies(system: System, theta: NDArray[np.float64]) -> list[str]:
    """Return warnings for expressions that nearly vanish at the estimate and at whose zeros the structure changes.

    Parameters
    ----------
    system : System
    theta : array, shape (p,)
        The estimate: values of all parameters, in order.
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
        values, _ = ScalarTable(ring, terms).evaluate(theta)
        text = ring.format(element)
        if not values.any():  # all terms vanish, as c alone does where it is fixed at zero: no sum of sizes tells
            found.append(f"{what} at {text} = 0, which holds here; write the values that make it so into the equations")
        elif abs(values.sum()) < _CLOSE * np.abs(values).sum():
            found.append(f"{what} at {text} = 0, and the estimate is close to that")
    return found


def describe_hyperparameters(prior: Prior, hyper: Hyperparameters, channels: Sequence[str]) -> dict[str, float]:
    """Return lengthscales and deviations by name, in the user's units.

    Parameters
    ----------
    prior : Prior
    hyper : Hyperparameters
        With lengthscales in scaled time.
    channels : sequence of str
        All channels of the system; the channel prior has a process for each.
    """
    names = [f"free function {i}" for i in range(1, prior.processes + 1)] if prior.channels is None else list(channels)
    found = {}
    for name, ell, sigma in zip(names, hyper.lengthscales, hyper.deviations, strict=True):
        found[f"lengthscale of {name}"] = prior.units.user_lengths(float(ell))
        found[f"deviation of {name}"] = float(sigma)
    for i, sigma in enumerate(hyper.mode_deviations, 1):
        found[f"{MODES} {i}"] = float(sigma)
    own = prior.observables.disturbed
    if own is not None:
        lengths = dict(zip(own.coloured, hyper.disturbance_lengthscales, strict=True))
        for number, (name, sigma) in enumerate(zip(own.names, hyper.disturbance_deviations, strict=True)):
            if number in lengths:
                found[f"lengthscale of {name}"] = prior.units.user_lengths(float(lengths[number]))
            found[f"deviation of {name}"] = float(sigma)
    return found


def _identification_warnings(
    system: System, measured: Sequence[str], diagnosis: Diagnosis, estimates: Mapping[str, Estimate]
) -> list[str]:
    """Return what the data do not tell, in sentences that say what to try."""
    found, told = [], set()
    by_reason: dict[str, list[str]] = {}
    for name, verdict in diagnosis.verdicts.items():
        if not verdict.identified and estimates[name].note == verdict.note:
            by_reason.setdefault(verdict.reason, []).append(name)
    hidden = [name for name in system.channels if name not in measured]
    for reason, names in by_reason.items():
        told |= set(names)
        who = f"parameter{'s' * (len(names) > 1)} {join_words(names)} {'are' if len(names) > 1 else 'is'}"
        if reason == "structure":
            sure = diagnosis.combinations
            only = f"; only {join_words(sure)} {'are' if len(sure) > 1 else 'is'} determined" if sure else ""
            more = f"measure {join_words(hidden)}, or fix" if hidden else "fix"
            found.append(
                f"{who} {NOT_IDENTIFIED}: other values, with all else changed to match, give the same solutions in all "
                f"that was measured{only}; {more} a value that is known"
            )
        elif reason == "size":
            cure = "fix it, at 1 for example" if len(names) == 1 else "fix one that is known"
            found.append(
                f"{who} {NOT_IDENTIFIED}: with disturbances of another size to match, all that was measured is the "
                f"same; {cure}"
            )
        elif reason == "motion":
            found.append(
                f"{who} {NOT_IDENTIFIED}: the same curves solve the equations for other values, too; what was measured "
                "moves too simply to tell: add data from another input or another start, or fix a value that is known"
            )
        elif reason == "flat":
            found.append(
                f"{who} {NOT_IDENTIFIED}: moved far in either direction, with all else learned anew, the evidence "
                "hardly falls; measure where it matters, or fix a value that is known"
            )
        elif reason == "unresolved":
            found.append(
                f"{who} {NOT_IDENTIFIED}: these leave nothing to noise, and are farther apart than they tell what "
                "happens between them, so that derivatives are anyone's guess; measure more often"
            )
        elif reason == "alias":
            found.append(
                f"{who} {NOT_IDENTIFIED}: at times that are multiples of one step, with fewer than three of them in "
                "each period, a faster or slower oscillation looks the same; measure more often or at uneven times, "
                "or give bounds"
            )
        elif reason == "side":
            found += [
                f"parameter {name} is only bounded by these data: {diagnosis.verdicts[name].note}" for name in names
            ]
    rest = {n: each for n, each in estimates.items() if not each.identified and n not in told}
    tries = {
        AT_BOUND: "; widen its bounds where it may go farther, or check the equations",
        NOT_IDENTIFIED: ": there is too little of them; measure more, or fix a value that is known",
    }
    return found + [f"parameter {name} is {each.note}{tries.get(each.note, '')}" for name, each in rest.items()]


def _describe_twins(
    system: System, measured: Sequence[str], twins: Sequence[Rival], estimates: Mapping[str, Estimate]
) -> list[str]:
    """Return which other values give the same behaviour of all that was measured, in one sentence for all of them."""
    if not twins:
        return []
    names = [name for name in estimates if any(name in twin.values for twin in twins)]
    told = [
        join_words([f"{twin.values.get(name, estimates[name].value):.3g}" for name in names]) for twin in twins[:_TOLD]
    ]
    more = f", or {len(twins) - _TOLD} more" if len(twins) > _TOLD else ""
    unlikely = min(twin.below for twin in twins)
    likely = f", though less likely by {unlikely:.1f} nats" if unlikely > 0.05 else ""
    hidden = [name for name in system.plain_channels if name not in measured]
    cure = f"measure {join_words(hidden)}, bound or fix" if hidden else "bound or fix"
    same = f"{join_words(measured)} {'are' if len(measured) > 1 else 'is'}" if len(measured) < 4 else "all measured is"
    which = "with either" if len(twins) == 1 else "with all of them"
    return [
        f"{join_words(names)} could as well be {' or '.join(told)}{more}{likely}: {same} exactly the same {which}; "
        f"{cure} one of them, or give a prior"
    ]


def find_warnings(
    system: System,
    posterior: Posterior,
    layout: Layout,
    optimum: Optimum,
    estimates: Mapping[str, Estimate],
    diagnosis: Diagnosis,
    measured: Sequence[str],
    time_unit: str = "",
) -> list[str]:
    """Return sentences that users should read before they believe a fit; none where nothing is wrong.

    Parameters
    ----------
    system : System
    posterior : Posterior
        At the optimum; it knows how accurate it is.
    layout : Layout
        Of the vector that was searched.
    optimum : Optimum
    estimates : dict of str to Estimate
        The parameters of the system by name.
    diagnosis : Diagnosis
    measured : sequence of str
        What was measured.
    time_unit : str
        Of the time, for sentences.
    """
    found = [*diagnosis.trouble, *_identification_warnings(system, measured, diagnosis, estimates)]
    found += _describe_twins(system, measured, [rival for rival in diagnosis.rivals if rival.is_twin], estimates)
    for rival in (each for each in diagnosis.rivals if not each.is_twin):
        values = join_words([f"{name} = {value:.4g}" for name, value in rival.values.items()])
        likely = f"less likely by {rival.below:.1f} nats" if rival.below > 0.05 else "as likely"
        found.append(f"other values fit about as well, {likely}: {values}; give bounds where they cannot be")
    largest = max(diagnosis.widening.values(), default=math.nan)
    is_shared = layout.noise_levels == 1
    found += residual_doubts(diagnosis.checks, is_shared=is_shared, time_unit=time_unit, widening=largest)
    # Of an observable that does not change, something else is said.
    steady = {check.name for check in diagnosis.checks if np.isnan(check.explained)}
    telling = [is_shared or name not in steady for name in measured][: layout.noise_levels]
    if optimum.at_bound[layout.blocks.noise][telling].any():
        found.append("a noise level sits at the limit of its search: the data look free of noise, or are all noise")
    return found + near_degeneracies(system, layout.unpack(optimum.x).theta) + posterior.warnings()


def describe_inputs(measurements: Measurements, preference: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return what is known of each input by name: its kind, how many samples it has, and how many were missing.

    Parameters
    ----------
    measurements : Measurements
    preference : dict of str to float
        For inputs whose kind was chosen, by how much the log evidence exceeds that of the other kind.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, signal in measurements.inputs.items():
        every = [part.inputs[name] for part in parts_of(measurements)]
        # On disk some samples may not be kept, as they change nothing.
        told = [each for part in parts_of(measurements) for each in part.input_summaries if each.observable == name]
        samples, missing = sum(each.count for each in told), sum(each.missing for each in every)
        found[name] = {"kind": signal.kind, "samples": samples, "missing": missing}
        if not any(part.inputs[name].changes(*part.window) for part in parts_of(measurements)):
            found[name]["changes"] = False
        if name in preference:
            found[name]["advantage"] = float(preference[name])
    return found


def input_sentence(
    name: str, kind: str, samples: int, missing: int, advantage: float | None = None, *, changes: bool = True
) -> str:
    """Return what is known of an input.

    Parameters
    ----------
    name, kind : str
        Of the input, and what it does between its samples: ``"hold"`` or ``"linear"``.
    samples, missing : int
        How many there are, and how many were left out.
    advantage : float, optional
        By how much the log evidence exceeds that of the other kind, where it was chosen.
    changes : bool
        Whether it does while anything was measured.

    Examples
    --------
    >>> input_sentence("u", "hold", 12, 0)
    'u: known, held between 12 samples'
    >>> input_sentence("u", "hold", 1, 0, changes=False)
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
