"""The command line: inside this process, which is fast, and as the installed command in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

from lodekit.__main__ import main
from tests.limits import PATIENCE

COMMAND = Path(sys.executable).with_name("lodekit")
HEATING = "f1' = -a*(f1-f2)+u; f2' = -b*(f2-f1)"
#: What Python ignores where nobody has said anything else.
IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)

Done = subprocess.CompletedProcess[str]


def run_alone(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Return what a command printed in a process of its own, and its exit code."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", **environment},
    )


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Return what a command printed, and its exit code, as `run_alone` does: without the seconds that imports take.

    The command finds what a process of its own would find, and this process is left as it was. What a process of its
    own alone can show (imports that a command forgot, broken pipes, interruptions) needs `run_alone`.
    """
    variables = {"COLUMNS": "120", **environment}
    with ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        with (
            _settings(cwd, variables, ["lodekit", *arguments]),
            _printing(out, "stdout", 1),
            _printing(err, "stderr", 2),
        ):
            code = _exit_code()
        return Done(["lodekit", *arguments], code, _read(out), _read(err))


def _exit_code() -> int:
    """Run the command line; what Python would say of an error at the end of a process is said here."""
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, str):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _settings(cwd: Path | None, variables: dict[str, str], arguments: list[str]) -> Iterator[None]:
    """Folder, environment, arguments, and Python's own handling of warnings and of broken pipes; all put back."""
    folder, broken = Path.cwd(), signal.getsignal(signal.SIGPIPE)
    with (
        mock.patch.dict(os.environ, variables),
        mock.patch.object(sys, "argv", arguments),
        # Usage names the program, and that is not pytest.
        mock.patch.object(sys.modules["__main__"], "__package__", "", create=True),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        for category in IGNORED:
            warnings.simplefilter("ignore", category)
        warnings.showwarning = _show_warning
        try:
            os.chdir(cwd or folder)
            yield
        finally:
            os.chdir(folder)
            signal.signal(signal.SIGPIPE, broken)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


@contextmanager
def _printing(target: IO[bytes], name: str, number: int) -> Iterator[None]:
    """Let a standard stream go to a file, and what libraries in C print on it as well."""
    kept = os.dup(number)
    os.dup2(target.fileno(), number)
    try:
        with open(number, "w", encoding="utf-8", closefd=False) as stream, mock.patch.object(sys, name, stream):
            yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")
