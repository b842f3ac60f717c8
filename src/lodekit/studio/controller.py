"""Operations on a session: what the steps of the page read and change, and the fits of the session."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio.data_files import ColumnMatch, DataFile, SimulationRequest
from lodekit.studio.server import ANSWER_TIMEOUT_SECONDS, ProcessPool, ServerSession, read_result
from lodekit.studio.session import (
    NO_EQUATIONS_MESSAGE,
    CatalogEntry,
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
    """Return the window of a fit without the part that is held out for validation.

    If nothing remains, it is everything before that part.

    Examples
    --------
    >>> subtract_from_fit_window((None, None), (7.0, 10.0)), subtract_from_fit_window((0.0, 10.0), (1.0, 2.0))
    ((None, 7.0), (2.0, 10.0))
    """
    low, high = window
    first = -math.inf if low is None else low
    last = math.inf if high is None else high
    if held_out[1] <= first or held_out[0] >= last:
        return window
    if held_out[0] <= first and last <= held_out[1]:
        return (None, held_out[0])
    # The longer side remains; of a window without ends it is the one before.
    if held_out[0] - first >= last - held_out[1] or (low is None and high is None):
        return (low, held_out[0])
    return (held_out[1], high)


def subtract_from_validation_window(
    held_out: tuple[float, float] | None, fitted: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the validation window without the part that is fitted; None if nothing remains."""
    if held_out is None or held_out[1] <= fitted[0] or held_out[0] >= fitted[1]:
        return held_out
    before, after = (held_out[0], fitted[0]), (fitted[1], held_out[1])
    left = max(before, after, key=lambda part: part[1] - part[0])
    return left if left[0] < left[1] else None


#: Seconds until a file is read.
READ_TIMEOUT_SECONDS = 120.0


