"""The page: six steps from top to bottom. Streamlit runs this file again whenever something changes."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

import streamlit as st

from lodekit.studio.desk import Desk
from lodekit.studio.fits import collect
from lodekit.studio.frame import begin_page, notice
from lodekit.studio.saving import LARGEST
from lodekit.studio.serving import START
from lodekit.studio.shelf import Room, Shelf
from lodekit.studio.step_compare import show_comparison
from lodekit.studio.step_data import show_data
from lodekit.studio.step_fit import show_fit
from lodekit.studio.step_parameters import show_parameters
from lodekit.studio.step_system import show_system
from lodekit.studio.step_take import show_files
from lodekit.studio.work import Workshop

__all__ = ["main"]


@st.cache_resource
def _shared() -> tuple[Shelf, Workshop]:
    """Return what all sessions of this server share: where they are kept, and where long work is done."""
    shelf, workshop = Shelf(), Workshop()
    workshop.prepare()
    atexit.register(shelf.close)
    atexit.register(workshop.close)
    return shelf, workshop


def _open(shelf: Shelf) -> Room:
    """Return the session of this page; a reload finds it again by the token in its address."""
    token = st.query_params.get("session", "")
    room = shelf.open(token)
    if room.token != token:
        st.query_params["session"] = room.token
    return room


def _begin(desk: Desk) -> None:
    """Take the file that the command was given, where the session has none yet, and what is proposed for it."""
    name = os.environ.get(START, "")
    if name and not desk.session.file and not desk.room.is_begun:
        try:
            if Path(name).stat().st_size <= LARGEST:
                desk.take_file(Path(name).name, Path(name).read_bytes())
                desk.propose()
            else:
                desk.room.trouble["data"] = f"expected a data file of at most {LARGEST >> 20} MB"
        except OSError:
            desk.room.trouble["data"] = "the data file that the command was given cannot be read any more"
    desk.room.is_begun = True


def main() -> None:
    """Show the page."""
    begin_page()
    shelf, workshop = _shared()
    desk = Desk(_open(shelf), workshop)
    _begin(desk)
    collect(desk)
    # The first step compares this with what is typed, and runs the page again where the steps below are out of date.
    desk.room.keep("shown", desk.signature, lambda: desk.signature)
    for step in (show_system, show_data, show_parameters, show_fit, show_comparison, show_files):
        try:
            step(desk)
        except Exception as problem:
            # Control flow of Streamlit is made of exceptions as well.
            if type(problem).__module__.startswith("streamlit"):
                raise
            notice(desk.say(problem), "warning")


if __name__ == "__main__":
    main()
