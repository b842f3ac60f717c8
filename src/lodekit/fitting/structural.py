"""Structural identifiability of the parameters from the measured channels, by exact algebra."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lodekit.errors import LodekitError
from lodekit.prior.compile import ScalarFunctions
from lodekit.prior.observables import ObservableCompiler
from lodekit.system.structural_identifiability import (
    IdentifiabilityProblem,
    find_identifiable_combinations,
    find_scale_symmetries,
    find_sign_symmetries,
    find_unidentifiable_directions,
    input_output_coefficients,
)
from lodekit.system.system import System


@dataclass(frozen=True)
class StructuralIdentifiability:
    """What the equations say about what can be learned from what was measured, whatever the data are.

    measured: The observables, and what is known.
    disturbances: Channels of which all is known but their size.
    """

    system: System
    measured: tuple[str, ...]
    disturbances: tuple[str, ...] = ()

    @cached_property
    def _measured_system(self) -> IdentifiabilityProblem:
        """What was measured, with disturbances: of these all is known but their size."""
        return self._compile_measured((*self.measured, *self.disturbances))

    def _compile_measured(self, measured: tuple[str, ...]) -> IdentifiabilityProblem:
        operator, known = ObservableCompiler(self.system).parse(measured)
        # A prior tells a parameter, too.
        unknown = (n for n, each in self.system.parameters.items() if each.fixed is None and each.prior is None)
        return IdentifiabilityProblem(self.system, operator, known, tuple(unknown))

    @cached_property
    def unidentifiable_directions(self) -> list[dict[str, Fraction | None]]:
        """Directions in which parameters can move without any change of what can be measured."""
        with suppress(LodekitError):
            return find_unidentifiable_directions(self._measured_system) or []
        return []

    @cached_property
    def input_output_coefficients(self) -> ScalarFunctions | None:
        """What determines the behaviour of all that was measured, as functions of the parameters; None if too large."""
        return self._coefficients((*self.measured, *self.disturbances))

    @cached_property
    def all_channel_coefficients(self) -> ScalarFunctions | None:
        """What determines the behaviour of all channels, measured or not: values that share it are one plant."""
        return self._coefficients(tuple(self.system.channels))

    def _coefficients(self, measured: tuple[str, ...]) -> ScalarFunctions | None:
        with suppress(LodekitError):
            problem = self._compile_measured(measured)
            return ScalarFunctions(self.system.operator.ring, input_output_coefficients(problem))
        return None

    @property
    def unidentifiable(self) -> list[str]:
        """Parameters that no data of this kind can tell, in order."""
        return [name for name in self.system.parameters if any(name in way for way in self.unidentifiable_directions)]

    @cached_property
    def scale_confounded(self) -> list[str]:
        """Parameters that disturbances of another size make up for, in order: as b in b*w."""
        try:
            ways = find_scale_symmetries(self._compile_measured(self.measured)) if self.disturbances else []
        except LodekitError:
            ways = []
        either = [name for name in self.system.parameters if any(name in way for way in ways)]
        return [name for name in either if name not in self.unidentifiable]

    @cached_property
    def identifiable_combinations(self) -> list[str]:
        """What is determined of them, such as ``k/m``, where that is simple."""
        if not self.unidentifiable_directions:
            return []
        return find_identifiable_combinations(self._measured_system, self.unidentifiable_directions) or []

    @cached_property
    def sign_symmetry_groups(self) -> list[frozenset[str]]:
        """Parameters whose signs can change together; those that are undetermined anyway are not worth a word."""
        either = [
            name for name, each in self.system.parameters.items()
            if each.fixed is None and each.prior is None and all(map(math.isinf, each.interval))
        ]  # fmt: skip
        try:
            found = find_sign_symmetries(self._measured_system, either) if either else []
        except LodekitError:
            found = []
        return [names for names in found if not names <= {*self.unidentifiable, *self.scale_confounded}]
