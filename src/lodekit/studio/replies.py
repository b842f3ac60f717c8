"""What pages ask their companions: functions of plain values, which run in a process of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.proposal import find_channels, guess_equations
from lodekit.studio.companion import answer_all
from lodekit.studio.reading import Reading, read_equations
from lodekit.studio.recording import Match, Recording, match_columns, open_recording, to_guesses
from lodekit.studio.saving import unpack_session
from lodekit.studio.session import Assignment, Session
from lodekit.studio.simulating import Wish, make_data
from lodekit.studio.sliders import Warm, warm_up
from lodekit.studio.svg import draw_curves
from lodekit.studio.values import NO_EQUATIONS, Outline, Picture, Sample, Text, Understanding
from lodekit.studio.words import Algebra, analyse, exponents_at, prove
from lodekit.studio.writing import SYSTEM, write_system_file
from lodekit.system.catalog import Example, examples
from lodekit.system.system import System

__all__ = ["ASKED", "main"]


@cache
def _catalog() -> dict[str, Example]:
    return {example.name: example for example in examples()}


@lru_cache(maxsize=32)
def _read(text: Text) -> Reading:
    return read_equations(*text)


def _system(text: Text) -> System:
    found = _read(text).system
    if found is None:
        raise LodekitError(NO_EQUATIONS)
    return found


def _outline(system: System) -> Outline:
    return Outline(tuple(system.equations), tuple(system.parameters), tuple(system.plain_channels))


def list_samples() -> dict[str, Sample]:
    """Return the examples of the catalog, by name."""
    return {
        name: Sample(
            name,
            own.story,
            _outline(own.system),
            dict(own.system.parameters),
            {key: float(value) for key, value in own.values.items()},
        )
        for name, own in _catalog().items()
    }


def understand(text: Text) -> Understanding:
    """Return what equations were understood as, and what they imply."""
    found = _read(text)
    if found.system is None:
        return Understanding(trouble=found.trouble, is_empty=found.is_empty)
    return Understanding(_outline(found.system), analyse(found.system), taken=found.taken)


def locate_exponents(
    text: Text, known: Sequence[str], values: Mapping[str, float]
) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
    """Return the poles of the response to channels that are known, and the modes that nothing can influence.

    Parameters
    ----------
    text : (str, str)
        Equations and declared parameters.
    known : sequence of str
        Channels.
    values : dict of str to float
        Of the parameters.
    """
    system = _system(text)
    return exponents_at(system, known, values) if known else (), exponents_at(system, (), values)


def show_proof(text: Text) -> Algebra:
    """Return the Smith form and all solutions of a system, with what was proved about them."""
    return prove(_system(text))


def simulate_data(wish: Wish, text: Text, values: Mapping[str, float], example: str) -> str:
    """Return simulated measurements as the text of a CSV file.

    Parameters
    ----------
    wish : Wish
    text : (str, str)
        Equations and declared parameters.
    values : dict of str to float
        Of the parameters.
    example : str
        Whose exact solution is taken; empty for a random one.
    """
    return make_data(wish, _system(text), values, _catalog().get(example))


@lru_cache(maxsize=4)
def _open(path: Path, dt: float | None, stamp: tuple[int, int]) -> Recording:
    return open_recording(path, dt)


def open_file(path: Path, dt: float | None) -> Recording:
    """Return what a data file holds, and its points.

    Parameters
    ----------
    path : Path
    dt : float or None
        The time between two lines, where there is no column of times.
    """
    state = path.stat()
    return _open(path, dt, (state.st_mtime_ns, state.st_size))


def propose(path: Path) -> tuple[str, dict[str, str], tuple[Assignment, ...]]:
    """Return what ``lodekit init`` proposes for a data file: equations, parameters, and columns that no name tells.

    Of each parameter there is what is known of it, in TOML; nothing at all where no column looks like an input.

    Parameters
    ----------
    path : Path
    """
    look = open_file(path, None).look
    guesses = find_channels(look)
    equations, about = guess_equations(guesses)
    if not equations:
        return "", {}, ()
    matched = match_columns(look, _system((equations, ", ".join(about))), ())
    told = {item.assignment for item in matched}
    wanted = (Assignment(guess.channel, guess.column.name, guess.kind) for guess in guesses)
    return equations, about, tuple(each for each in wanted if each not in told)


def match_file(path: Path, dt: float | None, text: Text, changed: Sequence[Assignment]) -> list[Match]:
    """Return what each channel is matched with.

    Parameters
    ----------
    path, dt
        Of the data file.
    text : (str, str)
        Equations and declared parameters.
    changed : sequence of Assignment
        What somebody has said.
    """
    return match_columns(open_file(path, dt).look, _system(text), changed)


def write_system(session: Session, text: Text, path: Path | None, starts: bool) -> str:
    """Return the text of the system file.

    Parameters
    ----------
    session : Session
    text : (str, str)
        Equations and declared parameters.
    path : Path or None
        Of the data file, where there is one.
    starts : bool
        Whether a search begins where the sliders stand.
    """
    system = _system(text)
    if path is None:
        return write_system_file(session, system, starts=starts)
    look = open_file(path, session.dt).look
    guesses, mapping = to_guesses(look, match_columns(look, system, session.assignments))
    return write_system_file(session, system, look, guesses, mapping=mapping, starts=starts)


#: So many engines are kept ready, for as many sessions.
_READY = 4
_warm: dict[object, Warm] = {}


def _warm_up(session: Session, text: Text, path: Path, folder: Path) -> Warm:
    """Return the engine that curves at any values come from; all that is no parameter is a first guess."""
    state = path.stat()
    key = (text, path, state.st_mtime_ns, state.st_size, session.assignments, str(session.how))
    if key not in _warm:
        if len(_warm) >= _READY:
            _warm.pop(next(iter(_warm)))
        folder.mkdir(exist_ok=True)
        write_file(folder / SYSTEM, write_system(replace(session, entries=()), text, path, starts=False))
        values = session.values(list(_system(text).parameters))
        _warm[key] = warm_up(folder / SYSTEM, path, values, **session.how)
    return _warm[key]


def draw_curve(session: Session, text: Text, path: Path, record: str) -> Picture:
    """Return the posterior mean at the values of the sliders, drawn over the measurements.

    Parameters
    ----------
    session : Session
    text : (str, str)
        Equations and declared parameters.
    path : Path
        Of the data file.
    record : str
        Which of several; empty for the first.
    """
    warm = _warm_up(session, text, path, path.parent / "sliders")
    values = session.values(list(_system(text).parameters))
    curve = warm.curve(values, record)
    part = warm.part(record)
    inputs = part.measurements.inputs
    told = ", ".join(f"{name} = {value:.6g}" for name, value in values.items())
    where = f" of record {record}" if record else ""
    words = (
        f"Posterior mean of {', '.join(curve.names)} over the measurements{where}, at {told or 'no parameters'}; "
        f"log evidence {curve.log_evidence:.3f}"
    )
    svg = draw_curves(
        curve.names,
        curve.times,
        curve.mean,
        warm.points(record),
        units=warm.units,
        words=words,
        held=[name for name, signal in inputs.items() if signal.kind == "hold"],
        known=list(inputs),
    )
    return Picture(svg, curve.log_evidence)


def open_session(content: bytes, folder: Path) -> Session:
    """Return the session in the content of a file, and write its data and its fits to a folder.

    Parameters
    ----------
    content : bytes
    folder : Path
    """
    return unpack_session(content, folder)


_FUNCTIONS = (
    propose,
    list_samples,
    understand,
    locate_exponents,
    show_proof,
    simulate_data,
    open_file,
    match_file,
    write_system,
    draw_curve,
    open_session,
)
#: What can be asked for, by name.
ASKED: dict[str, Any] = {function.__name__: function for function in _FUNCTIONS}


def main() -> None:
    """Answer questions until there are no more."""
    answer_all(ASKED, begin=_catalog)


if __name__ == "__main__":
    main()
