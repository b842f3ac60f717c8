"""The server of the studio: Streamlit, for this machine alone unless told otherwise, and silent about its users.

The page: six steps from top to bottom. Streamlit runs this file again whenever something changes.
"""

from __future__ import annotations

import atexit
import os
import signal
from pathlib import Path
from typing import Any

import streamlit as st

from lodekit.studio.components import configure_page, show_notice
from lodekit.studio.controller import SessionController, collect_task
from lodekit.studio.server import ServerSession, SessionStore, TaskRunner
from lodekit.studio.session_files import MAX_UPLOAD_BYTES
from lodekit.studio.step_data import render_data
from lodekit.studio.step_fit import render_comparison, render_downloads, render_fit
from lodekit.studio.step_system import render_parameters, render_system

#: The variable of the environment that names the file to begin with.
START_FILE_VARIABLE = "LODEKIT_STUDIO_START"
LIGHT_THEME = {"primaryColor": "#0072b2", "textColor": "#1b2733", "backgroundColor": "#ffffff"}
DARK_THEME = {"primaryColor": "#56b4e9", "textColor": "#e6edf3", "backgroundColor": "#12171c"}
LIGHT_THEME |= {"secondaryBackgroundColor": "#f5f7f9", "borderColor": "#dbe2e8"}
DARK_THEME |= {"secondaryBackgroundColor": "#1b2229", "borderColor": "#333d47"}


def streamlit_options(port: int, address: str, *, browser: bool) -> dict[str, Any]:
    """Return the options of Streamlit."""
    found = {
        "server.port": port,
        "server.address": address,
        "server.headless": not browser,
        "server.maxUploadSize": MAX_UPLOAD_BYTES >> 20,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "minimal",
        "global.developmentMode": False,
        "logger.level": "error",
        "logger.hideWelcomeMessage": True,
        "theme.font": "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif",
    }
    found |= {f"theme.light.{name}": value for name, value in LIGHT_THEME.items()}
    return found | {f"theme.dark.{name}": value for name, value in DARK_THEME.items()}


def startup_message(data: Path | None, port: int, address: str) -> str:
    """Return what is said at the beginning: where the page is, what it begins with, and how to end it.

    Examples
    --------
    >>> print(startup_message(Path("log.csv"), 8501, "localhost"))
    lodekit studio: http://localhost:8501, with log.csv; Ctrl-C stops it
    """
    # What listens to everybody has no address of its own.
    place = address if address.strip("0.:") else "localhost"
    return f"lodekit studio: http://{place}:{port}{f', with {data.name}' if data else ''}; Ctrl-C stops it"


def serve(data: Path | None, *, port: int, browser: bool, address: str) -> None:
    """Serve the page until somebody ends it."""
    from streamlit.web import bootstrap

    if hasattr(signal, "SIGPIPE"):
        # Commands end when nobody reads them any more; a server must not when somebody closes a page.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.pop(START_FILE_VARIABLE, None)
    if data is not None:
        os.environ[START_FILE_VARIABLE] = str(data.resolve())
    named = {name.replace(".", "_"): value for name, value in streamlit_options(port, address, browser=browser).items()}
    bootstrap.load_config_options(named)
    bootstrap.run(str(Path(__file__).with_name("app.py")), False, [], named)


@st.cache_resource
def _server_state() -> tuple[SessionStore, TaskRunner]:
    """Return what all sessions of this server share: where they are kept, and where long work is done."""
    shelf, workshop = SessionStore(), TaskRunner()
    workshop.prepare()
    atexit.register(shelf.close)
    atexit.register(workshop.close)
    return shelf, workshop


def _open_session(shelf: SessionStore) -> ServerSession:
    """Return the session of this page; a reload finds it again by the token in its address."""
    token = st.query_params.get("session", "")
    room = shelf.open(token)
    if room.token != token:
        st.query_params["session"] = room.token
    return room


def _load_start_file(controller: SessionController) -> None:
    """Take the file that the command was given, where the session has none yet, and what is proposed for it."""
    name = os.environ.get(START_FILE_VARIABLE, "")
    if name and not controller.session.file and not controller.server_session.is_started:
        try:
            if Path(name).stat().st_size <= MAX_UPLOAD_BYTES:
                controller.set_file(Path(name).name, Path(name).read_bytes())
                controller.apply_proposal()
            else:
                controller.server_session.errors["data"] = (
                    f"expected a data file of at most {MAX_UPLOAD_BYTES >> 20} MB"
                )
        except OSError:
            controller.server_session.errors["data"] = (
                "the data file that the command was given cannot be read any more"
            )
    controller.server_session.is_started = True


def main() -> None:
    """Show the page."""
    configure_page()
    shelf, workshop = _server_state()
    desk = SessionController(_open_session(shelf), workshop)
    _load_start_file(desk)
    collect_task(desk)
    # The first step compares this with what is typed, and runs the page again where the steps below are out of date.
    desk.server_session.get_or_compute("shown", desk.signature, lambda: desk.signature)
    for step in (render_system, render_data, render_parameters, render_fit, render_comparison, render_downloads):
        try:
            step(desk)
        except Exception as problem:
            # Control flow of Streamlit is made of exceptions as well.
            if type(problem).__module__.startswith("streamlit"):
                raise
            show_notice(desk.error_message(problem), "warning")


if __name__ == "__main__":
    main()
