"""A session as files: system file, shell command and Python script of its fit, and an archive of the whole session."""

from __future__ import annotations

import filecmp
import io
import json
import re
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.preview import TablePreview
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.studio.server import read_result
from lodekit.studio.session import StudioSession, session_from_dict
from lodekit.studio.worker import (
    PROGRESS_FILE,
    REQUEST_FILE,
    RESULT_FILE,
    SIMULATION_FILE,
    SYSTEM_FILE,
    find_fitted_file,
    read_fit_session,
)
from lodekit.support.files import MODEL_FILE, StorageError, read_archive, write_archive, write_atomically
from lodekit.system.files import SystemFileHints, format_system_file
from lodekit.system.parameters import Parameter
from lodekit.system.system import System
from lodekit.workflow.system_proposal import ColumnRole, propose_system_file

#: The folder of the results in generated commands and scripts.
RESULT_FOLDER = "log-fit"


def generate_system_file(
    session: StudioSession,
    base_system: System,
    preview: TablePreview | None = None,
    roles: Sequence[ColumnRole] = (),
    *,
    use_starts: bool = False,
    **options: Any,
) -> str:
    """Return the text of a system file with all entries and choices.

    options: The mapping of columns and the disturbances, as in `propose_system_file`.
    """
    system = session.system(base_system, starts=use_starts)
    known = {name: _parameter_to_toml(parameter) for name, parameter in system.parameters.items()}
    names, equations = list(system.parameters), "\n".join(system.equations)
    title = session.example
    if preview is None:
        return format_system_file(equations, names, title=title, hints=SystemFileHints(parameter_options=known))
    return propose_system_file(preview, roles, equations, names, title=title, parameter_definitions=known, **options)


def _parameter_to_toml(parameter: Parameter) -> str:
    """Return the options of a parameter as the content of a TOML table."""
    parts = ["positive = true"] if parameter.positive else []
    if parameter.bounds is not None:
        parts.append(f"bounds = {list(parameter.bounds)}")
    values = {"fixed": parameter.fixed, "start": parameter.start}
    parts += [f"{role} = {float(value)!r}" for role, value in values.items() if value is not None]
    if parameter.prior is not None:
        kind, numbers = type(parameter.prior).__name__.lower(), vars(parameter.prior).values()
        parts.append(f"prior = {{ {kind} = {[float(number) for number in numbers]} }}")
    return ", ".join(parts)


def _changed_options(session: StudioSession) -> dict[str, Any]:
    """Return the arguments of a fit that differ from their defaults."""
    defaults = StudioSession().fit_options
    return {name: value for name, value in session.fit_options.items() if value != defaults[name]}


def generate_command(session: StudioSession) -> str:
    """Return the command that repeats the fit, with results in its default folder."""
    words = ["lodekit", "fit", SYSTEM_FILE, session.file]
    words += _read_options(session, session.window)
    changed = _changed_options(session)
    words += [word for name in ("noise", "latent", "prior") if name in changed for word in (f"--{name}", changed[name])]
    return shlex.join([*words, "--seed", str(session.choices["seed"])])


def _validations(session: StudioSession, other: str) -> list[tuple[str, tuple[float | None, float | None]]]:
    """Return the files and windows on which a fit was validated: the held-out part, and another file."""
    held_out = [] if session.held_out is None else [(session.file, session.held_out)]
    return [*held_out, *[(other, (None, None))] * bool(other)]


def generate_shell(session: StudioSession, folder: Path) -> str:
    """Return the commands that repeat the fit in a folder, its report, its validations and its last simulation.

    Examples
    --------
    >>> print(generate_shell(StudioSession(file="log.csv", window=(0.0, 5.0), held_out=(5.0, 9.0)), Path("fit-1")))
    lodekit fit system.toml log.csv --from 0.0 --to 5.0 --seed 0 --out log-fit
    lodekit validate log-fit log.csv --from 5.0 --to 9.0
    """
    lines = [f"{generate_command(session)} --out {RESULT_FOLDER}"]
    for file, window in _validations(session, find_validated_file(folder)):
        more = ["--given", ",".join(session.given)] if session.given else []
        more += _read_options(session, window)
        lines.append(shlex.join(["lodekit", "validate", RESULT_FOLDER, file, *more]))
    if "inputs" in (found := read_result(folder / "simulate")):
        more = ["--map", "t=t", "--start", found["start"], "--out", "response.csv"]
        lines.append(shlex.join(["lodekit", "simulate", RESULT_FOLDER, SIMULATION_FILE, *more]))
    return "\n".join(lines)


def _read_options(session: StudioSession, window: tuple[float | None, float | None]) -> list[str]:
    """Return the options of the command line for reading a window of the data file."""
    named = zip(("--dt", "--from", "--to"), (session.dt, *window), strict=True)
    options = [word for option, value in named if value is not None for word in (option, repr(value))]
    return options + ["--split-gaps"] * session.split_gaps


