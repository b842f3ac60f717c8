"""Disturbances: random processes that drive the equations, as an exact state space.

From rest at the start of a record, ``x' = F x + G w``, and an observable is ``X x + W_0 w + W_1 w' + ...``. The
matrices are computed in the field of the parameters, so cancellation of w is detected exactly: white noise has no
pointwise values, and observables that contain it are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.realization import ScalarMatrix, observable_rows
from lodekit.errors import EquationError, LodekitError
from lodekit.prior.compile import CompiledObservables, ScalarFunctions, split_table
from lodekit.prior.kernels import MAX_MATERN_ORDER, Kernel, parse_kernel
from lodekit.support.arguments import Array
from lodekit.system.state_space import StateSpace
from lodekit.system.system import System

#: Matrices of a state space driven by disturbances, or their derivatives in the parameters, in the user's units: F,
#: (..., s, s), G, (..., s, d), H, from states to observables, (..., o, s), and D, from disturbances and their
#: derivatives, lowest order first, to observables, (..., k, o, d).
DisturbanceMatrices = tuple[Array, Array, Array, Array]
_Value = TypeVar("_Value")
#: The kind of a disturbance that has no values.
WHITE_NOISE = "white"
#: Stands for any kind in the algebra; a response contains at most first derivatives of a disturbance.
_PLACEHOLDER_KERNEL = "matern-3/2"


def require_disturbances(value: _Value | None) -> _Value:
    """Return a value that exists if there are disturbances; raise otherwise."""
    if value is None:
        raise LodekitError("expected a system with disturbances, got one without; this should not happen")
    return value


def parse_disturbance(name: str, kind: object) -> Kernel | None:
    """Return the covariance of a disturbance, None for white noise; raise if it has no finite state.

    Examples
    --------
    >>> parse_disturbance("w", "matern-3/2").name
    'matern-3/2'
    >>> parse_disturbance("w", "white") is None
    True
    """
    if kind == WHITE_NOISE:
        return None
    limit = 2 * MAX_MATERN_ORDER + 1
    expected = f"expected 'white' or 'matern-p/2' with odd p up to {limit} for the disturbance {name}"
    if kind == "se":
        raise LodekitError(
            f"{expected}, got 'se', which has no finite state; leave {name} out of the disturbances: a channel without "
            "a role has that smooth covariance already"
        )
    try:
        kernel = parse_kernel(str(kind))
    except LodekitError:
        raise LodekitError(f"{expected}, such as 'matern-3/2'; got {kind!r}") from None
    if kernel.state_space(1.0) is None or kernel.smoothness > MAX_MATERN_ORDER:
        raise LodekitError(f"{expected}, got {kind!r}, which is too smooth to have a state of that size")
    return kernel


@dataclass(frozen=True)
class CompiledDisturbances:
    """Observables of a system driven by disturbances, compiled to floats.

    names: The disturbances.
    kernels: Their covariances; None for white noise.
    table: All scalars.
    shapes: Shapes of F, G, H and D.
    states: The states as observables of the modes, which are the responses to initial states; None if there are free
        functions, so that the states do not determine the channels.
    """

    names: tuple[str, ...]
    kernels: tuple[Kernel | None, ...]
    table: ScalarFunctions
    shapes: tuple[tuple[int, ...], ...]
    states: CompiledObservables | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each disturbance, in the user's notation."""
        return tuple(WHITE_NOISE if latent is None else latent.name for latent in self.kernels)

    @property
    def coloured_index(self) -> tuple[int, ...]:
        """The indices of the disturbances with a lengthscale."""
        return tuple(number for number, latent in enumerate(self.kernels) if latent is not None)

    def split(self, table: Array) -> DisturbanceMatrices:
        """Return F, G, H and D from the values of the table, or from their derivatives.

        Shapes: table (..., t).
        """
        F, G, H, D = split_table(np, table, self.shapes)
        return F, G, H, D


def realize_disturbance_response(system: System, names: Iterable[str]) -> StateSpace:
    """Return the exact state space of the response to disturbances of any kind."""
    return system.state_space((), disturbances=dict.fromkeys(names, _PLACEHOLDER_KERNEL))