class SessionController:
    """A session at work.

    state: The session on the server.
    pool: The processes that compute.
    """

    def __init__(self, state: ServerSession, pool: ProcessPool) -> None:
        self.state, self.pool = state, pool

    @property
    def session(self) -> StudioSession:
        """All that was typed and chosen."""
        return self.state.session

    @property
    def path(self) -> Path:
        """The path of the data file."""
        return self.state.folder / self.session.file

    def change(self, **changes: Any) -> None:
        """Change what was typed and chosen."""
        self.state.session = replace(self.session, **changes)

    def error_message(self, error: Exception) -> str:
        """Return a message for users, without any path of this machine."""
        return user_message(error, self.state.folder)

    def call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return the answer of a process to a request; raise a LodekitError with a message for users."""
        self.state.compute_process = self.pool.choose(self.state.compute_process)
        return self.state.compute_process.call(name, *arguments, timeout=timeout)

    def _cached_call(
        self, cache_name: str, key: object, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS
    ) -> Any:
        """Return the answer to a request, which is repeated only if the key has changed."""
        return self.state.get_or_compute(cache_name, key, lambda: self.call(name, *arguments, timeout=timeout))

    # The system.

    @property
    def parsed(self) -> ParsedEquations:
        """The equations as they were parsed."""
        text = (self.session.equations, self.session.declared)
        try:
            parsed: ParsedEquations = self._cached_call("reading", text, "understand", text)
        except LodekitError as problem:
            return ParsedEquations(error=self.error_message(problem))
        if parsed.outline is not None:
            self.state.get_or_compute("understood", text, lambda: (text, parsed))
        return parsed

    @property
    def text(self) -> EquationText:
        """The last valid equations with the declared parameters; raise if there are none."""
        if self._last_parsed is None:
            raise LodekitError(NO_EQUATIONS_MESSAGE)
        return self._last_parsed[0]

    @property
    def _last_parsed(self) -> tuple[EquationText, ParsedEquations] | None:
        # Parsing the current text updates the cache if it is valid.
        _ = self.parsed
        return self.state.get_cached("understood")

    @property
    def system(self) -> SystemOutline | None:
        """The system, or the last valid one; None if there was none yet."""
        return None if self._last_parsed is None else self._last_parsed[1].outline

    @property
    def catalog(self) -> dict[str, CatalogEntry]:
        """The examples of the catalog, by name."""
        return self._cached_call("samples", None, "list_samples")

    @property
    def example(self) -> CatalogEntry | None:
        """The example that the session began with, as long as its equations are unchanged."""
        example = self.catalog.get(self.session.example)
        is_same = example is not None and self.system is not None and self.system.equations == example.outline.equations
        return example if is_same else None

    def set_example(self, name: str) -> None:
        """Begin with an example of the catalog, by its name; data and fits stay."""
        example, session = self.catalog[name], self.session
        for each, parameter in example.parameters.items():
            session = session.with_entry(ParameterEntry.from_parameter(each, parameter, example.values.get(each)))
        self.state.session = replace(
            session,
            equations="\n".join(example.outline.equations),
            declared=", ".join(example.parameters),
            example=name,
            edition=session.edition + 1,
            revision=session.revision + 1,
        )

    def values(self) -> dict[str, float]:
        """Return the slider values of the parameters."""
        return self.session.values(self.system.parameters if self.system else ())

    def poles_and_modes(self, known: tuple[str, ...]) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
        """Return poles for `known` channels and uncontrollable modes, at the slider values."""
        text, values = self.text, self.values()
        key = (text, known, tuple(values.items()))
        return self._cached_call("exponents", key, "locate_exponents", text, known, values)

    def proof(self) -> ProofText:
        """Return the Smith form and the proved identities."""
        return self._cached_call("proof", self.text, "show_proof", self.text)

    # The data.

    def set_file(self, name: str, content: bytes, *, is_simulated: bool = False) -> None:
        """Use a data file; windows and columns of an earlier one are dropped."""
        plain = safe_name(name)
        write_atomically(self.state.folder / plain, content)
        self.state.errors.pop("data", None)
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
        """Use the proposed equations for the data file if none were written yet."""
        if self.session.equations.strip() or not self.session.file:
            return
        try:
            equations, definitions, columns = self.call("propose", self.path, timeout=READ_TIMEOUT_SECONDS)
        except LodekitError:
            # Errors in the file are reported where it is shown.
            return
        if equations:
            session = self.session
            for name, definition in definitions.items():
                session = session.with_entry(ParameterEntry(name, is_positive="positive" in definition))
            declared, edition = ", ".join(definitions), session.edition + 1
            self.state.session = replace(
                session, equations=equations, declared=declared, assignments=columns, edition=edition
            )

    def simulate(self, request: SimulationRequest) -> None:
        """Use simulated data, of the example or of the equations at the slider values."""
        text, example = self.text, self.example
        values = self.values() if example is None else dict(example.values)
        csv = self.call("simulate_data", request, text, values, "" if example is None else example.name)
        self.set_file("simulated.csv", csv.encode(), is_simulated=True)
        self.change(truth=values, truth_of="\n".join(self.system.equations if self.system else ()))

    def set_window(self, first: float, last: float, *, for_validation: bool) -> None:
        """Select a window of the record for the fit or for validation; the other window is reduced if they overlap."""
        low, high = min(first, last), max(first, last)
        if not low < high:
            if for_validation:
                self.change(held_out=None)
        elif for_validation:
            self.change(held_out=(low, high), window=subtract_from_fit_window(self.session.window, (low, high)))
        else:
            held_out = subtract_from_validation_window(self.session.held_out, (low, high))
            self.change(window=(low, high), held_out=held_out)

    def _file_version(self) -> object:
        """Return a key that changes with the content of the data file."""
        status = self.path.stat()
        return self.path.name, status.st_mtime_ns, status.st_size

    @property
    def data_file(self) -> DataFile | None:
        """The contents of the data file; None if there is none."""
        dt = self.session.dt
        if not self.session.file:
            return None
        key = (self._file_version(), dt)
        return self._cached_call("recording", key, "open_file", self.path, dt, timeout=READ_TIMEOUT_SECONDS)

    @property
    def matches(self) -> list[ColumnMatch]:
        """The column of each channel; none without data or system."""
        if self.data_file is None or self.system is None:
            return []
        text, dt, assignments = self.text, self.session.dt, self.session.assignments
        key, arguments = (text, self._file_version(), dt, assignments), (self.path, dt, text, assignments)
        return self._cached_call("matches", key, "match_file", *arguments, timeout=READ_TIMEOUT_SECONDS)

    @property
    def matches_or_empty(self) -> list[ColumnMatch]:
        """The column of each channel; none if the data file cannot be read."""
        try:
            return self.matches
        except LodekitError:
            return []

    @property
    def possible_given(self) -> list[tuple[str, ...]]:
        """Sets of measured channels that may be known over the held-out part, leaving something to predict.

        None if inputs are known already, or the data file cannot be read.
        """
        matches, analysis = self.matches_or_empty, self.parsed.analysis
        if any(item.assignment.kind for item in matches) or analysis is None:
            return []
        measured = {item.assignment.channel for item in matches if item.assignment.column}
        return [names for names in analysis.inputs if set(names) <= measured and len(names) < len(measured)]

    @property
    def given(self) -> tuple[str, ...]:
        """The channels that are known over the held-out part: as chosen, or the last possible ones."""
        possible = self.possible_given
        return self.session.given if self.session.given in possible else possible[-1] if possible else ()

    def resolved_session(self) -> StudioSession:
        """Return the session with automatic choices resolved, for files and scripts."""
        return replace(self.session, given=self.given)

    # What follows from both.

    def system_file(self, *, starts: bool = False) -> str:
        """Return the text of the system file."""
        own, text = self.session, self.text
        path = self.path if own.file else None
        key = (text, own.entries, own.assignments, own.example, own.dt, path and self._file_version())
        arguments = (own, text, path, starts)
        return self._cached_call(f"system file {starts}", key, "write_system", *arguments, timeout=READ_TIMEOUT_SECONDS)

    def curve_image(self) -> tuple[str, float]:
        """Return the curve at the slider values over the measurements as SVG, and the log evidence there."""
        own, text = self.session, self.text
        data = (self._file_version(), own.assignments, str(own.fit_options), own.record)
        key = (text, *data, tuple(self.values().items()))
        return self._cached_call("picture", key, "draw_curve", own, text, self.path, own.record)

    @property
    def save_error(self) -> str:
        """Why this session could not be opened again if it were saved now; empty if it could."""
        size = session_size(self.session, self.state.folder)
        # What was typed adds little to the files, and packing takes seconds: it is tried only if they are large.
        if size >= 0.9 * MAX_UPLOAD_BYTES:
            check = partial(check_session_can_be_reopened, self.session, self.state.folder)
            try:
                self.state.get_or_compute("packed", (self.session.file, self.session.tray, size), check)
            except LodekitError as problem:
                return self.error_message(problem)
        return ""

    def reopen(self, content: bytes) -> None:
        """Continue with another session, from the content of its file."""
        session: StudioSession = self.call("open_session", content, self.state.folder, timeout=READ_TIMEOUT_SECONDS)
        self.state.clear()
        old = self.session
        self.state.session = replace(session, edition=old.edition + 1, revision=old.revision + 1)

    def remove_fit(self, name: str) -> None:
        """Remove a fit from the session, and its files."""
        self.change(tray=tuple(each for each in self.session.tray if each != name))
        shutil.rmtree(self.state.folder / name, ignore_errors=True)


def start_fit(controller: SessionController, *, starts: bool = False) -> None:
    """Start a fit."""
    own, state = controller.resolved_session(), controller.state
    text = controller.system_file(starts=starts)
    number = 1 + max((int(name.partition("-")[2]) for name in own.tray), default=0)
    folder = state.folder / f"fit-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_atomically(folder / SYSTEM_FILE, text)
    shutil.copyfile(state.folder / own.file, folder / own.file)
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
    state.task = controller.pool.start(folder, wanted)


def start_fit_or_report(controller: SessionController, *, starts: bool = False) -> None:
    """Start a fit, or keep the message why it cannot start."""
    controller.state.errors.pop("fit", None)
    try:
        start_fit(controller, starts=starts)
    except LodekitError as problem:
        controller.state.errors["fit"] = controller.error_message(problem)


def start_export(controller: SessionController, name: str, *, figures: bool) -> None:
    """Start to write the report, the predictions and the figures of a fit."""
    fit = read_fit_result(controller, name)
    request = {"source": fit["source"], "notes": fit["notes"], "figures": figures, "command": fit.get("command", "")}
    start_subtask(controller, name, "files", task="deliver", **request)


def start_subtask(controller: SessionController, name: str, subfolder: str, **request: Any) -> None:
    """Start a task on the saved model of a fit, in a folder of its own."""
    folder = controller.state.folder / name / subfolder
    folder.mkdir(exist_ok=True)
    shutil.copyfile(folder.parent / MODEL_FILE, folder / MODEL_FILE)
    try:
        controller.state.task = controller.pool.start(folder, request)
    except LodekitError as problem:
        controller.state.errors[request["task"]] = controller.error_message(problem)


def collect_task(controller: SessionController) -> bool:
    """Process the result of the task if it has ended; return whether it has."""
    state, job = controller.state, controller.state.task
    if job is None or job.is_running:
        return False
    state.task = None
    result = job.result()
    state.errors.pop(job.task, None)
    if "trouble" in result:
        state.errors[job.task] = str(result["trouble"])
    elif job.task == "fit":
        controller.change(tray=(*controller.session.tray, job.folder.name))
        for parameter, estimate in result["parameters"].items():
            entry = controller.session.entry(parameter)
            if not entry.is_fixed:
                state.session = controller.session.with_entry(replace(entry, value=float(estimate["value"])))
        controller.change(revision=controller.session.revision + 1)
    return True


def read_fit_result(controller: SessionController, name: str, subfolder: str = "") -> dict[str, Any]:
    """Return the result of a fit; empty if there is none."""
    folder = controller.state.folder / name / subfolder
    if not (folder / RESULT_FILE).exists():
        return {}
    key = (name, subfolder, (folder / RESULT_FILE).stat().st_mtime_ns)
    return controller.state.get_or_compute(f"result {name} {subfolder}", key, lambda: read_result(folder))