def generate_script(session: StudioSession, folder: Path) -> str:
    """Return Python code that repeats the fit in a folder, its report, its validations and its last simulation.

    The inputs of a simulation are read from its result, in which columns have the names of channels.

    Examples
    --------
    >>> session = StudioSession(file="log.csv", window=(0.0, 5.0), held_out=(5.0, 9.0))
    >>> print(generate_script(session, Path("fit-1")), end="")
    import lodekit as lk
    <BLANKLINE>
    run = lk.fit_file("system.toml", "log.csv", window=(0.0, 5.0), random_state=0)
    gp = run.gp
    print(gp.summary())
    run.write("log-fit")  # model, report, predictions, figures
    print(gp.validate("log.csv", window=(5.0, 9.0)))
    """

    def call(file: str, options: Mapping[str, Any]) -> str:
        return ", ".join([json.dumps(file, ensure_ascii=False), *(f"{n}={v!r}" for n, v in options.items())])

    options = {**_changed_options(session), "random_state": session.choices["seed"]}
    read: dict[str, Any] = {name: options[name] for name in ("dt", "split_gaps") if name in options}
    lines = [
        "import lodekit as lk",
        "",
        f'run = lk.fit_file("{SYSTEM_FILE}", {call(session.file, options)})',
        "gp = run.gp",
        "print(gp.summary())",
        f'run.write("{RESULT_FOLDER}")  # model, report, predictions, figures',
    ]
    other = find_validated_file(folder)
    for name, window in _validations(session, other):
        own = {**read, **({} if name == other else {"window": window})}
        own |= {"given": list(session.given)} if session.given else {}
        lines.append(f"print(gp.validate({call(name, own)}))")
    if "inputs" in (found := read_result(folder / "simulate")):
        start = f"{found['start']!r}, record={found['record']!r}" if found["record"] else repr(found["start"])
        inputs = ", ".join(f"{name!r}: table[{name!r}]" for name in found["inputs"])
        lines += [
            "",
            "import pandas as pd",
            "",
            f'table = pd.read_csv("{SIMULATION_FILE}")  # see step 4 of the studio',
        ]
        lines.append(f"print(gp.simulate(table['t'], {{{inputs}}}, start={start}))")
    return "\n".join(lines) + "\n"


def changed_settings(folder: Path, session: StudioSession, equations: Sequence[str]) -> list[str]:
    """Return the settings of a fit that differ from those of a session with some equations, for users."""
    old = read_fit_session(folder)
    own = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    changed = [f"equations {'; '.join(own['equations'])}"] if own["equations"] != list(equations) else []
    one, two = (each / session.file for each in (folder, folder.parent))
    is_other = old.file != session.file or (one.is_file() and two.is_file() and not filecmp.cmp(one, two))
    changed += [f"file {old.file}"] if is_other else []

    def settings(each: StudioSession) -> dict[str, object]:
        # The value of a free parameter is only a starting point.
        entries = [replace(entry, value=entry.value * entry.is_fixed) for entry in map(each.entry, own["parameters"])]
        known = {"columns and roles": set(each.assignments), "constraints of parameters": entries}
        known |= {"windows": (each.window, each.held_out), "fit options": (each.choices, each.given)}
        return {**known, "sampling interval or splitting at gaps": (each.dt, each.split_gaps)}

    now = settings(session)
    return changed + [what for what, value in settings(old).items() if value != now[what]]


def find_validated_file(folder: Path) -> str:
    """Return the name of the other file on which a fit was validated; empty if there is none."""
    found = read_result(folder / "validate")
    return str(found["source"]) if "channels" in found else ""


def validation_text(folder: Path) -> str:
    """Return the results of the validations of a fit as text; empty if there are none."""
    found = (read_result(folder).get("validation") or {}, read_result(folder / "validate"))
    return "\n\n".join(each["text"] for each in found if "text" in each)


def pack_fit(folder: Path, names: Sequence[str]) -> bytes:
    """Return a zip archive with a fit: script, system file, data and model, and its results by their names."""
    session, other = read_fit_session(folder), find_validated_file(folder)
    files = [find_fitted_file(folder, session), folder / SYSTEM_FILE, folder / MODEL_FILE]
    files += [folder / "files" / name for name in names]
    files += [folder / "validate" / other, folder / "simulate" / SIMULATION_FILE]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("fit.py", generate_script(session, folder))
        if text := validation_text(folder):
            archive.writestr("validation.txt", text + "\n")
        for path in filter(Path.is_file, files):
            archive.write(path, path.name)
    return target.getvalue()


