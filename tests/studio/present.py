"""Work of the studio that is done here and now, and not in processes of its own."""

from __future__ import annotations

import json
from pathlib import Path

from lodekit.studio.companion import Companion
from lodekit.studio.replies import ASKED
from lodekit.studio.work import Workshop
from lodekit.studio.worker import RESULT, run

__all__ = ["Patient", "Present"]


class Present(Companion):
    """A companion without a process."""

    is_free = True
    pid = 1

    def __init__(self) -> None:
        self.is_dismissed, self.asked = False, 3.0

    def ask(self, name: str, *arguments: object, limit: float = 1.0) -> object:
        return ASKED[name](*arguments)

    def dismiss(self) -> None:
        self.is_dismissed = True


class Patient(Workshop):
    """A workshop that does its work here and now."""

    def begin(self, folder: Path, wanted: object, limit: float = 1.0) -> object:  # type: ignore[override]
        (folder / "request.json").write_text(json.dumps(wanted))
        run(folder)
        return Done(folder, str(wanted["task"]))  # type: ignore[index]


class Done:
    """A task that has ended."""

    is_running = False

    def __init__(self, folder: Path, task: str) -> None:
        self.folder, self.task = folder, task

    def result(self) -> dict[str, object]:
        return dict(json.loads((self.folder / RESULT).read_text()))

    def cancel(self) -> None:
        pass
