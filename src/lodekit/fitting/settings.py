"""How a system is fitted: the arguments of the estimator, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from lodekit.errors import LodekitError
from lodekit.inference.engine import find_torch_device
from lodekit.inference.selection import check_engine_name
from lodekit.prior.disturbances import parse_disturbance
from lodekit.prior.kernels import Kernel, parse_kernel
from lodekit.support.arguments import check_count, check_positive, check_seed
from lodekit.system.system import System

_KIND_HINTS = {"zoh": "; did you mean 'hold'?", "foh": "; did you mean 'linear'?"}
_PARAMETER_PRIOR_HINT = "; the prior of a parameter goes with the parameter: lk.Parameter(prior=lk.Normal(5, 1))"


@dataclass(frozen=True)
class FitSettings:
    """How a system is fitted: the arguments of `lodekit.LODEGP` except the system; it documents them.

    latent: Kernel of the free functions.
    prior: Whether the processes are the free functions or the channels.
    noise: One estimated noise level for each observable, or one for all.
    engine: ``"auto"``, or the name of an engine.
    tolerance: The largest error of the covariance, for engines that have one.
    restarts: Maximum number of starting points of the optimiser.
    random_state: Random seed for the starting points.
    n_jobs: Number of starting points that are searched in parallel.
    device: PyTorch device; None for NumPy.
    mode_deviation: Prior standard deviation of all modes, ``"open"``, ``"learned"``, or None for the default.
    inputs: Known inputs, and their interpolation between samples.
    disturbances: Unmeasured channels that drive the equations, and the kind of process of each.
    """

    latent: str | Sequence[str] = "se"
    prior: str = "latent"
    noise: str = "channel"
    engine: str = "auto"
    tolerance: float = 1e-10
    restarts: int = 6
    random_state: int | None = None
    n_jobs: int | None = None
    device: str | None = None
    mode_deviation: float | str | None = None
    inputs: Mapping[str, str] | None = None
    disturbances: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raise if an argument is invalid."""
        if self.noise not in ("channel", "shared"):
            remedy = "" if isinstance(self.noise, str) else f"; for known noise, use fit(..., noise_std={self.noise!r})"
            raise LodekitError(f"expected noise='channel' or 'shared', got {self.noise!r}{remedy}")
        if self.prior not in ("latent", "channels"):
            given: object = self.prior
            remedy = "" if isinstance(given, str) else _PARAMETER_PRIOR_HINT
            raise LodekitError(f"expected prior='latent' or 'channels', got {self.prior!r}{remedy}")
        check_engine_name(self.engine)
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, Real) or not 0 < self.tolerance <= 0.1:
            raise LodekitError(f"expected a tolerance above zero and at most 0.1, got {self.tolerance!r}")
        if isinstance(self.mode_deviation, str):
            if self.mode_deviation not in ("open", "learned"):
                raise LodekitError(
                    "expected mode_deviation as a positive finite number, 'open' or 'learned', got "
                    f"{self.mode_deviation!r}"
                )
        elif self.mode_deviation is not None:
            check_positive("mode_deviation", self.mode_deviation)
        if self.device is not None:
            find_torch_device(self.device)
        check_count("restarts", self.restarts)
        check_seed(self.random_state)
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise LodekitError(f"expected n_jobs as a whole number other than zero, or None, got {self.n_jobs!r}")

    def parse_inputs(self, system: System) -> dict[str, str]:
        """Return the interpolation of each known input by name; raise if one is invalid."""
        for name, kind in _iterate_channels(system, "inputs", self.inputs, '{"u": "hold"}'):
            if kind not in ("hold", "linear", "auto"):
                raise LodekitError(
                    f"expected 'hold' (stays until the next sample), 'linear' or 'auto' for the input {name}, got "
                    f"{kind!r}{_KIND_HINTS.get(kind, '')}"
                )
        inputs = dict(self.inputs or {})
        if len(inputs) == len(system.plain_channels):
            raise LodekitError("all channels are inputs; expected at least one that responds to them")
        return inputs

    def parse_disturbances(self, system: System) -> dict[str, str]:
        """Return the kind of each disturbance by name; raise if one is invalid."""
        for name, kind in _iterate_channels(system, "disturbances", self.disturbances, '{"w": "white"}'):
            if name in (self.inputs or {}):
                raise LodekitError(f"{name!r} is both an input and a disturbance; remove it from one of them")
            if name in system.delayed_channels:
                raise LodekitError(f"the disturbance {name!r} is delayed in the equations; only known inputs can be")
            parse_disturbance(name, kind)
        disturbances = dict(self.disturbances or {})
        if disturbances and self.prior == "channels":
            raise LodekitError("disturbances need prior='latent'; a prior on the channels has no finite state")
        if disturbances and len(disturbances) + len(self.inputs or {}) == len(system.plain_channels):
            raise LodekitError("all channels are inputs or disturbances; expected at least one that responds to them")
        return disturbances

    def parse_kernels(self, system: System) -> tuple[Kernel, ...]:
        """Return the kernel of each free function of a system, in order; raise if their number is wrong."""
        count = system.free_functions
        if not isinstance(self.latent, str | Sequence):
            raise LodekitError(f"expected latent as a text or a list of texts, got {type(self.latent).__name__}")
        # One name is read even if there are no free functions.
        kernels = [parse_kernel(name) for name in ([self.latent] if isinstance(self.latent, str) else self.latent)]
        kernels *= count if isinstance(self.latent, str) else 1
        if len(kernels) != count:
            raise LodekitError(f"expected one latent for each of the {count} free functions, got {len(kernels)}")
        return tuple(kernels)

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments by name."""
        return asdict(self)


def _iterate_channels(system: System, argument: str, kinds: object, example: str) -> Iterator[tuple[str, str]]:
    """Yield channels with their kinds, as given in an argument; raise if it is invalid, or a name is not a channel."""
    if kinds is not None and not isinstance(kinds, Mapping):
        raise LodekitError(f"expected {argument} as a dict of channels, such as {example}, got {type(kinds).__name__}")
    for name, kind in (kinds or {}).items():
        if name not in system.plain_channels:
            expected = ", ".join(system.plain_channels)
            raise LodekitError(
                f"{argument} names {name!r}, which is not a channel; expected one of: {expected}, or add {name} to "
                "an equation"
            )
        if not isinstance(kind, str):
            raise LodekitError(
                f"expected {argument}= with the kind of each channel, such as {example}, got {type(kind).__name__} for "
                f'{name}; pass samples to fit: fit(t, {{"{name}": {name}, ...}})'
            )
        yield name, kind


def resolve_parameter_value(system: System, name: str, values: Mapping[str, float]) -> float:
    """Return the value of a parameter: the given one, or the fixed or start value of the system.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(start=2)})
    >>> resolve_parameter_value(system, "a", {}), resolve_parameter_value(system, "a", {"a": 3.0})
    (2.0, 3.0)
    """
    own = system.parameters[name]
    found = next((value for value in (values.get(name), own.fixed, own.start) if value is not None), None)
    if found is None:
        raise LodekitError(f"expected a value for the parameter {name!r}; try values={{'{name}': 1.0}}")
    return float(found)