SESSION_SUFFIX = ".studio"
#: The largest accepted file, in bytes.
MAX_UPLOAD_BYTES = 50 << 20
ARCHIVE_KIND, ARCHIVE_FORMAT = "lodekit-session", 2
#: The files of a fit that are saved.
FIT_FILES = (
    *(REQUEST_FILE, RESULT_FILE, SYSTEM_FILE, MODEL_FILE, f"simulate/{SIMULATION_FILE}"),
    *(f"{task}/{RESULT_FILE}" for task in ("free", "validate", "simulate")),
)
#: Names that are not available for data files in the folder of a session or of a fit.
RESERVED_NAMES = re.compile(
    "|".join(
        [*map(re.escape, (*FIT_FILES, PROGRESS_FILE)), r"fit-\d+", "sliders", "free", "files", "validate", "simulate"]
    )
)


def safe_name(name: str) -> str:
    """Return the name of a file without folders and special characters; ``log.csv`` if nothing remains.

    Examples
    --------
    >>> safe_name("../../etc/pass wd.csv"), safe_name("")
    ('pass wd.csv', 'log.csv')
    """
    last = re.split(r"[\\/]", name)[-1]
    plain = re.sub(r"[^\w.,+() -]", "_", last).strip(". ")[-120:]
    return plain if plain and not RESERVED_NAMES.fullmatch(plain) else "log.csv"


def pack_session(session: StudioSession, folder: Path) -> bytes:
    """Return a session as the content of one file."""
    arrays = {
        name: np.frombuffer(file.read_bytes(), dtype=np.uint8) for name, file in list_session_files(session, folder)
    }
    contents = {"kind": ARCHIVE_KIND, "format": ARCHIVE_FORMAT, "session": session.to_dict()}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        write_archive(path, contents, arrays)
        return path.read_bytes()


def list_session_files(session: StudioSession, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield all files of a session, with their names in its archive."""
    named = {"data": folder / session.file} if session.file else {}
    for number, name in enumerate(session.tray):
        named |= {f"fit{number}_{part}": folder / name / file for part, file in enumerate(FIT_FILES)}
    return ((name, path) for name, path in named.items() if path.is_file())


def check_session_can_be_reopened(session: StudioSession, folder: Path) -> None:
    """Raise if a session could not be reopened after it is saved now; it is packed for this check."""
    remedy = "remove fits from the comparison, or download models and data one by one"
    content = pack_session(session, folder)
    if len(content) > MAX_UPLOAD_BYTES:
        raise LodekitError(f"this session could not be opened again: {_size_message(len(content))}; {remedy}")
    try:
        _read_archive(content)
    except StorageError:
        # Small files that expand to very large ones are always refused.
        raise LodekitError(f"this session could not be opened again: its data are too repetitive; {remedy}") from None


def _read_archive(content: bytes) -> tuple[Any, Mapping[str, Any]]:
    """Return the values and arrays in the content of an archive."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "session")
        path.write_bytes(content)
        values, arrays, _ = read_archive(path)
    return values, arrays


def _size_message(size: int) -> str:
    return f"expected a session of at most {MAX_UPLOAD_BYTES / 2**20:.1f} MB, got {size / 2**20:.1f} MB"


def unpack_session(content: bytes, folder: Path) -> StudioSession:
    """Return the session in the content of a file, and write its data and its fits to a folder.

    The folder is not changed if the file is not a complete session.
    """
    if len(content) > MAX_UPLOAD_BYTES:
        raise LodekitError(_size_message(len(content)))
    try:
        values, arrays = _read_archive(content)
    except StorageError:
        message = "expected a session saved by the studio, got another file, or a damaged one"
        raise LodekitError(message) from None
    if not isinstance(values, dict) or values.get("kind") != ARCHIVE_KIND or values.get("format") != ARCHIVE_FORMAT:
        raise LodekitError("expected a session saved by the studio of this version, got another file")
    session = session_from_dict(values.get("session"))
    names = set(session.tray)
    if not len(names) == len(session.tray) <= 500 or not all(re.fullmatch(r"fit-\d{1,4}", n) for n in names):
        raise LodekitError("expected a session with the names of its fits, got others")
    if session.file and (session.file != safe_name(session.file) or "data" not in arrays):
        raise LodekitError("expected a session with its data file, got one without")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        whole = Path(place)
        if session.file:
            write_atomically(whole / session.file, arrays["data"].astype(np.uint8).tobytes())
        for number, name in enumerate(session.tray):
            _write_fit(whole / name, {file: arrays.get(f"fit{number}_{part}") for part, file in enumerate(FIT_FILES)})
        for made in whole.iterdir():
            # Results of an earlier fit with that name, such as its report, are removed as well.
            shutil.rmtree(folder / made.name, ignore_errors=True)
            made.replace(folder / made.name)
    return session


def _write_fit(folder: Path, parts: Mapping[str, Any]) -> None:
    """Write the files of a fit; raise if its model is not valid, or its result is not JSON."""
    folder.mkdir()
    for name, array in parts.items():
        if array is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            write_atomically(folder / name, array.astype(np.uint8).tobytes())
    try:
        json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
        LODEGP.load(folder / MODEL_FILE)
    except (OSError, ValueError, LodekitError):
        raise LodekitError("expected a session with complete fits, got one that was damaged or changed") from None
