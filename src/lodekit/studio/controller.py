"""Windows of a record: what is fitted to, and what is kept for validation; they never overlap.

What the steps of the page work with: the session, and all that follows from it, which a companion computes.

Fits of a session, and what follows from them: begun in processes of their own, collected, read, forgotten.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.data_files import ColumnMatch, DataFile, SimulationRequest
from lodekit.studio.server import ANSWER_TIMEOUT_SECONDS, ServerSession, TaskRunner, read_result
from lodekit.studio.session import (
    NO_EQUATIONS_MESSAGE,
    CatalogEntry,
    CurveImage,
    EquationAnalysis,
    EquationText,
    ParameterEntry,
    ParsedEquations,
    ProofText,
    StudioSession,
    SystemOutline,
    user_message,
)
from lodekit.studio.session_files import (
    MAX_UPLOAD_BYTES,
    SYSTEM_FILE,
    check_session_can_be_reopened,
    generate_command,
    safe_name,
    session_size,
)
from lodekit.studio.worker import RESULT_FILE
from lodekit.support.files import MODEL_FILE, write_atomically


def subtract_from_fit_window(
    window: tuple[float | None, float | None], held_out: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Return what is left of the window of a fit, where a part of it is taken for validation.

    Where nothing is left, it is all that comes before that part.

    Examples
    --------
    >>> subtract_from_fit_window((None, None), (7.0, 10.0)), subtract_from_fit_window((0.0, 10.0), (1.0, 2.0))
    ((None, 7.0), (2.0, 10.0))
    >>> subtract_from_fit_window((2.0, 5.0), (1.0, 6.0))
    (None, 1.0)
    """
    low, high = window
    first = -math.inf if low is None else low
    last = math.inf if high is None else high
    if held_out[1] <= first or held_out[0] >= last:
        return window
    if held_out[0] <= first and last <= held_out[1]:
        return (None, held_out[0])
    # The longer side stays; of a window without ends it is the one before.
    if held_out[0] - first >= last - held_out[1] or (low is None and high is None):
        return (low, held_out[0])
    return (held_out[1], high)


def subtract_from_validation_window(
    held_out: tuple[float, float] | None, fitted: tuple[float, float]
) -> tuple[float, float] | None:
    """Return what is left of the window of validation, where a part of it is fitted to; None where nothing is.

    Examples
    --------
    >>> subtract_from_validation_window((7.0, 10.0), (0.0, 8.0)), subtract_from_validation_window((7.0, 10.0), (0.0, 10.0))
    ((8.0, 10.0), None)
    """
    if held_out is None or held_out[1] <= fitted[0] or held_out[0] >= fitted[1]:
        return held_out
    before, after = (held_out[0], fitted[0]), (fitted[1], held_out[1])
    left = max(before, after, key=lambda part: part[1] - part[0])
    return left if left[0] < left[1] else None


#: Seconds that reading a file may take.
READ_TIMEOUT_SECONDS = 120.0


