"""Operations on a session: what the steps of the page read and change, and the fits of the session."""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lodekit.errors import LodekitError
from lodekit.studio import session_files
from lodekit.studio.data_files import ColumnMatch, DataFile
from lodekit.studio.figures import PlotlyFigure
from lodekit.studio.server import ANSWER_TIMEOUT_SECONDS, BackgroundTask, ComputeProcess, read_result
from lodekit.studio.session import (
    NO_EQUATIONS_MESSAGE,
    CatalogEntry,
    EquationText,
    ParameterEntry,
    ParsedEquations,
    StudioSession,
    find_time_column,
    to_page_advice,
    user_message,
)
from lodekit.studio.worker import PROGRESS_FILE, REQUEST_FILE, RESULT_FILE, SYSTEM_FILE, read_fit_session
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
    ends = -math.inf if low is None else low, math.inf if high is None else high
    first, last = _longer_remainder(ends, held_out) or (-math.inf, held_out[0])
    return None if math.isinf(first) else first, None if math.isinf(last) else last


def _longer_remainder(window: tuple[float, float], removed: tuple[float, float]) -> tuple[float, float] | None:
    """Return a window without another one, or the longer of two remaining parts; None if nothing remains."""
    if removed[1] <= window[0] or removed[0] >= window[1]:
        return window
    longer = max((window[0], removed[0]), (removed[1], window[1]), key=lambda part: part[1] - part[0])
    return longer if longer[0] < longer[1] else None


TASK_LABELS = {"fit": "Fitting", "free": "Fitting without the equations", "files": "Creating report and files"}
TASK_LABELS |= {"validate": "Validating", "simulate": "Simulating"}
OUTDATED_MESSAGE = "Correct the equations in step 1 first."
#: Seconds until a file is read.
READ_TIMEOUT_SECONDS = 120.0


TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{22}")


class StudioServer:
    """The processes and the most recent sessions of a server.

    Some processes answer requests of all sessions, others run one background task each.

    max_processes: The largest number of processes that answer requests; there is one at first.
    max_tasks: The largest number of simultaneous tasks; one further process is ready for the next.
    max_sessions: The number of sessions that are kept.
    max_age_seconds: The time since the last access after which a session is removed.
    folder: Contains the files of sessions; a temporary folder by default.
    """

    def __init__(
        self,
        max_processes: int = 4,
        max_tasks: int = 4,
        max_sessions: int = 50,
        max_age_seconds: float = 12 * 3600.0,
        folder: Path | None = None,
    ) -> None:
        self.max_processes, self.max_tasks = max_processes, max_tasks
        self.max_sessions, self.max_age_seconds = max_sessions, max_age_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="lodekit-studio-")) if folder is None else folder
        self._lock = threading.RLock()
        self._processes: list[ComputeProcess] = []
        self._idle_process: ComputeProcess | None = None
        self._running: list[BackgroundTask] = []
        self._sessions: dict[str, SessionController] = {}

    def prepare(self) -> None:
        """Start a process for requests and one for the next task, unless there are some."""
        with self._lock:
            if not self._processes:
                self._processes.append(ComputeProcess())
            self._idle_process = self._idle_process or ComputeProcess()

    def choose(self, previous: ComputeProcess | None = None) -> ComputeProcess:
        """Return the process for the next request: preferably the previous one, which has the model in memory."""
        with self._lock:
            if not self._processes:
                self._processes.append(ComputeProcess())
            free = [process for process in self._processes if process.is_free]
            if previous in free:
                return previous
            if free:
                return min(free, key=lambda process: process.last_request)
            if len(self._processes) < self.max_processes and all(each.pid is not None for each in self._processes):
                # It serves later requests; waiting for its start would take longer than most answers.
                self._processes.append(ComputeProcess())
            return previous if previous in self._processes else self._processes[0]

    def start(self, folder: Path, request: Mapping[str, Any], timeout: float = 600.0) -> BackgroundTask:
        """Start a task."""
        (folder / RESULT_FILE).unlink(missing_ok=True)
        (folder / PROGRESS_FILE).unlink(missing_ok=True)
        write_atomically(folder / REQUEST_FILE, json.dumps(request))
        with self._lock:
            self._running = [task for task in self._running if task.is_running]
            if len(self._running) >= self.max_tasks:
                raise LodekitError(f"{self.max_tasks} computations are already running; try again in a moment")
            task = BackgroundTask(folder, str(request["task"]), self._idle_process or ComputeProcess(), timeout)
            self._idle_process = ComputeProcess()
            self._running.append(task)
        return task

    def open(self, token: str = "") -> SessionController:
        """Return the session of a token, or a new one with a new token if there is none."""
        with self._lock:
            session = self._sessions.pop(token, None) if TOKEN_PATTERN.fullmatch(token) else None
            if session is None:
                session = SessionController(secrets.token_urlsafe(16), self._folder / secrets.token_hex(8), self)
                session.folder.mkdir(parents=True)
            # Sessions are ordered by their last access.
            self._sessions[session.token] = session
            session.last_access = now = time.monotonic()
            sessions = list(self._sessions.values())
            old = [each for each in sessions if now - each.last_access > self.max_age_seconds]
            for each in dict.fromkeys([*old, *sessions[: max(len(sessions) - self.max_sessions, 0)]]):
                self._remove(each)
        return session

    def _remove(self, session: SessionController) -> None:
        self._sessions.pop(session.token, None)
        session.clear()
        shutil.rmtree(session.folder, ignore_errors=True)

    def close(self) -> None:
        """End all processes, and remove all sessions and their files."""
        with self._lock:
            for task in self._running:
                task.cancel()
            for process in (*self._processes, *filter(None, [self._idle_process])):
                process.close()
            self._processes, self._running, self._idle_process = [], [], None
            for session in list(self._sessions.values()):
                self._remove(session)
            shutil.rmtree(self._folder, ignore_errors=True)


