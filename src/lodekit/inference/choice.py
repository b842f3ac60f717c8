"""The choice of an engine for data, with its reason. `KINDS` is the only list of engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lodekit.errors import LodekitError
from lodekit.inference.dense import DenseKind
from lodekit.inference.engine import Case, Kind
from lodekit.inference.markov import MarkovKind
from lodekit.inference.modal import ModalKind
from lodekit.inference.spectral import SpectralKind

__all__ = ["KINDS", "Choice", "check_engine", "choose", "registered"]

#: All engines, by the names that users write.
KINDS: dict[str, Kind] = {kind.name: kind for kind in (DenseKind(), SpectralKind(), ModalKind(), MarkovKind())}


@dataclass(frozen=True)
class Choice:
    """The kind of engine that is used, and why.

    Parameters
    ----------
    kind : Kind
    reason : str
        What users read after its name.
    """

    kind: Kind
    reason: str

    @property
    def name(self) -> str:
        """The name of the engine, as users write it."""
        return self.kind.name

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@contextmanager
def registered(kind: Kind) -> Iterator[None]:
    """Add a kind of engine to `KINDS` for as long as a ``with`` block lasts.

    Parameters
    ----------
    kind : Kind
        Its name must be new.
    """
    if kind.name in KINDS:
        raise LodekitError(f"an engine called {kind.name!r} is there already; expected a new name")
    KINDS[kind.name] = kind
    try:
        yield
    finally:
        del KINDS[kind.name]


def check_engine(engine: object) -> None:
    """Raise where no engine has a name, and name all of them.

    Parameters
    ----------
    engine : object
        What the user gave; ``"auto"`` is fine.
    """
    names = ["auto", *KINDS]
    # Arrays would be compared entry by entry.
    if not isinstance(engine, str) or engine not in names:
        listed = ", ".join(map(repr, names[:-1])) + f" or {names[-1]!r}"
        raise LodekitError(f"expected engine={listed}, got {engine!r}")


def choose(engine: str, case: Case) -> Choice:
    """Return the engine for a case: the one that was asked for, or the cheapest that does not refuse.

    Parameters
    ----------
    engine : str
        ``"auto"``, or the name of an engine.
    case : Case
        What it is wanted for.

    Examples
    --------
    >>> str(choose("auto", Case(size=75, latents=())))
    'dense: 75 measurements; exact, and fast up to 200'
    """
    check_engine(engine)
    refusals = {name: kind.refuses(case) for name, kind in KINDS.items()}
    able = [kind for name, kind in KINDS.items() if not refusals[name]]
    if engine != "auto":
        if refusals[engine]:
            names = " or ".join(repr(kind.name) for kind in able)
            advice = f"; use engine='auto' or {names}" if able else ""
            raise LodekitError(f"engine={engine!r} cannot be used: {refusals[engine]}{advice}")
        return Choice(KINDS[engine], _describe(KINDS[engine], case, "asked for"))
    if not able and case.disturbed:
        # The only engine that takes disturbances says what to do; what others would need is beside the point.
        raise LodekitError(f"disturbances are processes with states, and {refusals['markov']}")
    if not able:
        reasons = "; ".join(f"{name} not, because {reason}" for name, reason in refusals.items())
        raise LodekitError(f"no engine can take this: {reasons}")
    best = min(able, key=lambda kind: kind.cost(case))
    cheaper = [name for name, kind in KINDS.items() if refusals[name] and kind.cost(case) < best.cost(case)]
    # What to do about a refusal stands behind a semicolon; here nothing has to be done.
    told = [refusals[name].partition(";")[0] for name in cheaper]
    return Choice(best, _describe(best, case, "; ".join(dict.fromkeys(told)) or best.reason(case)))


def _describe(kind: Kind, case: Case, reason: str) -> str:
    count = f"{case.size:,} measurement{'s' * (case.size != 1)}".replace(",", " ")
    where = f" on {case.device}" if case.device is not None and kind.uses_device else ""
    return f"{count}{where}; {reason}"