class SessionController:
    """A session at work.

    server_session: Where it is kept.
    task_runner: Where work is done.
    """

    def __init__(self, server_session: ServerSession, task_runner: TaskRunner) -> None:
        self.server_session, self.task_runner = server_session, task_runner

    @property
    def session(self) -> StudioSession:
        """All that was typed and chosen."""
        return self.server_session.session

    def change(self, **changes: Any) -> None:
        """Change what was typed and chosen."""
        self.server_session.session = replace(self.session, **changes)

    def error_message(self, error: Exception) -> str:
        """Return what went wrong, in words without any path of this machine."""
        return user_message(error, self.server_session.folder)

    def call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return what a companion answers; raise what went wrong, in words."""
        self.server_session.compute_process = self.task_runner.compute_pool.choose(self.server_session.compute_process)
        return self.server_session.compute_process.call(name, *arguments, timeout=timeout)

    # The system.

    @property
    def parsed(self) -> ParsedEquations:
        """What the equations were understood as."""
        text = (self.session.equations, self.session.declared)
        try:
            found: ParsedEquations = self.server_session.get_or_compute(
                "reading", text, lambda: self.call("understand", text)
            )
        except LodekitError as problem:
            return ParsedEquations(error=self.error_message(problem))
        if found.outline is not None:
            self.server_session.get_or_compute("understood", text, lambda: (text, found))
        return found

    @property
    def text(self) -> EquationText:
        """The equations that were understood last, with the parameters that were declared; raise without any."""
        understood = self._last_parsed
        if understood is None:
            raise LodekitError(NO_EQUATIONS_MESSAGE)
        return understood[0]

    @property
    def _last_parsed(self) -> tuple[EquationText, ParsedEquations] | None:
        # What is typed now, where it is understood, is what was understood last.
        _ = self.parsed
        found: tuple[EquationText, ParsedEquations] | None = self.server_session.get_cached("understood")
        return found

    @property
    def system(self) -> SystemOutline | None:
        """The system, or the last one that was understood; None where there was none yet."""
        return None if self._last_parsed is None else self._last_parsed[1].outline

    @property
    def analysis(self) -> EquationAnalysis | None:
        """What the equations imply; None where they are not understood."""
        return self.parsed.analysis

    @property
    def signature(self) -> object:
        """What the steps after the first depend on: the equations and the names of the parameters."""
        return self.system

    @property
    def catalog(self) -> dict[str, CatalogEntry]:
        """The examples of the catalog, by name."""
        found: dict[str, CatalogEntry] = self.server_session.get_or_compute(
            "samples", None, lambda: self.call("list_samples")
        )
        return found

    @property
    def example(self) -> CatalogEntry | None:
        """The example that the session began with, as long as its equations are unchanged."""
        found = self.catalog.get(self.session.example)
        if found is None or self.system is None or self.system.equations != found.outline.equations:
            return None
        return found

    def set_example(self, name: str) -> None:
        """Begin with an example of the catalog, by its name; data and fits stay."""
        sample = self.catalog[name]
        for each, parameter in sample.parameters.items():
            self.server_session.session = self.session.with_entry(
                ParameterEntry.from_parameter(each, parameter, sample.values.get(each))
            )
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

    def poles_and_modes(self, known: tuple[str, ...]) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
        """Return poles where channels are `known`, and modes that nothing can influence, where the sliders stand."""
        text, values = self.text, self.values()
        found: tuple[tuple[complex, ...], tuple[complex, ...]] = self.server_session.get_or_compute(
            "exponents",
            (text, known, tuple(values.items())),
            lambda: self.call("locate_exponents", text, known, values),
        )
        return found

    def proof(self) -> ProofText:
        """Return the Smith form, and what was proved."""
        text = self.text
        found: ProofText = self.server_session.get_or_compute("proof", text, lambda: self.call("show_proof", text))
        return found

    # The data.

    def set_file(self, name: str, content: bytes, *, is_simulated: bool = False) -> None:
        """Take a data file; windows and columns of an earlier one are forgotten."""
        plain = safe_name(name)
        write_atomically(self.server_session.folder / plain, content)
        self.server_session.errors.pop("data", None)
        self.change(
            file=plain,
            is_simulated=is_simulated,
            assignments=(),
            dt=None,
            window=StudioSession().window,
            held_out=None,
            record="",
            truth={},
            truth_of="",
            revision=self.session.revision + 1,
        )

    def apply_proposal(self) -> None:
        """Take what is proposed for the data file, where nobody has written equations yet."""
        own = self.session
        if own.equations.strip() or not own.file:
            return
        try:
            equations, about, columns = self.call(
                "propose", self.server_session.folder / own.file, timeout=READ_TIMEOUT_SECONDS
            )
        except LodekitError:
            # What is wrong with the file is said where it is shown.
            return
        if not equations:
            return
        for name, known in about.items():
            self.server_session.session = self.session.with_entry(ParameterEntry(name, is_positive="positive" in known))
        self.change(
            equations=equations, declared=", ".join(about), assignments=columns, edition=self.session.edition + 1
        )

    def simulate(self, request: SimulationRequest) -> None:
        """Take simulated data, of the example or of the equations at the values of the sliders."""
        text, example = self.text, self.example
        values = self.values() if example is None else dict(example.values)
        made = self.call("simulate_data", request, text, values, "" if example is None else example.name)
        self.set_file("simulated.csv", made.encode(), is_simulated=True)
        self.change(truth=values, truth_of="\n".join(self.system.equations if self.system else ()))

    def set_window(self, first: float, last: float, *, for_validation: bool) -> None:
        """Mark a window of the record, for the fit or for validation; the other one makes room."""
        low, high = min(first, last), max(first, last)
        if not low < high:
            if for_validation:
                self.change(held_out=None)
            return
        if for_validation:
            window = subtract_from_fit_window(self.session.window, (low, high))
            self.change(held_out=(low, high), window=window)
        else:
            self.change(
                window=(low, high), held_out=subtract_from_validation_window(self.session.held_out, (low, high))
            )

    def _file_version(self) -> object:
        """Return what tells one content of the data file from another."""
        path = self.server_session.folder / self.session.file
        state = path.stat()
        return path.name, state.st_mtime_ns, state.st_size

    @property
    def data_file(self) -> DataFile | None:
        """The data file, looked at; None where there is none."""
        own = self.session
        if not own.file:
            return None
        found: DataFile = self.server_session.get_or_compute(
            "recording",
            (self._file_version(), own.dt),
            lambda: self.call("open_file", self.server_session.folder / own.file, own.dt, timeout=READ_TIMEOUT_SECONDS),
        )
        return found

    @property
    def matches(self) -> list[ColumnMatch]:
        """What each channel is matched with; none without data or system."""
        if self.data_file is None or self.system is None:
            return []
        own, text = self.session, self.text
        found: list[ColumnMatch] = self.server_session.get_or_compute(
            "matches",
            (text, self._file_version(), own.dt, own.assignments),
            lambda: self.call(
                "match_file",
                self.server_session.folder / own.file,
                own.dt,
                text,
                own.assignments,
                timeout=READ_TIMEOUT_SECONDS,
            ),
        )
        return found

    @property
    def matches_or_empty(self) -> list[ColumnMatch]:
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
        matches = self.matches_or_empty
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

    def resolved_session(self) -> StudioSession:
        """Return the session with what was found out on the way, for files and scripts."""
        return replace(self.session, given=self.given)

    # What follows from both.

    def system_file(self, *, starts: bool = False) -> str:
        """Return the text of the system file."""
        own, text = self.session, self.text
        path = self.server_session.folder / own.file if own.file else None
        found: str = self.server_session.get_or_compute(
            f"system file {starts}",
            (text, own.entries, own.assignments, own.example, own.dt, path and self._file_version()),
            lambda: self.call("write_system", own, text, path, starts, timeout=READ_TIMEOUT_SECONDS),
        )
        return found

    def curve_image(self) -> CurveImage:
        """Return the curve at the values of the sliders, drawn over the measurements."""
        own, text = self.session, self.text
        key = (
            text,
            self._file_version(),
            own.assignments,
            str(own.fit_options),
            own.record,
            tuple(self.values().items()),
        )
        found: CurveImage = self.server_session.get_or_compute(
            "picture",
            key,
            lambda: self.call("draw_curve", own, text, self.server_session.folder / own.file, own.record),
        )
        return found

    @property
    def save_error(self) -> str:
        """Why this session could not be opened again if it were saved now, in words; empty where it could."""
        weight = session_size(self.session, self.server_session.folder)
        # What was typed adds little to the files, and packing takes seconds: it is tried where they are large only.
        if weight < 0.9 * MAX_UPLOAD_BYTES:
            return ""
        key = (self.session.file, self.session.tray, weight)
        try:
            self.server_session.get_or_compute(
                "packed", key, lambda: check_session_can_be_reopened(self.session, self.server_session.folder)
            )
        except LodekitError as problem:
            return self.error_message(problem)
        return ""

    def reopen(self, content: bytes) -> None:
        """Go on with another session, from the content of its file."""
        session: StudioSession = self.call(
            "open_session", content, self.server_session.folder, timeout=READ_TIMEOUT_SECONDS
        )
        self.server_session.clear()
        old = self.session
        self.server_session.session = replace(session, edition=old.edition + 1, revision=old.revision + 1)


def start_fit(controller: SessionController, *, starts: bool = False) -> None:
    """Begin a fit."""
    own, room = controller.resolved_session(), controller.server_session
    text = controller.system_file(starts=starts)
    number = 1 + max((int(name.partition("-")[2]) for name in own.tray), default=0)
    folder = room.folder / f"fit-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_atomically(folder / SYSTEM_FILE, text)
    shutil.copyfile(room.folder / own.file, folder / own.file)
    wanted = {
        "task": "fit",
        "data": own.file,
        "system": SYSTEM_FILE,
        "dt": own.dt,
        "window": own.window,
        "held_out": own.held_out,
        "given": own.given,
        "seed": own.choices.seed,
        "options": {name: value for name, value in own.fit_options.items() if name not in ("dt", "window")},
        "session": replace(own, tray=()).to_dict(),
        "command": generate_command(own),
    }
    room.task = controller.task_runner.start(folder, wanted)


def start_fit_or_report(controller: SessionController, *, starts: bool = False) -> None:
    """Begin a fit, or keep in words why it cannot begin."""
    controller.server_session.errors.pop("fit", None)
    try:
        start_fit(controller, starts=starts)
    except LodekitError as problem:
        controller.server_session.errors["fit"] = controller.error_message(problem)


def start_unconstrained_fit(controller: SessionController, name: str) -> None:
    """Begin a fit without the equations, beside a fit."""
    _start_subtask(controller, name, "free", {"task": "free", "seed": controller.session.choices.seed})


def start_export(controller: SessionController, name: str, *, figures: bool) -> None:
    """Begin to write the report, the predictions and the figures of a fit."""
    fit = read_fit_result(controller, name)
    wanted = {"task": "deliver", "source": fit["source"], "notes": fit["notes"], "figures": figures}
    _start_subtask(controller, name, "files", {**wanted, "command": fit.get("command", "")})


def _start_subtask(controller: SessionController, name: str, subfolder: str, request: dict[str, Any]) -> None:
    folder = controller.server_session.folder / name / subfolder
    folder.mkdir(exist_ok=True)
    shutil.copyfile(controller.server_session.folder / name / MODEL_FILE, folder / MODEL_FILE)
    try:
        controller.server_session.task = controller.task_runner.start(folder, request)
    except LodekitError as problem:
        controller.server_session.errors[request["task"]] = controller.error_message(problem)


def collect_task(controller: SessionController) -> bool:
    """Take what a task has left, where it has ended; return whether one has."""
    room, job = controller.server_session, controller.server_session.task
    if job is None or job.is_running:
        return False
    room.task = None
    found = job.result()
    room.errors.pop(job.task, None)
    if "trouble" in found:
        room.errors[job.task] = str(found["trouble"])
    elif job.task == "fit":
        controller.change(tray=(*controller.session.tray, job.folder.name))
        for parameter, estimate in found["parameters"].items():
            entry = controller.session.entry(parameter)
            if not entry.is_fixed:
                room.session = controller.session.with_entry(replace(entry, value=float(estimate["value"])))
        controller.change(revision=controller.session.revision + 1)
    return True


def read_fit_result(controller: SessionController, name: str, subfolder: str = "") -> dict[str, Any]:
    """Return what came of a fit; empty where nothing did."""
    folder = (
        controller.server_session.folder / name / subfolder if subfolder else controller.server_session.folder / name
    )
    if not (folder / RESULT_FILE).exists():
        return {}
    key = (name, subfolder, (folder / RESULT_FILE).stat().st_mtime_ns)
    found: dict[str, Any] = controller.server_session.get_or_compute(
        f"result {name} {subfolder}", key, lambda: read_result(folder)
    )
    return found


def remove_fit(controller: SessionController, name: str) -> None:
    """Take a fit out of the tray, and remove its files."""
    controller.change(tray=tuple(own for own in controller.session.tray if own != name))
    shutil.rmtree(controller.server_session.folder / name, ignore_errors=True)
