"""The server of the studio: Streamlit, for this machine alone unless told otherwise, and silent about its users."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from lodekit.studio.saving import LARGEST

__all__ = ["START", "announce", "serve"]

#: The variable of the environment that names the file to begin with.
START = "LODEKIT_STUDIO_START"
_LIGHT = {"primaryColor": "#0072b2", "textColor": "#1b2733", "backgroundColor": "#ffffff"}
_DARK = {"primaryColor": "#56b4e9", "textColor": "#e6edf3", "backgroundColor": "#12171c"}
_LIGHT |= {"secondaryBackgroundColor": "#f5f7f9", "borderColor": "#dbe2e8"}
_DARK |= {"secondaryBackgroundColor": "#1b2229", "borderColor": "#333d47"}


def options(port: int, address: str, *, browser: bool) -> dict[str, Any]:
    """Return the options of Streamlit.

    Parameters
    ----------
    port : int
    address : str
        ``"localhost"`` for this machine alone.
    browser : bool
        Whether a browser is opened.
    """
    found = {
        "server.port": port,
        "server.address": address,
        "server.headless": not browser,
        "server.maxUploadSize": LARGEST >> 20,
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
    found |= {f"theme.light.{name}": value for name, value in _LIGHT.items()}
    return found | {f"theme.dark.{name}": value for name, value in _DARK.items()}


def announce(data: Path | None, port: int, address: str) -> str:
    """Return what is said at the beginning: where the page is, what it begins with, and how to end it.

    Parameters
    ----------
    data : Path or None
        The file to begin with.
    port : int
    address : str

    Examples
    --------
    >>> print(announce(Path("log.csv"), 8501, "localhost"))
    lodekit studio: http://localhost:8501, with log.csv; Ctrl-C stops it
    """
    # What listens to everybody has no address of its own.
    place = address if address.strip("0.:") else "localhost"
    return f"lodekit studio: http://{place}:{port}{f', with {data.name}' if data else ''}; Ctrl-C stops it"


def serve(data: Path | None, *, port: int, browser: bool, address: str) -> None:
    """Serve the page until somebody ends it.

    Parameters
    ----------
    data : Path or None
        The file to begin with.
    port : int
    browser : bool
        Whether a browser is opened.
    address : str
    """
    from streamlit.web import bootstrap

    if hasattr(signal, "SIGPIPE"):
        # Commands end when nobody reads them any more; a server must not when somebody closes a page.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.pop(START, None)
    if data is not None:
        os.environ[START] = str(data.resolve())
    named = {name.replace(".", "_"): value for name, value in options(port, address, browser=browser).items()}
    bootstrap.load_config_options(named)
    bootstrap.run(str(Path(__file__).with_name("app.py")), False, [], named)
