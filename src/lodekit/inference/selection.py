"""The choice of an engine for a task, with its reason. `ENGINES` is the only list of engines."""

from __future__ import annotations

from dataclasses import dataclass

from lodekit.errors import LodekitError
from lodekit.inference.dense import DenseEngine
from lodekit.inference.engine import EngineFactory, EngineTask
from lodekit.inference.kalman import KalmanEngine
from lodekit.inference.modal import ModalEngine
from lodekit.inference.spectral import SpectralEngine

#: All engines, by the names that users write.
ENGINES: dict[str, EngineFactory] = {
    factory.name: factory for factory in (DenseEngine, SpectralEngine, ModalEngine, KalmanEngine)
}


@dataclass(frozen=True)
class EngineChoice:
    """The chosen kind of engine, and why it was chosen.

    factory: The kind of engine.
    reason: The reason, printed after the name of the engine.
    is_automatic: Whether the engine was chosen automatically.
    """

    factory: EngineFactory
    reason: str
    is_automatic: bool = False

    @property
    def name(self) -> str:
        """The name of the engine, as users write it."""
        return self.factory.name

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def check_engine_name(engine: object) -> None:
    """Raise if no engine has this name; the message lists all names."""
    names = ["auto", *ENGINES]
    # Arrays would be compared entry by entry.
    if not isinstance(engine, str) or engine not in names:
        listed = ", ".join(map(repr, names[:-1])) + f" or {names[-1]!r}"
        raise LodekitError(f"expected engine={listed}, got {engine!r}")


def choose_engine(engine: str, task: EngineTask) -> EngineChoice:
    """Return the engine for a task: the requested one, or the cheapest one that can be used.

    Examples
    --------
    >>> str(choose_engine("auto", EngineTask(size=75, latents=())))
    'dense: 75 measurements; exact, and fast up to 200'
    """
    check_engine_name(engine)
    refusals = find_refusals(task)
    able = [kind for name, kind in ENGINES.items() if not refusals[name]]
    if engine != "auto":
        if reason := refusals[engine]:
            names = " or ".join(repr(kind.name) for kind in able)
            if able and "use engine=" not in reason:
                reason += f"{', or' if ';' in reason else ';'} use engine='auto' or {names}"
            raise LodekitError(f"engine={engine!r} cannot be used: {reason}")
        return EngineChoice(ENGINES[engine], _describe_choice(ENGINES[engine], task, "chosen by you"))
    if not able and task.has_disturbances:
        # Only one engine accepts disturbances; its advice is the relevant one.
        raise LodekitError(f"disturbances are processes with states, and {state_space_rejection(task)}")
    if not able:
        reasons = "; ".join(f"{name} not, because {reason}" for name, reason in refusals.items())
        raise LodekitError(f"no engine supports this: {reasons}")
    best = min(able, key=lambda kind: kind.cost(task))
    cheaper = [name for name, kind in ENGINES.items() if refusals[name] and kind.cost(task) < best.cost(task)]
    # The advice after the semicolon is not needed here.
    reasons_against = [refusals[name].partition(";")[0] for name in cheaper]
    reason = "; ".join(dict.fromkeys(reasons_against)) or best.selection_reason(task)
    return EngineChoice(best, _describe_choice(best, task, reason), is_automatic=True)


def find_refusals(task: EngineTask) -> dict[str, str]:
    """Return for each engine why it cannot be used for a task, and what to do; an empty text if it can."""
    without = "disturbances are processes with states; use engine='markov'" if task.has_disturbances else ""
    pairs = ENGINES.items()
    return {name: (without if not kind.has_states else "") or kind.rejection_reason(task) for name, kind in pairs}


def state_space_rejection(task: EngineTask) -> str:
    """Return why a model has no finite-dimensional state space, and what to do; empty if it has one."""
    return next(factory for factory in ENGINES.values() if factory.has_states).rejection_reason(task)


def _describe_choice(factory: EngineFactory, task: EngineTask, reason: str) -> str:
    count = f"{task.size:,} measurement{'s' * (task.size != 1)}".replace(",", " ")
    where = f" on {task.device}" if task.device is not None and factory.uses_device else ""
    return f"{count}{where}; {reason}"
