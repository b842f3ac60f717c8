"""A fit as one frozen value: its setup, the optimum with its curvature, and everything that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.arguments import read_times
from lodekit.data.clock import Clock
from lodekit.data.measurements import Measurements, typical_noise
from lodekit.data.observations import Series
from lodekit.data.records import FIRST, find_record
from lodekit.inference.choice import Choice
from lodekit.inference.engine import Posterior
from lodekit.inference.records import RecordsPosterior
from lodekit.labels import Labels
from lodekit.learning.bands.uncertainty import Uncertainty
from lodekit.learning.bands.widening import Leftover, find_missed, find_widening, warn_of_missed, widen_all
from lodekit.learning.curvature import covariance_from_curvature, share_left
from lodekit.learning.diagnosis.diagnosis import Diagnosis, diagnose
from lodekit.learning.diagnosis.examined import Examined
from lodekit.learning.diagnosis.outliers import warn_of_outliers
from lodekit.learning.estimates import Estimate, estimate_parameters, find_reach
from lodekit.learning.freedom import degrees_of_freedom
from lodekit.learning.identifiability.verdicts import Verdict, apply_verdicts
from lodekit.learning.messages.scarcity import warn_of_holes, warn_of_scarcity, warn_of_still_inputs
from lodekit.learning.messages.sentences import describe_hyperparameters, describe_inputs, find_warnings, input_sentence
from lodekit.learning.messages.steps import warn_of_steps
from lodekit.learning.needs import Disturbance, find_disturbances
from lodekit.learning.searches.search import Optimum
from lodekit.learning.transforms import Layout
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior
from lodekit.settings import Arguments
from lodekit.setup import Setup
from lodekit.system.system import System

__all__ = ["Fit"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: its setup, the optimum, the curvature there, and all that follows from them.

    Parameters
    ----------
    setup : Setup
        Everything that was settled before anything was learned.
    optimum : Optimum
        Where the search ended.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective at the optimum, on the scale of the search.
    posterior : Posterior
        At the optimum.
    labels : Labels
        The words that figures, reports and files use.
    notes : tuple of str
        What was found out about the files or the DataFrame that were read.
    diagnosis : Diagnosis
        What is to be known before it is believed.
    preference : dict of str to float
        For inputs whose kind was chosen, by how much the log evidence exceeds that of the other kind.
    needs : dict of str to float
        By how much the objective is less without each disturbance.
    whole : Fit, optional
        Where this is one record of several: the fit to all of them, which has all that they share.

    Examples
    --------
    >>> import lodekit as lk
    >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    >>> gp.fit_.measurements.size, gp.fit_.choice.name
    (4, 'dense')
    """

    setup: Setup
    optimum: Optimum
    curvature: Array
    posterior: Posterior
    labels: Labels = field(default_factory=Labels)
    notes: tuple[str, ...] = ()
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    preference: Mapping[str, float] = field(default_factory=dict)
    needs: Mapping[str, float] = field(default_factory=dict)
    whole: Fit | None = None

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records."""
        if self.whole is not None:
            return tuple(name for name, own in self.whole.setup.parts.items() if own is self.setup)
        return tuple(self.setup.parts) or (FIRST,)

    @cached_property
    def parts(self) -> tuple[Fit, ...]:
        """The fit as each record sees it: curves and measurements of its own, and all that was learned from all."""
        if not isinstance(self.posterior, RecordsPosterior):
            return (self,)
        both = zip(self.setup.parts.items(), self.posterior.parts, strict=True)
        return tuple(
            replace(
                self, setup=own, posterior=posterior, notes=(), diagnosis=self.diagnosis.of_record(name), whole=self
            )
            for (name, own), posterior in both
        )

    @property
    def is_on_disk(self) -> bool:
        """Whether rows are read from disk for every question: they are too many for memory."""
        return any(part.choice.name == "markov" and part.measurements.is_summed for part in self.parts)

    def need_whole_record(self, what: str) -> None:
        """Raise where most rows were left out when the model was saved.

        Parameters
        ----------
        what : str
            What needs them.
        """
        for part in self.parts:
            part.measurements.need_whole_record(what)

    def part(self, record: object = None) -> Fit:
        """Return the fit as one record sees it.

        Parameters
        ----------
        record : str, int or None
            Its name, or its number counted from zero; None stands for the only one.
        """
        return self.parts[find_record(self.records, record)]

    def diagnosed(self, known: Mapping[str, Verdict] | None = None, *, is_searched: bool = True) -> Fit:
        """Return the fit with its diagnosis, computed from all else.

        Parameters
        ----------
        known : dict of str to Verdict, optional
            About parameters, from an earlier fit, where nothing was searched for.
        is_searched : bool
            Whether anything was.
        """
        with self.setup.threads():
            found = diagnose(self.examined, self.setup.structure if is_searched else None, known)
            if self.prior.is_random:
                found = replace(found, widening=widen_all(self.layout, found.checks))
            elif any(check.has_memory for check in found.checks):
                parts = [part._leftover(item) for part in self.parts for item in part.examined.looked_at]
                usable = [part for part in parts if len(part.times)]
                found = replace(found, widening=find_widening(self.layout, self.uncertainty.roots, usable))
        return replace(self, diagnosis=found)

    @cached_property
    def examined(self) -> Examined:
        """All that a diagnosis looks at, of this fit and of each of several records."""
        return Examined(
            self.system,
            self.setup.objective,
            self.optimum,
            self.information,
            self.posterior,
            self.measurements,
            self.typical_noise,
            # No lambda, which pickle could not send to other processes.
            partial(self.setup.evidence_on, hyper=self.hyperparameters),
            self.choice.name,
            {name: part.examined for name, part in zip(self.setup.parts, self.parts, strict=bool(self.setup.parts))},
        )

    def _leftover(self, item: Series) -> Leftover:
        """Return the residuals of one observable, and how the curve there moves with what was learned."""
        left = self.examined.remainder(item)
        noise = item.noise_with(self.typical_noise(item.observable))
        places = np.searchsorted(item.times, left.times)
        return Leftover(self.uncertainty, self.observables([item.observable]), left.times, left.values, noise[places])

    @cached_property
    def missed(self) -> dict[str, float]:
        """The deviation of what is left of each observable beside noise, where free functions cannot follow it."""
        names, scatter = self.measurements.names, self.measurements.scatter()
        noise = {} if scatter is None else dict(zip(names, scatter.tolist(), strict=True))
        return find_missed(self.diagnosis.checks, self.typical_noise, noise) if self.prior.processes else {}

    @property
    def converged(self) -> bool:
        """Whether the search settled, and not below smooth curves that obey no equation."""
        return self.optimum.converged and not self.diagnosis.failed

    @property
    def system(self) -> System:
        """The system that was fitted."""
        return self.setup.system

    @property
    def arguments(self) -> Arguments:
        """The arguments that it was fitted with."""
        return self.setup.arguments

    @property
    def measurements(self) -> Measurements:
        """The measurements that it was fitted to."""
        return self.setup.measurements

    @property
    def choice(self) -> Choice:
        """The kind of engine that was used, and why."""
        return self.setup.choice

    @property
    def layout(self) -> Layout:
        """Where everything stands in the vector that was searched."""
        return self.setup.layout

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.setup.prior

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """Everything that was learned: lengthscales in scaled time, parameters and levels in the user's units."""
        return self.layout.unpack(self.optimum.x)

    @cached_property
    def log_evidence(self) -> float:
        """The log evidence at the optimum, in the user's units.

        Modes that are left open count with a prior that knows as much as one measurement does, and not with the width
        that stands for infinity in the search (`lodekit.prior.open_modes`).
        """
        return self.posterior.value + sum(part.examined.allowance for part in self.parts)

    @cached_property
    def share_left(self) -> float:
        """The share of the measurements that learning has not used up; variances are larger by its reciprocal."""
        size = (self.whole or self).setup.engine.size
        return share_left(self.layout, size, self.optimum.at_bound)

    @cached_property
    def information(self) -> Array:
        """The curvature, less the share of the measurements that learning has used up; errors come from it."""
        return self.curvature * self.share_left

    @cached_property
    def covariance(self) -> Array:
        """The covariance of everything learned, on the scale of the search, shape (n, n)."""
        return covariance_from_curvature(self.information, ~self.optimum.at_bound)

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """What everything learned could be as well, and what that does to predictions."""
        objective = (self.whole or self).setup.objective
        is_part = self.whole is not None
        rivals = self.diagnosis.rivals
        return Uncertainty(objective, self.optimum, self.information, self.setup.posterior, rivals, is_part=is_part)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The parameters of the system with standard errors and intervals of 95 %, by name."""
        return self.estimates_at(0.95) if self.whole is None else self.whole.estimates

    @cached_property
    def freedom(self) -> Array:
        """The degrees of freedom of the standard errors of learned parameters, shape (p,)."""
        with self.setup.threads():
            return degrees_of_freedom(self.setup.objective, self.optimum.x, self.covariance)

    def estimates_at(self, share: float) -> dict[str, Estimate]:
        """Return the parameters of the system, by name, with intervals that hold the truth so often.

        Parameters
        ----------
        share : float
            Such as 0.95.
        """
        if self.whole is not None:
            return self.whole.estimates_at(share)
        optimum, points, layout = self.optimum, self.measurements.distinct, self.layout
        names = [layout.names[number] for number in layout.learned]
        wider = np.array([self.diagnosis.widening.get(name, 1.0) for name in names])
        known = self.information, optimum.at_bound, points, self.freedom, wider
        found = estimate_parameters(layout, optimum.x, *known, share)
        reaches = dict(zip(names, map(partial(find_reach, share), self.freedom, wider), strict=True))
        return apply_verdicts(found, self.diagnosis.verdicts, points >= layout.size, share, reaches)

    @cached_property
    def parameter_covariance(self) -> Array:
        """The covariance of all parameters in the user's units, shape (p, p); widened like their standard errors.

        Fixed ones have none; what the data say nothing about has a large but finite one, so that what they do
        determine, such as a ratio, has its own.
        """
        return self.uncertainty.of_parameters(self.diagnosis.widening)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Learned levels of noise by name, in the user's units."""
        return self.prior.noise.describe(self.hyperparameters.noise)

    @cached_property
    def described(self) -> dict[str, float]:
        """Lengthscales and deviations by name, in the user's units."""
        found = describe_hyperparameters(self.prior, self.hyperparameters, self.setup.reduced.channels)
        # What is best at zero is left at a limit of the search.
        return found | {f"deviation of {each.name}": 0.0 for each in self.disturbances.values() if not each.deviation}

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences that users should read before they believe the fit; none where nothing is wrong."""
        if self.whole is not None:
            return self.whole.warnings
        found = find_warnings(
            self.setup.reduced,
            self.posterior,
            self.layout,
            self.optimum,
            self.estimates,
            self.diagnosis,
            self.measurements.names,
            self.clock.unit,
        )
        found += warn_of_scarcity(self.measurements.summaries, self.prior.noise)
        parts, names = self.parts if self.prior.latents else (), self.system.plain_channels
        stepped = [text for part in parts for text in warn_of_steps(part.measurements.series, self.noise, names)]
        # What a smooth prior leaves of steps is a curve as well, and has another cure.
        found += stepped or warn_of_missed(self.missed, is_conditioned=self.prior.channels is not None)
        # What may be wrong with names, inputs and single values comes first: all else may follow from it.
        first = [*self.setup.name_warnings, *warn_of_holes(self.measurements, self.labels.units.get("t", ""))]
        if self.diagnosis.failed or self.diagnosis.is_short_of_data:
            first += warn_of_still_inputs(self.measurements)
        first += warn_of_outliers({check.title: check.outliers for check in self.diagnosis.checks}, self.clock.unit)
        return list(dict.fromkeys([*first, *found]))

    def observables(self, names: Sequence[str]) -> Observables:
        """Return observables, compiled in the user's units.

        Parameters
        ----------
        names : sequence of str
            Linear differential expressions of the channels.
        """
        return self.setup.reader.compile_plain(names, self.prior.units)

    @cached_property
    def clock(self) -> Clock:
        """From when, and in which unit, times are counted, as far as the labels tell."""
        return Clock.of_labels(self.labels.origin, self.labels.units.get("t"))

    def times(self, t: ArrayLike) -> Array:
        """Return times of the user as numbers; dates and lengths of time are counted as those of the fit.

        Parameters
        ----------
        t : array-like, shape (n,), or a number
        """
        found = self.clock.read(t)
        return read_times(t) if found is None else found

    def typical_noise(self, observable: str) -> float:
        """Return the standard deviation of the noise of one more measurement, in the user's units.

        It is the learned level of the observable; else the root mean square of known noise, its own or that of all
        observables; else the highest level.

        Parameters
        ----------
        observable : str
        """
        if self.prior.noise.shared and self.noise:
            return self.noise["shared"]
        if observable in self.noise:
            return self.noise[observable]
        known = typical_noise(self.measurements.summaries, observable)
        return known if not np.isnan(known) else max(self.noise.values(), default=0.0)

    def describe_inputs(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each input by name: its kind, how many samples it has, and how many were missing."""
        return describe_inputs(self.measurements, self.preference)

    @cached_property
    def disturbances(self) -> dict[str, Disturbance]:
        """What was learned of each disturbance, and whether it is needed, by name."""
        found = self.hyperparameters, self.covariance, self.optimum.at_bound
        return find_disturbances(self.prior, self.layout, *found, self.needs, self.setup.structure.resized)

    @property
    def input_notes(self) -> list[str]:
        """What is known of each input, and was learned of each disturbance, in a sentence each."""
        found = [input_sentence(name, **known) for name, known in self.describe_inputs().items()]
        known = self.labels.units, self.system, self.measurements.names
        return found + [each.sentence(*known) for each in self.disturbances.values()]
