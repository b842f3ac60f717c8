"""What the steps of the page work with: the session, and all that follows from it, made when it is asked for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.model import LODEGP
from lodekit.studio.reading import Reading, read_equations
from lodekit.studio.recording import Match, Recording, match_columns, open_recording, to_guesses
from lodekit.studio.saving import safe_name
from lodekit.studio.session import Entry, Session
from lodekit.studio.shelf import Room
from lodekit.studio.sliders import Warm, warm_up
from lodekit.studio.windows import keep_apart, make_room
from lodekit.studio.words import Analysis, analyse
from lodekit.studio.work import Workshop, hide_folder, read_result
from lodekit.studio.writing import SYSTEM, write_shell, write_system_file
from lodekit.system.catalog import Example, examples
from lodekit.system.system import System
from lodekit.workflow import MODEL

__all__ = ["Desk", "ready_examples"]


@cache
def ready_examples() -> dict[str, Example]:
    """Return the examples of the catalog, by name; they are made once."""
    return {example.name: example for example in examples()}


class Desk:
    """A session at work.

    Parameters
    ----------
    room : Room
        Where it is kept.
    workshop : Workshop
        Where long work is done.
    """

    def __init__(self, room: Room, workshop: Workshop) -> None:
        self.room, self.workshop = room, workshop

    @property
    def session(self) -> Session:
        """All that was typed and chosen."""
        return self.room.session

    def change(self, **changes: Any) -> None:
        """Change what was typed and chosen.

        Parameters
        ----------
        **changes
            Fields of the session.
        """
        self.room.session = replace(self.session, **changes)

    def say(self, raised: Exception) -> str:
        """Return what went wrong, in words without any path of this machine."""
        if isinstance(raised, LodekitError):
            return hide_folder(str(raised), self.room.folder)
        return "Something unexpected went wrong here; nothing that you typed is lost."

    # The system.

    @property
    def reading(self) -> Reading:
        """What the equations were understood as."""
        own = self.session
        found: Reading = self.room.keep(
            "reading", (own.equations, own.declared), lambda: read_equations(own.equations, own.declared)
        )
        if found.system is not None:
            self.room.keep("system", found, lambda: found.system)
        return found

    @property
    def system(self) -> System | None:
        """The system, or the last one that was understood; None where there was none yet."""
        return self.reading.system or self.room.last("system")

    @property
    def analysis(self) -> Analysis | None:
        """What the equations imply."""
        found = self.reading.system
        return None if found is None else analyse(found)

    @property
    def signature(self) -> object:
        """What the steps after the first depend on: the equations and the names of the parameters."""
        found = self.system
        return None if found is None else (found.equations, tuple(found.parameters))

    @property
    def example(self) -> Example | None:
        """The example that the session began with, as long as its equations are unchanged."""
        found = ready_examples().get(self.session.example)
        if found is None or self.system is None or tuple(self.system.equations) != tuple(found.system.equations):
            return None
        return found

    def take_example(self, example: Example) -> None:
        """Begin with an example of the catalog; data and fits stay."""
        values = {name: float(value) for name, value in example.values.items()}
        for name, parameter in example.system.parameters.items():
            self.room.session = self.session.with_entry(Entry.of(name, parameter, values.get(name)))
        self.change(
            equations="\n".join(example.system.equations),
            declared=", ".join(example.system.parameters),
            example=example.name,
            edition=self.session.edition + 1,
            revision=self.session.revision + 1,
        )

    # The data.

    def take_file(self, name: str, content: bytes, *, is_simulated: bool = False) -> None:
        """Take a data file; windows and columns of an earlier one are forgotten.

        Parameters
        ----------
        name : str
            As somebody called it.
        content : bytes
        is_simulated : bool
            Whether it was made here.
        """
        plain = safe_name(name)
        write_file(self.room.folder / plain, content)
        fresh = Session()
        self.change(
            file=plain,
            is_simulated=is_simulated,
            assignments=(),
            dt=None,
            window=fresh.window,
            held_out=None,
            truth={},
            truth_of="",
            revision=self.session.revision + 1,
        )

    def mark(self, first: float, last: float, *, for_validation: bool) -> None:
        """Mark a window of the record, for the fit or for validation; the other one makes room.

        Parameters
        ----------
        first, last : float
        for_validation : bool
        """
        low, high = min(first, last), max(first, last)
        if not low < high:
            if for_validation:
                self.change(held_out=None)
            return
        if for_validation:
            window = make_room(self.session.window, (low, high))
            self.change(held_out=(low, high), window=window)
        else:
            self.change(window=(low, high), held_out=keep_apart(self.session.held_out, (low, high)))

    def _stamp(self) -> object:
        """Return what tells one content of the data file from another."""
        path = self.room.folder / self.session.file
        state = path.stat()
        return path.name, state.st_mtime_ns, state.st_size

    @property
    def recording(self) -> Recording | None:
        """The data file, looked at; None where there is none."""
        own = self.session
        if not own.file:
            return None
        found: Recording = self.room.keep(
            "recording", (self._stamp(), own.dt), lambda: open_recording(self.room.folder / own.file, own.dt)
        )
        return found

    @property
    def matches(self) -> list[Match]:
        """What each channel is matched with; none without data or system."""
        recording, system = self.recording, self.system
        if recording is None or system is None:
            return []
        return match_columns(recording.look, system, self.session.assignments)

    @property
    def safe_matches(self) -> list[Match]:
        """The same, or none where the data file cannot be read."""
        try:
            return self.matches
        except LodekitError:
            return []

    @property
    def given(self) -> tuple[str, ...]:
        """The channels that are known over what is held out: as chosen, or the last ones that leave nothing free."""
        measured = {item.assignment.channel for item in self.matches if item.assignment.column}
        if any(item.assignment.kind for item in self.matches) or self.analysis is None:
            return ()
        usable = [names for names in self.analysis.inputs if set(names) <= measured and len(names) < len(measured)]
        if self.session.given in usable:
            return self.session.given
        return usable[-1] if usable else ()

    def settled(self) -> Session:
        """Return the session with what was found out on the way, for files and scripts."""
        return replace(self.session, given=self.given)

    # What is kept in files.

    def write_system(self, folder: Path, *, starts: bool = False) -> Path:
        """Write the system file to a folder, and return its path.

        Parameters
        ----------
        folder : Path
        starts : bool
            Whether a search begins where the sliders stand.
        """
        path = folder / SYSTEM
        write_file(path, self.system_file(starts=starts))
        return path

    def system_file(self, *, starts: bool = False) -> str:
        """Return the text of the system file.

        Parameters
        ----------
        starts : bool
            Whether a search begins where the sliders stand.
        """
        system, recording = self.system, self.recording
        if system is None:
            raise LodekitError("expected equations first, such as x' = -a*x + u")
        if recording is None:
            return write_system_file(self.session, system, starts=starts)
        guesses, mapping = to_guesses(recording.look, self.matches)
        return write_system_file(self.session, system, recording.look, guesses, mapping=mapping, starts=starts)

    # Curves and fits.

    @property
    def how(self) -> dict[str, Any]:
        """How the data file is read and the system fitted, as `lodekit.workflow.open_data` takes it."""
        own = self.session
        options = {"noise": own.choices.noise, "latent": own.choices.latent, "prior": own.choices.prior}
        return {"dt": own.dt, "window": own.window, **options}

    def warm(self) -> Warm:
        """Return the engine that curves at any values come from; all that is no parameter is a first guess."""
        own, folder = self.session, self.room.folder / "sliders"
        system = self.system
        if system is None or self.recording is None:
            raise LodekitError("expected equations and data first")
        key = (tuple(system.equations), tuple(system.parameters), self._stamp(), tuple(self.matches), str(self.how))

        def make() -> Warm:
            folder.mkdir(exist_ok=True)
            plain = replace(own, entries=())
            guesses, mapping = to_guesses(self.recording.look, self.matches)  # type: ignore[union-attr]
            text = write_system_file(plain, system, self.recording.look, guesses, mapping=mapping)  # type: ignore[union-attr]
            write_file(folder / SYSTEM, text)
            values = own.values(list(system.parameters))
            return warm_up(folder / SYSTEM, self.room.folder / own.file, values, **self.how)

        found: Warm = self.room.keep("warm", key, make)
        return found

    def begin_fit(self, *, starts: bool = False) -> None:
        """Begin a fit in a process of its own.

        Parameters
        ----------
        starts : bool
            Whether it begins where the sliders stand.
        """
        own = self.settled()
        number = 1 + max((int(name.partition("-")[2]) for name in own.tray), default=0)
        folder = self.room.folder / f"fit-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.write_system(folder, starts=starts)
        shutil.copyfile(self.room.folder / own.file, folder / own.file)
        options = {k: v for k, v in self.how.items() if k not in ("dt", "window")}
        wanted = {
            "task": "fit",
            "data": own.file,
            "system": SYSTEM,
            "dt": own.dt,
            "window": own.window,
            "held_out": own.held_out,
            "given": own.given,
            "seed": own.choices.seed,
            "options": options,
            "session": replace(own, tray=()).to_dict(),
            "command": write_shell(own).splitlines()[0],
        }
        self.room.job = self.workshop.begin(folder, wanted)

    def try_fit(self, *, starts: bool = False) -> None:
        """Begin a fit, or keep in words why it cannot begin.

        Parameters
        ----------
        starts : bool
            Whether it begins where the sliders stand.
        """
        self.room.trouble.pop("fit", None)
        try:
            self.begin_fit(starts=starts)
        except LodekitError as problem:
            self.room.trouble["fit"] = self.say(problem)

    def reopen(self, session: Session) -> None:
        """Go on with another session, whose files are in the folder already."""
        self.room.clear()
        old = self.session
        self.room.session = replace(session, edition=old.edition + 1, revision=old.revision + 1)

    def begin_free(self, name: str) -> None:
        """Begin a fit without the equations, beside a fit of this name."""
        self._beginmake_room(name, "free", {"task": "free", "seed": self.session.choices.seed})

    def begin_delivery(self, name: str, *, figures: bool) -> None:
        """Begin to write the report, the predictions and the figures of a fit.

        Parameters
        ----------
        name : str
            Of the fit.
        figures : bool
        """
        fit = self.result(name)
        wanted = {"task": "deliver", "source": fit["source"], "notes": fit["notes"], "figures": figures}
        self._beginmake_room(name, "files", {**wanted, "command": fit.get("command", "")})

    def _beginmake_room(self, name: str, place: str, wanted: dict[str, Any]) -> None:
        folder = self.room.folder / name / place
        folder.mkdir(exist_ok=True)
        shutil.copyfile(self.room.folder / name / MODEL, folder / MODEL)
        self.room.job = self.workshop.begin(folder, wanted)

    def collect(self) -> bool:
        """Take what a task has left, where it has ended; return whether one has."""
        job = self.room.job
        if job is None or job.is_running:
            return False
        self.room.job = None
        found = job.result()
        self.room.trouble.pop(job.task, None)
        if "trouble" in found:
            self.room.trouble[job.task] = hide_folder(str(found["trouble"]), self.room.folder)
        elif job.task == "fit":
            self.change(tray=(*self.session.tray, job.folder.name))
            for parameter, estimate in found["parameters"].items():
                entry = self.session.entry(parameter)
                if not entry.is_fixed:
                    self.room.session = self.session.with_entry(replace(entry, value=float(estimate["value"])))
            self.change(revision=self.session.revision + 1)
        return True

    def result(self, name: str, place: str = "") -> dict[str, Any]:
        """Return what came of a fit; empty where nothing did.

        Parameters
        ----------
        name : str
            Of the fit.
        place : str
            ``"free"`` for the fit without equations, ``"files"`` for what was written.
        """
        folder = self.room.folder / name / place if place else self.room.folder / name
        if not (folder / "result.json").exists():
            return {}
        state = (folder / "result.json").stat()
        key = (name, place, state.st_mtime_ns)
        found: dict[str, Any] = self.room.keep(f"result {name} {place}", key, lambda: read_result(folder))
        return found

    def model(self, name: str) -> LODEGP:
        """Return the model of a fit."""
        found: LODEGP = self.room.keep(f"model {name}", name, lambda: LODEGP.load(self.room.folder / name / MODEL))
        return found

    def forget(self, name: str) -> None:
        """Take a fit out of the tray, and remove its files."""
        self.change(tray=tuple(own for own in self.session.tray if own != name))
        shutil.rmtree(self.room.folder / name, ignore_errors=True)