def compile_disturbances(
    system: System, operators: OperatorMatrix, texts: Sequence[str], kinds: Mapping[str, str]
) -> CompiledDisturbances:
    """Return the response of observables to disturbances, compiled to floats."""
    latents = tuple(parse_disturbance(name, kind) for name, kind in kinds.items())
    space = realize_disturbance_response(system, kinds)
    order = [space.inputs.index(name) for name in kinds]
    F, H = ([list(row) for row in space.exact[name]] for name in ("A", "C"))
    G, D, D1 = ([[row[j] for j in order] for row in space.exact[name]] for name in ("B", "D", "D1"))
    columns = [system.channels.index(name) for name in space.outputs]
    own = [system.channels.index(name) for name in kinds]
    zero, rows, direct = space.ring.rational(0), [], []
    for i, text in enumerate(texts):
        entries = [operators.coefficients(i, j) for j in columns]
        X, W = observable_rows(entries, [F, G, H, D, D1], zero)
        for w, j in enumerate(own):
            for k, value in enumerate(operators.coefficients(i, j)):
                W += [[zero] * len(own) for _ in range(k + 1 - len(W))]
                W[k][w] = W[k][w] + value
        while W and not any(W[-1]):
            W.pop()
        _check_derivative_exists(text, W, tuple(kinds), latents)
        rows.append(X)
        direct.append(W)
    highest = max(map(len, direct), default=0)
    padded = [[W[k] if k < len(W) else [zero] * len(own) for W in direct] for k in range(highest)]
    scalars = [value for matrix in (F, G, rows, *padded) for row in matrix for value in row]
    count, size = len(texts), len(F)
    shapes = ((size, size), (size, len(own)), (count, size), (highest, count, len(own)))
    return CompiledDisturbances(tuple(kinds), latents, ScalarFunctions(space.ring, scalars), shapes)


def _check_derivative_exists(
    text: str, W: ScalarMatrix, names: Sequence[str], kernels: Sequence[Kernel | None]
) -> None:
    """Raise if an observable contains a derivative that a disturbance does not have."""
    for number, (name, latent) in enumerate(zip(names, kernels, strict=True)):
        order = max((k for k, row in enumerate(W) if row[number]), default=-1)
        if latent is None and order >= 0:
            what = name + "'" * order
            raise EquationError(
                f"{name} is white noise, which has no values, only integrals over time: {text} "
                + (f"contains {what}, and would be infinite" if text != name else "cannot be measured or predicted")
                + "; use channels that do not contain it, or declare it as coloured noise, such as "
                f"disturbances={{{name!r}: 'matern-3/2'}}"
            )
        if latent is not None and order > latent.smoothness:
            raise EquationError(
                f"{text} contains {name}{chr(39) * order}, which a {latent.name!r} disturbance does not have; take "
                f"'matern-{2 * order + 1}/2' for {name}, or smoother"
            )


def find_channels_without_values(system: System, kinds: Mapping[str, str]) -> list[str]:
    """Return the channels without values, in order: white noise, and channels with it or with a missing derivative.

    Examples
    --------
    >>> import lodekit as lk
    >>> find_channels_without_values(lk.System("x' = -a*x + q; q = 2*w", parameters=["a"]), {"w": "white"})
    ['q', 'w']
    """
    latents = {name: parse_disturbance(name, kind) for name, kind in kinds.items()}
    highest = {name: -1 if latent is None else latent.smoothness for name, latent in latents.items()}
    valueless = {name for name, order in highest.items() if order < 0}
    space = realize_disturbance_response(system, kinds)
    for order, key in enumerate(("D", "D1")):
        for output, row in zip(space.outputs, space.exact[key], strict=True):
            if any(value and order > highest[name] for name, value in zip(space.inputs, row, strict=True)):
                valueless.add(output)
    return [name for name in system.channels if name in valueless]


def verify_disturbance_response(system: System, kinds: Mapping[str, str]) -> str:
    """Check exactly that the response to disturbances, if any, solves the equations; return this as text or raise.

    Every equation is an observable of ``x' = F x + G w``: its rows on the states and on all derivatives of w vanish
    identically in the parameters.

    Examples
    --------
    >>> import lodekit as lk
    >>> verify_disturbance_response(lk.System("x' = -a*x + w", parameters=["a"]), {"w": "white"})
    "A f = 0 along x' = F x + G w, f = H x + D w + D1 w', for all functions w"
    >>> verify_disturbance_response(lk.System("x'' = -a*x - b*x'", parameters=["a", "b"]), {})
    "A f = 0 along x' = F x, f = H x"
    """
    names = [f"equation {i}" for i, _ in enumerate(system.equations)]
    compiled = compile_disturbances(system, system.operator, names, kinds)
    _, _, H, D = compiled.split(compiled.table.nonzero_mask)
    if H.any() or D.any():
        raise LodekitError("the response to disturbances does not solve the equations; this should not happen")
    if compiled.shapes[0][0] != system.states and not kinds:
        raise LodekitError("the state space does not have all solutions of the equations; this should not happen")
    return "A f = 0 along x' = F x" + (" + G w, f = H x + D w + D1 w', for all functions w" if kinds else ", f = H x")
