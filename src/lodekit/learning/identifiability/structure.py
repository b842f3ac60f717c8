"""What the equations say about what can be learned from what was measured, whatever the data are: by exact algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lodekit.errors import LodekitError
from lodekit.prior.compile import ScalarTable
from lodekit.prior.observables import ObservableReader
from lodekit.system.identification import Measured, undetermined_directions
from lodekit.system.relations import relation_coefficients
from lodekit.system.symmetries import determined_combinations, scale_symmetries, sign_symmetries
from lodekit.system.system import System

__all__ = ["Structure"]


@dataclass(frozen=True)
class Structure:
    """What the equations say about what can be learned from what was measured, whatever the data are.

    Parameters
    ----------
    system : System
    measured : tuple of str
        The observables, and what is known.
    disturbances : tuple of str
        Channels of which all is known but their size.
    """

    system: System
    measured: tuple[str, ...]
    disturbances: tuple[str, ...] = ()

    @cached_property
    def _case(self) -> Measured:
        """What was measured, with disturbances: of these all is known but their size."""
        return self._read((*self.measured, *self.disturbances))

    def _read(self, measured: tuple[str, ...]) -> Measured:
        operator, known = ObservableReader(self.system).read(measured)
        # A prior tells a parameter, too.
        unknown = (n for n, each in self.system.parameters.items() if each.fixed is None and each.prior is None)
        return Measured(self.system, operator, known, tuple(unknown))

    @cached_property
    def directions(self) -> list[dict[str, Fraction | None]]:
        """Directions in which parameters can move without any change of what can be measured."""
        try:
            return undetermined_directions(self._case) or []
        except LodekitError:
            return []

    @cached_property
    def behaviour(self) -> ScalarTable | None:
        """What determines the behaviour of all that was measured, as functions of the parameters; None if too large."""
        try:
            return ScalarTable(self.system.operator.ring, relation_coefficients(self._case))
        except LodekitError:
            return None

    @cached_property
    def whole(self) -> ScalarTable | None:
        """What determines the behaviour of all channels, measured or not: values that share it are one plant."""
        try:
            every = self._read(tuple(self.system.channels))
            return ScalarTable(self.system.operator.ring, relation_coefficients(every))
        except LodekitError:
            return None

    @property
    def undetermined(self) -> list[str]:
        """Parameters that no data of this kind can tell, in order."""
        return [name for name in self.system.parameters if any(name in way for way in self.directions)]

    @cached_property
    def resized(self) -> list[str]:
        """Parameters that disturbances of another size make up for, in order: as b in b*w."""
        try:
            ways = scale_symmetries(self._read(self.measured)) if self.disturbances else []
        except LodekitError:
            ways = []
        either = [name for name in self.system.parameters if any(name in way for way in ways)]
        return [name for name in either if name not in self.undetermined]

    @cached_property
    def combinations(self) -> list[str]:
        """What is determined of them, such as ``k/m``, where that is simple."""
        if not self.directions:
            return []
        return determined_combinations(self._case, self.directions) or []

    @cached_property
    def symmetries(self) -> list[frozenset[str]]:
        """Parameters whose signs can change together; those that are undetermined anyway are not worth a word."""
        either = [
            name for name, each in self.system.parameters.items()
            if each.fixed is None and each.prior is None and all(map(math.isinf, each.interval))
        ]  # fmt: skip
        try:
            found = sign_symmetries(self._case, either) if either else []
        except LodekitError:
            found = []
        return [names for names in found if not names <= {*self.undetermined, *self.resized}]
