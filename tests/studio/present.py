"""Work of the studio that is done here and now, and not in processes of its own."""

from __future__ import annotations

import json
from pathlib import Path

from lodekit.studio.compute import REQUEST_HANDLERS
from lodekit.studio.controller import StudioServer
from lodekit.studio.server import ComputeProcess
from lodekit.studio.worker import RESULT_FILE, run_task

__all__ = ["Patient", "Present"]


class Present(ComputeProcess):
    """A companion without a process."""

    is_free = True
    pid = 1

    def __init__(self) -> None:
        self.is_closed, self.last_request = False, 3.0

    def call(self, name: str, *arguments: object, timeout: float = 1.0) -> object:
        return REQUEST_HANDLERS[name](*arguments)

    def close(self) -> None:
        self.is_closed = True


class Patient(StudioServer):
    """A workshop that does its work here and now."""

    def prepare(self) -> None:
        pass

    def start(self, folder: Path, request: object, timeout: float = 1.0) -> object:  # type: ignore[override]
        (folder / "request.json").write_text(json.dumps(request))
        run_task(folder)
        return Done(folder, str(request["task"]))  # type: ignore[index]


class Done:
    """A task that has ended."""

    is_running = False

    def __init__(self, folder: Path, task: str) -> None:
        self.folder, self.task = folder, task

    def result(self) -> dict[str, object]:
        return dict(json.loads((self.folder / RESULT_FILE).read_text()))

    def cancel(self) -> None:
        pass
