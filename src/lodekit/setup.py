"""Everything that is settled before anything is learned: of a fit, and of each of several records."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

from lodekit.data.measurements import Measurements
from lodekit.data.records import padded
from lodekit.inference.choice import Choice, choose
from lodekit.inference.engine import Case, Engine, Posterior
from lodekit.learning.identifiability.structure import Structure
from lodekit.learning.messages.slips import find_slips
from lodekit.learning.objective import Objective
from lodekit.learning.transforms import Layout
from lodekit.prior.disturbed import find_infinite
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import ObservableReader
from lodekit.prior.prior import Prior
from lodekit.settings import Arguments
from lodekit.system.system import System
from lodekit.threads import one_thread

__all__ = ["Setup"]


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that is settled before anything is learned.

    Parameters
    ----------
    system : System
        What is fitted.
    arguments : Arguments
        How it is fitted.
    measurements : Measurements
        What it is fitted to.
    choice : Choice
        The kind of the engine, and why it was taken.
    engine : Engine
        Computes the log evidence and the posterior; it holds the prior.
    layout : Layout
        Where everything that is learned stands in the vector that is searched.
    case : Case
        What the engine was chosen for.
    parts : dict of str to Setup
        Where there are several records, that of each alone, by the name of the record; the layout is the same for all.
    """

    system: System
    arguments: Arguments
    measurements: Measurements
    choice: Choice
    engine: Engine
    layout: Layout
    case: Case
    parts: Mapping[str, Setup] = field(default_factory=dict)

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.engine.prior

    @cached_property
    def objective(self) -> Objective:
        """The function that is maximised: the log evidence, plus the log prior where parameters have priors."""
        return Objective(self.engine, self.layout, dict(self.system.parameters))

    @cached_property
    def reader(self) -> ObservableReader:
        """The reader of observables of the system."""
        return ObservableReader(self.system, self.measurements.inputs, self.arguments.known_disturbances(self.system))

    @property
    def reduced(self) -> System:
        """The system of the channels that are not known: what has a prior."""
        return self.reader.reduced

    @cached_property
    def infinite(self) -> list[str]:
        """The channels without values: white noise, and what holds it."""
        known = tuple(self.measurements.inputs)
        system = self.system.given(known) if known else self.system
        return find_infinite(system, self.reader.disturbances) if self.reader.disturbances else []

    @property
    def channels(self) -> list[str]:
        """The channels that have values."""
        return [name for name in self.system.plain_channels if name not in self.infinite]

    @property
    def surroundings(self) -> tuple[float, float]:
        """What is shown where nobody says otherwise: the window of the measurements and a tenth more on either side.

        Of disturbances nothing is said before a record begins, nor of averages before their first interval is over.
        """
        first, last = self.measurements.surroundings
        if not self.prior.disturbances:
            return first, last
        units, longest = self.prior.units, self.prior.observables.longest_window
        return self.measurements.known[0] + units.user_lengths(longest), last

    @cached_property
    def structure(self) -> Structure:
        """What the equations say about what can be learned from what was measured, or is known."""
        known = (*self.measurements.inputs, *self.system.delayed_channels)
        return Structure(self.system, (*self.measurements.names, *known), tuple(self.reader.disturbances))

    @property
    def name_notes(self) -> list[str]:
        """What is to be said of channels that nobody measured, and that may be slips."""
        return self._slips[1]

    @property
    def name_warnings(self) -> list[str]:
        """The same of those that look like a slip of what was measured."""
        return self._slips[0]

    @cached_property
    def _slips(self) -> tuple[list[str], list[str]]:
        known = (*self.measurements.names, *self.measurements.inputs, *self.reader.disturbances)
        return find_slips(self.system, known)

    def evidence_on(self, measurements: Measurements, hyper: Hyperparameters) -> float:
        """Return the log evidence of a few other measurements of the same observables.

        Parameters
        ----------
        measurements : Measurements
            In memory.
        hyper : Hyperparameters
            In the units of the prior.
        """
        case = replace(self.case, size=measurements.size, in_memory=True, device=None)
        every = padded(measurements, self.prior.noise.observables)
        return choose("markov" if case.disturbed else "dense", case).kind.make(self.prior, every, case).value(hyper)

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior at some hyperparameters, in the form that keeps its digits."""
        return self.engine.posterior(hyper)

    def threads(self) -> AbstractContextManager[None]:
        """Return a context in which linear algebra uses one thread, or all where matrices are large.

        Threads that wait for each other make small matrices slower, much slower on a busy machine.
        """
        return nullcontext() if self.engine.is_threaded else one_thread()