class SessionController:
    """A session on the server: its choices, its folder, its task and cached results.

    token: The name of the session.
    folder: The files of this session only.
    server: The processes that compute.
    """

    def __init__(self, token: str, folder: Path, server: StudioServer) -> None:
        self.token, self.folder, self.server = token, folder, server
        self.session = StudioSession()
        self.task: BackgroundTask | None = None
        #: Several tabs may show one session.
        self.lock = threading.RLock()
        #: The process that answered last and has the model in memory.
        self.compute_process: ComputeProcess | None = None
        #: Latest error messages by step.
        self.errors: dict[str, str] = {}
        self.last_access = time.monotonic()
        #: Whether the page was shown; the file of the command line is loaded before that.
        self.is_started = False
        #: Uploads that were processed already.
        self.uploaded_ids: list[str] = []
        self._cache: dict[str, tuple[object, Any]] = {}

    def get_or_compute(self, name: str, key: object, compute: Callable[[], Any]) -> Any:
        """Return the cached value of a name, computed again if the key has changed."""
        entry = self._cache.get(name)
        if entry is None or entry[0] != key:
            try:
                entry = (key, compute())
            except LodekitError as problem:
                # A failed computation is not repeated until something changes.
                entry = (key, problem)
            self._cache[name] = entry
        if isinstance(entry[1], LodekitError):
            # Drop the frames of earlier raises of the same exception.
            raise entry[1].with_traceback(None)
        return entry[1]

    def get_cached(self, name: str) -> Any:
        """Return the cached value of a name, for any key; None if there is none."""
        return self._cache.get(name, (None, None))[1]

    def clear(self) -> None:
        """Clear the cache and the errors, and end the task."""
        self._cache.clear()
        self.errors.clear()
        if self.task is not None and self.task.is_running:
            self.task.cancel()
        self.task = None

    @property
    def path(self) -> Path:
        """The path of the data file."""
        return self.folder / self.session.file

    @property
    def state(self) -> tuple[StudioSession, BackgroundTask | None]:
        """The state that a page shows; it differs after any change, in this tab or in another one."""
        return self.session, self.task

    def change(self, **changes: Any) -> None:
        """Change entries and choices of the session."""
        with self.lock:
            self.session = replace(self.session, **changes)

    @property
    def status(self) -> str:
        """The running task, the errors, or the last fit as text, for screen readers."""
        if self.task is not None:
            return f"{TASK_LABELS[self.task.task]}."
        complete = f"{self.session.tray[-1]} is complete." if self.session.tray else ""
        return to_page_advice(" ".join(self.errors.values())) or complete

    def error_message(self, error: Exception) -> str:
        """Return a message for users, without any path of this machine."""
        return user_message(error, self.folder)

    def call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return the answer of a process to a request; raise a LodekitError with a message for users."""
        self.compute_process = self.server.choose(self.compute_process)
        return self.compute_process.call(name, *arguments, timeout=timeout)

    def _cached_call(self, name: str, *arguments: Any, timeout: float = ANSWER_TIMEOUT_SECONDS) -> Any:
        """Return the answer to a request, which is repeated only if its arguments or the data file have changed."""
        status = self.path.stat() if self.path in arguments else None
        key = arguments, status and (status.st_mtime_ns, status.st_size)
        return self.get_or_compute(name, key, partial(self.call, name, *arguments, timeout=timeout))

    # The system.

    @property
    def parsed(self) -> ParsedEquations:
        """The equations as parsed."""
        text = (self.session.equations, self.session.declared)
        try:
            parsed: ParsedEquations = self._cached_call("understand", text)
        except LodekitError as problem:
            return ParsedEquations(error=self.error_message(problem))
        if parsed.equations:
            self.get_or_compute("understood", text, lambda: (text, parsed))
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
        return self.get_cached("understood")

    @property
    def system(self) -> ParsedEquations | None:
        """The system, or the last valid one; None if there was none yet."""
        return None if self._last_parsed is None else self._last_parsed[1]

    @property
    def is_outdated(self) -> bool:
        """Whether the typed equations are not valid, so that the system is an earlier one."""
        return self.system is not None and not self.parsed.equations

    @property
    def is_measured(self) -> bool:
        """Whether a channel has a column."""
        return any(item.assignment.column for item in self.matches_or_empty)

    @property
    def is_ready(self) -> bool:
        """Whether a fit can start."""
        return bool(self.parsed.equations) and self.is_measured and self.task is None

    def check_equations(self) -> None:
        """Raise if the typed equations are not valid."""
        if self.is_outdated:
            raise LodekitError(OUTDATED_MESSAGE)

    @property
    def catalog(self) -> dict[str, CatalogEntry]:
        """The examples of the catalog, by name."""
        return self._cached_call("list_samples")

    @property
    def example(self) -> CatalogEntry | None:
        """The example that the session began with, if its equations are unchanged."""
        example = self.catalog.get(self.session.example)
        return example if example is not None and self.parsed.equations == example["equations"] else None

    def set_example(self, name: str) -> None:
        """Use an example of the catalog, by its name, with simulated data unless the user has a file; keep all fits."""
        example, session = self.catalog[name], replace(self.session, entries=())
        for each, parameter in example["parameters"].items():
            session = session.with_entry(ParameterEntry.from_parameter(each, parameter, example["values"].get(each)))
        equations, declared = "\n".join(example["equations"]), ", ".join(example["parameters"])
        changes: dict[str, Any] = {"equations": equations, "declared": declared, "example": name}
        self.session = replace(session, **changes, revision=session.revision + 1)
        if self.session.is_simulated or not self.session.file:
            self.simulate()

    def values(self) -> dict[str, float]:
        """Return the slider values of the parameters."""
        return self.session.values(self.system.parameters if self.system else ())

    def poles_and_modes(self, known: tuple[str, ...]) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
        """Return poles for `known` channels and uncontrollable modes, at the slider values."""
        return self._cached_call("locate_exponents", self.text, known, self.values())

    def proof(self) -> tuple[str, tuple[str, ...], str]:
        """Return the Smith form, the proved identities, and the reason if there are none."""
        return self._cached_call("show_proof", self.text)

    # The data.

    def set_file(self, name: str, content: bytes, *, is_simulated: bool = False) -> None:
        """Use a data file; windows of an earlier one are dropped, and columns that it does not have are not used."""
        plain = session_files.safe_name(name)
        write_atomically(self.folder / plain, content)
        self.errors.pop("data", None)
        names = ["dt", "window", "held_out", "record", "truth", "truth_of"]
        names += ["assignments", "split_gaps"] * is_simulated
        defaults = {name: getattr(StudioSession(), name) for name in names}
        self.change(file=plain, is_simulated=is_simulated, revision=self.session.revision + 1, **defaults)

    def apply_proposal(self) -> None:
        """Use the proposed equations for the data file if there are none yet."""
        if self.session.equations.strip() or not self.session.file:
            return
        try:
            equations, definitions, columns = self.call("propose", self.path, timeout=READ_TIMEOUT_SECONDS)
        except LodekitError:
            # Errors in the file are reported with the file.
            return
        if equations:
            session = replace(self.session, entries=())
            for name, definition in definitions.items():
                session = session.with_entry(ParameterEntry(name, is_positive="positive" in definition))
            declared = ", ".join(definitions)
            self.session = replace(session, equations=equations, declared=declared, assignments=columns)

    def simulate(self, **options: Any) -> None:
        """Use simulated data, of the example or of the equations at the slider values."""
        self.check_equations()
        text, example = self.text, self.example
        values = self.values() if example is None else dict(example["values"])
        csv = self.call("simulate_data", text, values, "" if example is None else self.session.example, options)
        self.set_file("simulated.csv", csv.encode(), is_simulated=True)
        self.change(truth=values, truth_of="\n".join(self.system.equations if self.system else ()))

    def set_window(self, first: float, last: float, *, for_validation: bool) -> None:
        """Select a window of the record for the fit or for validation; the other one is reduced to share no row."""
        low, high = min(first, last), max(first, last)
        removed = (low, high) if self.data_file is None else self.data_file.include_neighbors((low, high))
        if not low < high:
            if for_validation:
                self.change(held_out=None)
        elif for_validation:
            self.change(held_out=(low, high), window=subtract_from_fit_window(self.session.window, removed))
        else:
            held_out = self.session.held_out
            self.change(window=(low, high), held_out=held_out and _longer_remainder(held_out, removed))

    @property
    def data_file(self) -> DataFile | None:
        """The contents of the data file; None if there is none."""
        own = self.session
        if not own.file:
            return None
        used = (item.assignment for item in self.matches) if own.split_gaps else ()
        split = tuple(item for item in used if item.column)
        arguments = self.path, own.dt, find_time_column(own.assignments), split
        return self._cached_call("open_file", *arguments, timeout=READ_TIMEOUT_SECONDS)

    @property
    def matches(self) -> list[ColumnMatch]:
        """The column of each channel; none without data or system."""
        if not self.session.file or self.system is None:
            return []
        arguments = self.path, self.session.dt, self.text, self.session.assignments
        return self._cached_call("match_file", *arguments, timeout=READ_TIMEOUT_SECONDS)

    @property
    def matches_or_empty(self) -> list[ColumnMatch]:
        """The column of each channel; none if the data file cannot be read."""
        try:
            return self.matches
        except LodekitError:
            return []

    @property
    def parameter_units(self) -> dict[str, str]:
        """The units of parameters, if they follow from those of time and columns."""
        matches = self.matches_or_empty
        if not matches or self.data_file is None or self.system is None:
            return {}
        known = {item.assignment.channel: self.data_file.unit(item.assignment.column) for item in matches}
        known["t"] = self.data_file.clock.unit
        found = {}
        for name, dimension in self.system.dimensions.items():
            bases = set(re.findall(r"[^\W\d]\w*", dimension))
            if bases and all(known.get(base) for base in bases):
                found[name] = re.sub(r"[^\W\d]\w*", lambda base: known[base[0]], dimension)
        return found

    @property
    def possible_given(self) -> list[tuple[str, ...]]:
        """Sets of measured channels that may be known over the held-out part, with other channels left to predict.

        Empty if there are known inputs, or if the data file cannot be read.
        """
        matches = self.matches_or_empty
        if any(item.assignment.kind for item in matches):
            return []
        measured = {item.assignment.channel for item in matches if item.assignment.column}
        return [names for names in self.parsed.inputs if set(names) <= measured and len(names) < len(measured)]

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
        arguments = self.session, self.text, self.path if self.session.file else None, starts
        return self._cached_call("write_system", *arguments, timeout=READ_TIMEOUT_SECONDS)

    def curve_figure(self) -> tuple[PlotlyFigure, str, float]:
        """Return the curve at the slider values over the measurements, its description, and the log evidence there."""
        return self._cached_call("draw_curve", self.session, self.text, self.path, self.session.record)

    @property
    def save_error(self) -> str:
        """Why this session could not be reopened if it were saved now; empty if it could."""
        size = sum(path.stat().st_size for _, path in session_files.list_session_files(self.session, self.folder))
        # Entries add little to the files, and packing takes seconds, so it is tried only if the files are large.
        if size >= 0.9 * session_files.MAX_UPLOAD_BYTES:
            check = partial(session_files.check_session_can_be_reopened, self.session, self.folder)
            try:
                self.get_or_compute("packed", (self.session.file, self.session.tray, size), check)
            except LodekitError as problem:
                return self.error_message(problem)
        return ""

    def reopen(self, content: bytes) -> None:
        """Continue with another session, from the content of its file."""
        session: StudioSession = self.call("open_session", content, self.folder, timeout=READ_TIMEOUT_SECONDS)
        self.clear()
        self.session = replace(session, revision=self.session.revision + 1)

    def remove_fit(self, name: str) -> None:
        """Remove a fit from the session, and its files."""
        self.change(tray=tuple(each for each in self.session.tray if each != name))
        shutil.rmtree(self.folder / name, ignore_errors=True)


def start_fit(controller: SessionController, *, starts: bool = False) -> None:
    """Start a fit, or keep the message why it cannot start."""
    controller.errors.pop("fit", None)
    own = controller.resolved_session()
    number = 1 + max((int(name.partition("-")[2]) for name in own.tray), default=0)
    folder = controller.folder / f"fit-{number}"
    request = {"task": "fit", "session": replace(own, tray=()).to_dict()}
    try:
        controller.check_equations()
        text = controller.system_file(starts=starts)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_atomically(folder / SYSTEM_FILE, text)
        shutil.copyfile(controller.path, folder / own.file)
        request |= {"command": session_files.generate_command(own), "code": session_files.generate_script(own, folder)}
        controller.task = controller.server.start(folder, request)
    except LodekitError as problem:
        controller.errors["fit"] = controller.error_message(problem)


def start_export(controller: SessionController, name: str, *, figures: bool) -> None:
    """Start to write the report, the predictions and the figures of a fit."""
    fit = read_fit_result(controller, name)
    request = {name: fit.get(name, "") for name in ("source", "notes", "command", "code")} | {"figures": figures}
    other = session_files.find_validated_file(controller.folder / name)
    start_subtask(controller, name, "files", validated=[other] if other else [], **request)


def start_subtask(
    controller: SessionController, name: str, task: str, upload: tuple[str, bytes] | None = None, **request: Any
) -> None:
    """Start a task on the saved model of a fit, and on an uploaded file, in a subfolder with the name of the task.

    upload: The name and the content of the file.
    """
    folder = controller.folder / name / task
    controller.errors.pop(task, None)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    request |= {"task": task, "data": ""}
    if upload is not None:
        plain = session_files.safe_name(upload[0])
        # The zip file of the fit contains its data, too.
        request["data"] = f"other-{plain}" if plain == read_fit_session(folder.parent).file else plain
        write_atomically(folder / request["data"], upload[1])
    shutil.copyfile(folder.parent / MODEL_FILE, folder / MODEL_FILE)
    try:
        controller.task = controller.server.start(folder, request)
    except LodekitError as problem:
        controller.errors[task] = controller.error_message(problem)


def collect_task(controller: SessionController) -> bool:
    """Process the result of the task if it has ended; return whether there was one."""
    with controller.lock:
        job = controller.task
        if job is None or job.is_running:
            return False
        controller.task = None
    result = job.result()
    controller.errors.pop(job.task, None)
    if "trouble" in result:
        controller.errors[job.task] = str(result["trouble"])
    elif job.task == "validate":
        # An earlier report does not contain the result.
        shutil.rmtree(job.folder.parent / "files", ignore_errors=True)
    elif job.task == "fit":
        controller.change(tray=(*controller.session.tray, job.folder.name))
        for parameter, estimate in result["parameters"].items():
            entry = controller.session.entry(parameter)
            if not entry.is_fixed:
                controller.session = controller.session.with_entry(replace(entry, value=float(estimate["value"])))
        controller.change(revision=controller.session.revision + 1)
    return True


def read_fit_result(controller: SessionController, name: str, subfolder: str = "") -> dict[str, Any]:
    """Return the result of a fit; empty if there is none."""
    folder = controller.folder / name / subfolder
    if not (folder / RESULT_FILE).exists():
        return {}
    key = (name, subfolder, (folder / RESULT_FILE).stat().st_mtime_ns)
    return controller.get_or_compute(f"result {name} {subfolder}", key, lambda: read_result(folder))
