"""The page, which Streamlit reruns after every change, and the server that shows it.

By default the server accepts connections from this machine only.
"""

from __future__ import annotations

import atexit
import os
import signal
import tomllib
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.components import configure_page, follow_other_tabs, render_html, show_notice
from lodekit.studio.controller import SessionController, StudioServer, collect_task
from lodekit.studio.session_files import MAX_UPLOAD_BYTES
from lodekit.studio.step_data import render_data
from lodekit.studio.step_fit import render_comparison, render_downloads, render_fit
from lodekit.studio.step_system import render_parameters, render_system
from lodekit.support.html import read_asset, read_glossary

#: The environment variable with the name of the initial data file.
START_FILE_VARIABLE = "LODEKIT_STUDIO_START"


def streamlit_options(port: int, address: str, *, browser: bool) -> dict[str, Any]:
    """Return the options of Streamlit."""
    tables = tomllib.loads(read_asset("studio.toml"))
    tables |= {f"theme.{kind}": tables["theme"].pop(kind) for kind in ("light", "dark")}
    own = {"port": port, "address": address, "headless": not browser, "maxUploadSize": MAX_UPLOAD_BYTES >> 20}
    tables["server"] |= own
    return {f"{table}.{name}": value for table, options in tables.items() for name, value in options.items()}


def serve(data: Path | None, *, port: int, browser: bool, address: str) -> None:
    """Serve the page until the user ends it."""
    from streamlit.web import bootstrap

    if hasattr(signal, "SIGPIPE"):
        # Commands end when their output is closed; a server must not end when a page is closed.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.pop(START_FILE_VARIABLE, None)
    if data is not None:
        os.environ[START_FILE_VARIABLE] = str(data.resolve())
    named = {name.replace(".", "_"): value for name, value in streamlit_options(port, address, browser=browser).items()}
    bootstrap.load_config_options(named)
    bootstrap.run(__file__, False, [], named)


@st.cache_resource
def _start_server() -> StudioServer:
    """Return the processes and sessions that all pages share."""
    server = StudioServer()
    server.prepare()
    atexit.register(server.close)
    return server


def _open_session() -> SessionController:
    """Return the session of this page; after a reload, the token in its address identifies it."""
    token = st.query_params.get("session", "")
    session = _start_server().open(token)
    if session.token != token:
        st.query_params["session"] = session.token
    return session


def _load_start_file(controller: SessionController) -> None:
    """Load the file of the command line if the session has none yet, and the proposed equations for it."""
    name = os.environ.get(START_FILE_VARIABLE, "")
    if name and not controller.session.file and not controller.is_started:
        try:
            if Path(name).stat().st_size > MAX_UPLOAD_BYTES:
                raise LodekitError(f"expected a data file of at most {MAX_UPLOAD_BYTES >> 20} MB")
            controller.set_file(Path(name).name, Path(name).read_bytes())
            with st.spinner(f"Reading {controller.session.file}", show_time=True):
                controller.apply_proposal()
        except OSError:
            controller.errors["data"] = "the data file given on the command line can no longer be read"
        except LodekitError as problem:
            controller.errors["data"] = str(problem)
    controller.is_started = True


def main() -> None:
    """Show the page."""
    configure_page()
    controller = _open_session()
    _load_start_file(controller)
    collect_task(controller)
    # The first step compares this with the typed text, and draws the page again if the steps below are out of date.
    drawn = controller.system, controller.parsed.equations
    st.session_state["drawn"], st.session_state["drawn system"] = controller.state, drawn
    for step in (render_system, render_data, render_parameters, render_fit, render_comparison, render_downloads):
        try:
            step(controller)
        except Exception as problem:
            # Streamlit uses exceptions for control flow.
            if type(problem).__module__.startswith("streamlit"):
                raise
            show_notice(controller.error_message(problem), "warning")
    with st.expander("What the terms mean"):
        st.markdown("\n".join(f"- **{term}**: {meaning}" for term, meaning in read_glossary()))
    render_html(f'<p class="lk-hidden">{escape(controller.status)}</p>', "status", live="polite")
    follow_other_tabs(controller)


if __name__ == "__main__":
    main()
