"""What the steps of the page work with: the session, and all that follows from it, which a companion computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.studio.companion import LIMIT
from lodekit.studio.recording import Match, Recording
from lodekit.studio.saving import LARGEST, check_session, safe_name, weigh_session
from lodekit.studio.session import Entry, Session
from lodekit.studio.shelf import Room
from lodekit.studio.simulating import Wish
from lodekit.studio.troubles import say_trouble
from lodekit.studio.values import NO_EQUATIONS, Outline, Picture, Sample, Text, Understanding
from lodekit.studio.windows import keep_apart, make_room
from lodekit.studio.words import Algebra, Analysis
from lodekit.studio.work import Workshop

__all__ = ["Desk"]

#: Seconds that reading a file may take.
_READING = 120.0


class Desk:
    """A session at work.

    Parameters
    ----------
    room : Room
        Where it is kept.
    workshop : Workshop
        Where work is done.
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
        return say_trouble(raised, self.room.folder)

    def ask(self, name: str, *arguments: Any, limit: float = LIMIT) -> Any:
        """Return what a companion answers; raise what went wrong, in words.

        Parameters
        ----------
        name : str
            Of a function in `lodekit.studio.replies`.
        *arguments
            Plain values.
        limit : float
            Seconds that it may take.
        """
        self.room.companion = self.workshop.company.choose(self.room.companion)
        return self.room.companion.ask(name, *arguments, limit=limit)

    # The system.

    @property
    def reading(self) -> Understanding:
        """What the equations were understood as."""
        text = (self.session.equations, self.session.declared)
        try:
            found: Understanding = self.room.keep("reading", text, lambda: self.ask("understand", text))
        except LodekitError as problem:
            return Understanding(trouble=self.say(problem))
        if found.outline is not None:
            self.room.keep("understood", text, lambda: (text, found))
        return found

    @property
    def text(self) -> Text:
        """The equations that were understood last, with the parameters that were declared; raise without any."""
        understood = self._understood
        if understood is None:
            raise LodekitError(NO_EQUATIONS)
        return understood[0]

    @property
    def _understood(self) -> tuple[Text, Understanding] | None:
        # What is typed now, where it is understood, is what was understood last.
        _ = self.reading
        found: tuple[Text, Understanding] | None = self.room.last("understood")
        return found

    @property
    def system(self) -> Outline | None:
        """The system, or the last one that was understood; None where there was none yet."""
        return None if self._understood is None else self._understood[1].outline

    @property
    def analysis(self) -> Analysis | None:
        """What the equations imply; None where they are not understood."""
        return self.reading.analysis

    @property
    def signature(self) -> object:
        """What the steps after the first depend on: the equations and the names of the parameters."""
        return self.system

    @property
    def samples(self) -> dict[str, Sample]:
        """The examples of the catalog, by name."""
        found: dict[str, Sample] = self.room.keep("samples", None, lambda: self.ask("list_samples"))
        return found

    @property
    def example(self) -> Sample | None:
        """The example that the session began with, as long as its equations are unchanged."""
        found = self.samples.get(self.session.example)
        if found is None or self.system is None or self.system.equations != found.outline.equations:
            return None
        return found

    def take_example(self, name: str) -> None:
        """Begin with an example of the catalog, by its name; data and fits stay."""
        sample = self.samples[name]
        for each, parameter in sample.parameters.items():
            self.room.session = self.session.with_entry(Entry.of(each, parameter, sample.values.get(each)))
        self.change(
            equations="\n".join(sample.outline.equations),
            declared=", ".join(sample.parameters),
            example=name,
            edition=self.session.edition + 1,
            revision=self.session.revision + 1,
        )

    def values(self) -> dict[str, float]:
        """Return where the sliders of the parameters stand."""
        return self.session.values(self.system.parameters if self.system else ())

    def exponents(self, known: tuple[str, ...]) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
        """Return poles where channels are `known`, and modes that nothing can influence, where the sliders stand."""
        text, values = self.text, self.values()
        found: tuple[tuple[complex, ...], tuple[complex, ...]] = self.room.keep(
            "exponents", (text, known, tuple(values.items())), lambda: self.ask("locate_exponents", text, known, values)
        )
        return found

    def proof(self) -> Algebra:
        """Return the Smith form, and what was proved."""
        text = self.text
        found: Algebra = self.room.keep("proof", text, lambda: self.ask("show_proof", text))
        return found

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
        self.room.trouble.pop("data", None)
        self.change(
            file=plain,
            is_simulated=is_simulated,
            assignments=(),
            dt=None,
            window=Session().window,
            held_out=None,
            record="",
            truth={},
            truth_of="",
            revision=self.session.revision + 1,
        )

    def propose(self) -> None:
        """Take what is proposed for the data file, where nobody has written equations yet."""
        own = self.session
        if own.equations.strip() or not own.file:
            return
        try:
            equations, about, columns = self.ask("propose", self.room.folder / own.file, limit=_READING)
        except LodekitError:
            # What is wrong with the file is said where it is shown.
            return
        if not equations:
            return
        for name, known in about.items():
            self.room.session = self.session.with_entry(Entry(name, is_positive="positive" in known))
        self.change(
            equations=equations, declared=", ".join(about), assignments=columns, edition=self.session.edition + 1
        )

    def simulate(self, wish: Wish) -> None:
        """Take simulated data, of the example or of the equations at the values of the sliders."""
        text, example = self.text, self.example
        values = self.values() if example is None else dict(example.values)
        made = self.ask("simulate_data", wish, text, values, "" if example is None else example.name)
        self.take_file("simulated.csv", made.encode(), is_simulated=True)
        self.change(truth=values, truth_of="\n".join(self.system.equations if self.system else ()))

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
            "recording",
            (self._stamp(), own.dt),
            lambda: self.ask("open_file", self.room.folder / own.file, own.dt, limit=_READING),
        )
        return found

    @property
    def matches(self) -> list[Match]:
        """What each channel is matched with; none without data or system."""
        if self.recording is None or self.system is None:
            return []
        own, text = self.session, self.text
        found: list[Match] = self.room.keep(
            "matches",
            (text, self._stamp(), own.dt, own.assignments),
            lambda: self.ask("match_file", self.room.folder / own.file, own.dt, text, own.assignments, limit=_READING),
        )
        return found

    @property
    def safe_matches(self) -> list[Match]:
        """The same, or none where the data file cannot be read."""
        try:
            return self.matches
        except LodekitError:
            return []

    @property
    def possible_given(self) -> list[tuple[str, ...]]:
        """Channels that may be known over what is held out: measured, and such that something is left to predict.

        None where inputs are known already, or the data file cannot be read.
        """
        matches = self.safe_matches
        if any(item.assignment.kind for item in matches) or self.analysis is None:
            return []
        measured = {item.assignment.channel for item in matches if item.assignment.column}
        return [names for names in self.analysis.inputs if set(names) <= measured and len(names) < len(measured)]

    @property
    def given(self) -> tuple[str, ...]:
        """The channels that are known over what is held out: as chosen, or the last ones that are possible."""
        possible = self.possible_given
        if self.session.given in possible:
            return self.session.given
        return possible[-1] if possible else ()

    def settled(self) -> Session:
        """Return the session with what was found out on the way, for files and scripts."""
        return replace(self.session, given=self.given)

    # What follows from both.

    def system_file(self, *, starts: bool = False) -> str:
        """Return the text of the system file.

        Parameters
        ----------
        starts : bool
            Whether a search begins where the sliders stand.
        """
        own, text = self.session, self.text
        path = self.room.folder / own.file if own.file else None
        found: str = self.room.keep(
            f"system file {starts}",
            (text, own.entries, own.assignments, own.example, own.dt, path and self._stamp()),
            lambda: self.ask("write_system", own, text, path, starts, limit=_READING),
        )
        return found

    def picture(self) -> Picture:
        """Return the curve at the values of the sliders, drawn over the measurements."""
        own, text = self.session, self.text
        key = (text, self._stamp(), own.assignments, str(own.how), own.record, tuple(self.values().items()))
        found: Picture = self.room.keep(
            "picture", key, lambda: self.ask("draw_curve", own, text, self.room.folder / own.file, own.record)
        )
        return found

    @property
    def obstacle(self) -> str:
        """Why this session could not be opened again if it were saved now, in words; empty where it could."""
        weight = weigh_session(self.session, self.room.folder)
        # What was typed adds little to the files, and packing takes seconds: it is tried where they are large only.
        if weight < 0.9 * LARGEST:
            return ""
        key = (self.session.file, self.session.tray, weight)
        try:
            self.room.keep("packed", key, lambda: check_session(self.session, self.room.folder))
        except LodekitError as problem:
            return self.say(problem)
        return ""

    def reopen(self, content: bytes) -> None:
        """Go on with another session, from the content of its file."""
        session: Session = self.ask("open_session", content, self.room.folder, limit=_READING)
        self.room.clear()
        old = self.session
        self.room.session = replace(session, edition=old.edition + 1, revision=old.revision + 1)
