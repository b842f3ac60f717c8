"""Fits of a session, and what follows from them: begun in processes of their own, collected, read, forgotten."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.studio.desk import Desk
from lodekit.studio.work import read_result
from lodekit.studio.worker import RESULT
from lodekit.studio.writing import SYSTEM, write_command
from lodekit.workflow import MODEL

__all__ = ["begin_delivery", "begin_fit", "begin_free", "collect", "forget", "read_fit", "try_fit"]


def begin_fit(desk: Desk, *, starts: bool = False) -> None:
    """Begin a fit.

    Parameters
    ----------
    desk : Desk
    starts : bool
        Whether it begins where the sliders stand.
    """
    own, room = desk.settled(), desk.room
    text = desk.system_file(starts=starts)
    number = 1 + max((int(name.partition("-")[2]) for name in own.tray), default=0)
    folder = room.folder / f"fit-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_file(folder / SYSTEM, text)
    shutil.copyfile(room.folder / own.file, folder / own.file)
    wanted = {
        "task": "fit",
        "data": own.file,
        "system": SYSTEM,
        "dt": own.dt,
        "window": own.window,
        "held_out": own.held_out,
        "given": own.given,
        "seed": own.choices.seed,
        "options": {name: value for name, value in own.how.items() if name not in ("dt", "window")},
        "session": replace(own, tray=()).to_dict(),
        "command": write_command(own),
    }
    room.job = desk.workshop.begin(folder, wanted)


def try_fit(desk: Desk, *, starts: bool = False) -> None:
    """Begin a fit, or keep in words why it cannot begin.

    Parameters
    ----------
    desk : Desk
    starts : bool
        Whether it begins where the sliders stand.
    """
    desk.room.trouble.pop("fit", None)
    try:
        begin_fit(desk, starts=starts)
    except LodekitError as problem:
        desk.room.trouble["fit"] = desk.say(problem)


def begin_free(desk: Desk, name: str) -> None:
    """Begin a fit without the equations, beside a fit.

    Parameters
    ----------
    desk : Desk
    name : str
        Of the fit.
    """
    _begin_beside(desk, name, "free", {"task": "free", "seed": desk.session.choices.seed})


def begin_delivery(desk: Desk, name: str, *, figures: bool) -> None:
    """Begin to write the report, the predictions and the figures of a fit.

    Parameters
    ----------
    desk : Desk
    name : str
        Of the fit.
    figures : bool
    """
    fit = read_fit(desk, name)
    wanted = {"task": "deliver", "source": fit["source"], "notes": fit["notes"], "figures": figures}
    _begin_beside(desk, name, "files", {**wanted, "command": fit.get("command", "")})


def _begin_beside(desk: Desk, name: str, place: str, wanted: dict[str, Any]) -> None:
    folder = desk.room.folder / name / place
    folder.mkdir(exist_ok=True)
    shutil.copyfile(desk.room.folder / name / MODEL, folder / MODEL)
    try:
        desk.room.job = desk.workshop.begin(folder, wanted)
    except LodekitError as problem:
        desk.room.trouble[wanted["task"]] = desk.say(problem)


def collect(desk: Desk) -> bool:
    """Take what a task has left, where it has ended; return whether one has.

    Parameters
    ----------
    desk : Desk
    """
    room, job = desk.room, desk.room.job
    if job is None or job.is_running:
        return False
    room.job = None
    found = job.result()
    room.trouble.pop(job.task, None)
    if "trouble" in found:
        room.trouble[job.task] = str(found["trouble"])
    elif job.task == "fit":
        desk.change(tray=(*desk.session.tray, job.folder.name))
        for parameter, estimate in found["parameters"].items():
            entry = desk.session.entry(parameter)
            if not entry.is_fixed:
                room.session = desk.session.with_entry(replace(entry, value=float(estimate["value"])))
        desk.change(revision=desk.session.revision + 1)
    return True


def read_fit(desk: Desk, name: str, place: str = "") -> dict[str, Any]:
    """Return what came of a fit; empty where nothing did.

    Parameters
    ----------
    desk : Desk
    name : str
        Of the fit.
    place : str
        ``"free"`` for the fit without equations, ``"files"`` for what was written.
    """
    folder = desk.room.folder / name / place if place else desk.room.folder / name
    if not (folder / RESULT).exists():
        return {}
    key = (name, place, (folder / RESULT).stat().st_mtime_ns)
    found: dict[str, Any] = desk.room.keep(f"result {name} {place}", key, lambda: read_result(folder))
    return found


def forget(desk: Desk, name: str) -> None:
    """Take a fit out of the tray, and remove its files.

    Parameters
    ----------
    desk : Desk
    name : str
        Of the fit.
    """
    desk.change(tray=tuple(own for own in desk.session.tray if own != name))
    shutil.rmtree(desk.room.folder / name, ignore_errors=True)
