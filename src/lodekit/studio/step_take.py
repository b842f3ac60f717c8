"""The last step: everything in files, and the lines that do the same without this page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.desk import Desk
from lodekit.studio.fits import begin_delivery, read_fit
from lodekit.studio.frame import heading, notice
from lodekit.studio.saving import ENDING, LARGEST, pack_session
from lodekit.studio.writing import SYSTEM, write_python, write_shell
from lodekit.workflow import MODEL

__all__ = ["show_files"]

_KINDS = {".html": "text/html", ".csv": "text/csv", ".png": "image/png"}


def show_files(desk: Desk) -> None:
    """Show everything that can be taken away.

    Parameters
    ----------
    desk : Desk
    """
    heading("Take away")
    left, right = st.columns([5, 7], gap="large")
    with left:
        if desk.session.tray:
            _offer_fit(desk)
        else:
            notice("After a fit, its model, report, predictions and figures can be taken from here.")
        _offer_session(desk)
    with right:
        _show_lines(desk)


def _offer_fit(desk: Desk) -> None:
    tray = desk.session.tray
    name = st.selectbox("Of which fit", tray, index=len(tray) - 1, key=f"take-{len(tray)}-{tray[-1]}")
    folder = desk.room.folder / name
    st.download_button("Model file", (folder / MODEL).read_bytes, f"{name}.lodekit", key="get-model", on_click="ignore")
    found = read_fit(desk, name, "files")
    if not found:
        busy = desk.room.job is not None
        if st.button(
            "Make report, predictions and figures", key="deliver", icon=":material/description:", disabled=busy
        ):
            begin_delivery(desk, name, figures=find_spec("matplotlib") is not None)
            st.rerun()
        return
    if "trouble" in found:
        notice(found["trouble"], "warning")
        return
    for file in found["files"]:
        kind = _KINDS.get(Path(file).suffix, "application/octet-stream")
        content = (folder / "files" / file).read_bytes
        st.download_button(file, content, file, kind, key=f"get-{name}-{file}", on_click="ignore")
    for remark in found["remarks"]:
        st.caption(remark)


def _offer_session(desk: Desk) -> None:
    st.markdown("**The whole session** in one file: what was typed, the data, and every fit")
    own, folder = desk.session, desk.room.folder
    if obstacle := desk.obstacle:
        notice(obstacle, "warning")
    else:
        st.download_button(
            "Save session",
            lambda: pack_session(own, folder),
            f"session{ENDING}",
            key="get-session",
            icon=":material/save:",
            on_click="ignore",
        )
    number = len(desk.room.taken)
    found = st.file_uploader(
        f"Reopen a session, up to {LARGEST >> 20} MB", type=[ENDING.lstrip(".")], key=f"open-{number}"
    )
    if found is not None and found.file_id not in desk.room.taken:
        desk.room.taken.append(found.file_id)
        desk.room.trouble.pop("session", None)
        try:
            desk.reopen(found.getvalue())
        except LodekitError as problem:
            desk.room.trouble["session"] = desk.say(problem)
        st.rerun()
    if trouble := desk.room.trouble.get("session"):
        notice(trouble, "warning")


def _show_lines(desk: Desk) -> None:
    if desk.system is None or not desk.session.file:
        notice("With equations and data, the lines of Python and of shell that do the same appear here.")
        return
    try:
        text = desk.system_file()
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
        return
    own = desk.settled()
    st.markdown("**The same on the shell**, beside the system file and the data file")
    st.code(write_shell(own), language="bash", wrap_lines=True)
    st.markdown("**The same in Python**")
    st.code(write_python(own), language="python", wrap_lines=True)
    one, two, three = st.columns(3)
    one.download_button("System file", text, SYSTEM, "text/plain", key="get-system", on_click="ignore")
    two.download_button("Script", write_python(own), "fit.py", "text/x-python", key="get-script", on_click="ignore")
    data = (desk.room.folder / own.file).read_bytes
    three.download_button("Data file", data, own.file, key="get-data", on_click="ignore")
