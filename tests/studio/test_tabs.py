"""The page without a browser: what it shows, and what two tabs of one session show of each other's edits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lodekit.studio.compute import REQUEST_HANDLERS
from tests.studio.present import Patient, Present

st = pytest.importorskip("streamlit", reason="the studio needs Streamlit: pip install 'lodekit[studio]'")

OpenTab = Callable[..., Any]


@pytest.fixture
def open_tab(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenTab]:
    """A function that opens a tab: of a new session, or of that of another tab."""
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("lodekit.studio.controller.ComputeProcess", Present)
    monkeypatch.setattr("lodekit.studio.controller.StudioServer", Patient)
    st.cache_resource.clear()

    def make(other: Any = None) -> Any:
        tab = AppTest.from_file("../../src/lodekit/studio/app.py", default_timeout=60)
        if other is not None:
            tab.query_params["session"] = other.query_params["session"]
        return tab.run()

    yield make
    st.cache_resource.clear()


def test_an_edit_in_one_tab_appears_in_the_other(open_tab: OpenTab) -> None:
    first = open_tab()
    first.selectbox(key="example-0").select("heating").run()
    second = open_tab(first)
    # Half a sentence in the second tab stays there: it is sent when the field is left.
    second.text_input(key="b-b").set_value("0.1 to 5")
    first.number_input(key="v-a").set_value(7.5).run()
    first.text_input(key="declared").set_value("a, b, c").run()
    first.checkbox(key="f-b").check().run()
    second.run()
    assert second.number_input(key="v-a").value == 7.5
    assert second.text_input(key="declared").value == "a, b, c"
    assert second.checkbox(key="f-b").value
    assert second.text_input(key="b-b").value == "0.1 to 5"
    first.run()
    assert first.text_input(key="b-b").value == "0.1 to 5"
    # A tab that was not used since does not bring old values back.
    assert first.number_input(key="v-a").value == 7.5
    assert not second.exception


def test_roles_windows_and_fits_of_one_tab_appear_in_the_other(open_tab: OpenTab) -> None:
    first = open_tab()
    first.selectbox(key="example-0").select("heating").run()
    second = open_tab(first)
    next(button for button in first.button if button.label == "Simulate").click().run()
    first.selectbox(key="role-u").select("linear").run()
    first.number_input(key="Fit to").set_value(5.0).run()
    first.button(key="fit").click().run()
    # This system does not settle, so that a steady state is refused; a simulation from rest can be downloaded.
    for start in ("steady", "rest"):
        assert "Simulation (CSV)" not in [button.label for button in first.get("download_button")]
        first.selectbox(key="state-fit-1").select(start)
        next(button for button in first.button if button.label == "Simulate response").click().run()
        shown = "".join(item.body for item in first.get("html"))
        assert ("choose another initial state" in shown) == (start == "steady")
    assert "Simulation (CSV)" in [button.label for button in first.get("download_button")]
    rows = "\n".join(f"{k / 4},{k % 7 / 3},{k % 5 / 2},{k % 3}" for k in range(30))
    upload = next(
        box for box in first.file_uploader if box.label.startswith("Upload a record that the fit did not use")
    )
    upload.upload("other.csv", f"t,f1,f2,u\n{rows}\n".encode(), "text/csv").run()
    assert any("lodekit validate log-fit other.csv" in item.value for item in first.code)
    second.run()
    assert second.selectbox(key="role-u").value == "linear"
    assert second.number_input(key="Fit to").value == 5.0
    shown = "".join(item.body for item in second.get("html"))
    assert "fit-1" in shown
    assert "All fits of this session" in shown
    assert [tab.label for tab in second.tabs] == ["Curves", "Residuals", "Autocorrelation"]
    second.button(key="fit").click().run()
    assert any("Posterior means of the fits to simulated.csv" in text.value for text in second.caption)
    assert not second.exception


def open_log(open_tab: OpenTab, head: str, rows: Iterable[str]) -> Any:
    """Return a tab with the equations of the heating example and a log."""
    tab = open_tab()
    tab.selectbox(key="example-0").select("heating").run()
    tab.file_uploader[0].upload("log.csv", "\n".join([head, *rows, ""]).encode(), "text/csv").run()
    return tab


def test_a_stepped_column_that_is_chosen_by_hand_is_proposed_as_known_input(open_tab: OpenTab) -> None:
    tab = open_log(open_tab, "t,Heater,A,B", (f"{k},{k // 10 % 2},{k * 7 % 13},{k * 5 % 11}" for k in range(40)))
    assert tab.selectbox(key="role-u").options[:2] == ["not measured", "disturbance, white"]
    tab.selectbox(key="column-u").select("Heater").run()
    tab.selectbox(key="column-f1").select("A").run()
    assert (tab.selectbox(key="role-u").value, tab.selectbox(key="role-f1").value) == ("hold", "")
    assert any("chosen by you; known input: it takes two values only" in text.value for text in tab.caption)
    # The user has the last word.
    tab.selectbox(key="role-u").select("").run()
    assert tab.selectbox(key="role-u").value == ""
    # A disturbance is not measured, so its column is not used; a channel with a column again is not a disturbance.
    tab.selectbox(key="role-f1").select("white").run()
    assert [tab.selectbox(key=key).value for key in ("role-f1", "column-f1")] == ["white", "– not measured –"]
    tab.selectbox(key="column-f1").select("B").run()
    assert [tab.selectbox(key=key).value for key in ("role-f1", "column-f1")] == ["", "B"]
    assert not tab.exception


def test_the_time_column_can_be_chosen(open_tab: OpenTab) -> None:
    from lodekit.studio.step_data import NO_TIME_COLUMN

    tab = open_log(open_tab, "step,hours,f1,f2,u", (f"{k},{k / 4},{k * 7 % 13},{k * 5 % 11},1" for k in range(40)))
    assert (tab.selectbox(key="time-column").value, tab.number_input(key="Fit to").value) == ("step", 39.0)
    tab.selectbox(key="time-column").select("hours").run()
    assert (tab.selectbox(key="time-column").value, tab.number_input(key="Fit to").value) == ("hours", 9.75)
    assert "hours" not in tab.selectbox(key="column-f1").options
    tab.selectbox(key="time-column").select(NO_TIME_COLUMN).run()
    tab.number_input(key="dt").set_value(2.0).run()
    assert tab.number_input(key="Fit to").value == 78.0
    assert not tab.exception


def test_both_ends_of_a_window_can_be_typed_one_after_the_other(open_tab: OpenTab) -> None:
    """An end that was typed first was exchanged with the other one."""
    tab = open_log(
        open_tab, "time,f1,f2,u", (f"2024-03-04 {k // 6:02}:{k % 6}0,{k * 7 % 13},{k * 5 % 11},1" for k in range(60))
    )
    tab.text_input(key="Fit to").input("2024-03-04 03:00").run()
    tab.text_input(key="Fit from").input("2024-03-04 04:00").run()
    # The beginning is beyond the end until the end has been typed, too.
    assert tab.text_input(key="Fit from").value == "2024-03-04 04:00"
    # A fit would use the window before.
    assert tab.button(key="fit").disabled
    tab.text_input(key="Fit to").input("2024-03-04 05:00").run()
    values = [tab.text_input(key=name).value for name in ("Fit from", "Fit to")]
    assert values == ["2024-03-04 04:00:00", "2024-03-04 05:00:00"]
    assert not tab.button(key="fit").disabled
    # A day without a time ends at midnight, as on the command line.
    tab.text_input(key="Fit to").input("2024-03-04").run()
    assert tab.text_input(key="Fit to").value == "2024-03-04 09:50:00"
    for word in ("soon", "later"):
        tab.text_input(key="Fit to").input(word).run()
        assert tab.text_input(key="Fit to").value == word
        assert tab.button(key="fit").disabled
    tab.button(key="split").click().run()
    tab.text_input(key="Validate from").input("2024-03-04 04:30").run()
    assert tab.text_input(key="Fit to").value == "2024-03-04 04:20:00"
    assert "shortened" in tab.toast[0].value
    assert not tab.exception


@pytest.mark.parametrize("is_split", [False, True])
def test_columns_of_two_channels_can_be_exchanged(open_tab: OpenTab, is_split: bool) -> None:
    """One column for two channels ended the session."""
    tab = open_log(open_tab, "t,u,f1,f2", (f"{k},{k // 10 % 2},{k * 7 % 13},{k * 5 % 11}" for k in range(40)))
    if is_split:
        tab.checkbox(key="split-gaps").check().run()
    tab.selectbox(key="column-f1").select("u").run()
    assert [tab.selectbox(key=f"column-{name}").value for name in ("f1", "f2", "u")] == ["u", "f2", "f1"]
    assert tab.selectbox(key="role-u").value in ("", "hold")
    assert not tab.exception


def test_the_data_step_offers_to_split_a_log_at_gaps(open_tab: OpenTab) -> None:
    tab = open_tab()
    assert not any(box.key == "split-gaps" for box in tab.checkbox)
    tab.selectbox(key="example-0").select("heating").run()
    tab.checkbox(key="split-gaps").check().run()
    assert any("no gap found, so this is one record" in text.value for text in tab.markdown)


def test_two_clicks_lead_from_the_empty_page_to_a_fit(open_tab: OpenTab) -> None:
    tab = open_tab()
    assert tab.button(key="fit").disabled
    tab.button(key="try").click().run()
    assert tab.text_input(key="declared").value == "a, b"
    tab.button(key="fit").click().run()
    assert "Parameters of the fit" in "".join(item.body for item in tab.get("html"))
    # A file of the user stays if another example is chosen; simulated data follow the example.
    box = next(box for box in tab.selectbox if box.label == "Start with an example")
    box.select("spring_mass_damper").run()
    assert [item.value for item in tab.markdown if item.value.startswith("**simulated.csv**: 60 lines")]
    assert {tab.selectbox(key=f"column-{name}").value for name in ("x", "F")} == {"x", "F"}
    assert not tab.exception


def test_a_fit_needs_a_column_and_equations_can_be_proposed(open_tab: OpenTab) -> None:
    """With a file whose columns have other names, the fit failed only after it was started."""
    tab = open_tab()
    rows = "\n".join(f"{k},{20 + k * 7 % 13},{k // 10 % 2}" for k in range(40))
    tab.file_uploader[0].upload("log.csv", f"t,room [degC],heater [kW]\n{rows}\n".encode(), "text/csv").run()
    assert tab.button(key="fit").disabled
    tab.button(key="propose").click().run()
    assert tab.selectbox(key="role-heater").value == "hold"
    assert not tab.button(key="fit").disabled
    tab.selectbox(key="column-heater").select("– not measured –").run()
    tab.selectbox(key="column-room").select("– not measured –").run()
    assert tab.button(key="fit").disabled
    assert tab.button(key="fit-from-here").disabled
    shown = "".join(item.body for item in tab.get("html"))
    assert shown.count("column") == shown.count("No column is assigned") + shown.count("once a channel has a column")
    tab.file_uploader[0].upload("notes.csv", b"%PDF \x00\x01", "text/csv").run()
    shown = "".join(item.body for item in tab.get("html"))
    # The error is shown once, where the file was chosen.
    assert shown.count("got binary data") == 1
    assert not tab.exception


def test_links_to_the_steps_are_an_element_of_their_own_which_stays_at_the_top(open_tab: OpenTab) -> None:
    bodies = [item.body for item in open_tab().get("html")]
    assert sum(body.startswith('<nav aria-label="Steps"><ol class="lk-steps">') for body in bodies) == 1
    assert re.search(r":has\(\.lk-steps\) \{ position: sticky; top: 0;", "".join(bodies))


def test_a_fit_has_one_button_for_the_report_and_one_for_all_files(
    open_tab: OpenTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = open_tab()
    tab.selectbox(key="example-0").select("heating").run()
    next(button for button in tab.button if button.label == "Simulate").click().run()
    tab.button(key="fit").click().run()
    downloads = [button.label for button in tab.get("download_button")]
    assert downloads == ["Save session"]
    job = SimpleNamespace(task="files", is_running=True, progress=lambda: ("writing, report", 0.5, 3.0))
    job.result = lambda: {"trouble": "not enough memory"}
    with monkeypatch.context() as patch:
        patch.setattr(Patient, "start", lambda *_: job)
        tab.button(key="files").click().run()
    # The progress stands in the last step, where the button was pressed.
    shown = [node.proto.body if node.type == "html" else node.type for node in tab.main if node.type != "column"]
    place = next(k for k, text in enumerate(shown) if 'id="step-6"' in text)
    assert "progress" in shown[place:]
    assert "progress" not in shown[:place]
    job.is_running = False
    tab.run()
    tab.button(key="files").click().run()
    downloads = [button.label for button in tab.get("download_button")]
    assert downloads == ["Report", "All files (zip)", "Save session"]
    assert not tab.exception


def test_the_page_says_that_a_file_is_being_read(open_tab: OpenTab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read while the page says so."""
    doing, done = [""], []

    @contextmanager
    def spin(text: str, **_: Any) -> Iterator[None]:
        doing.append(text)
        yield
        doing.pop()

    def call(self: Present, name: str, *arguments: object, timeout: float = 1.0) -> object:
        done.append((name, doing[-1]))
        return REQUEST_HANDLERS[name](*arguments)

    monkeypatch.setattr(st, "spinner", spin)
    monkeypatch.setattr(Present, "call", call)
    tab = open_tab()
    tab.selectbox(key="example-0").select("heating").run()
    done.clear()
    tab.file_uploader[0].upload("log.csv", b"t,u,f1\n0,1,2\n1,2,3\n2,1,4\n3,1,2\n", "text/csv").run()
    reads = {doing for name, doing in done if name in ("open_file", "match_file")}
    assert reads == {"Reading log.csv"}
    assert not tab.exception


def test_typed_equations_replace_an_example_and_refused_ones_disable_the_fit(
    open_tab: OpenTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Patient()
    monkeypatch.setattr("lodekit.studio.controller.StudioServer", lambda: server)
    tab = open_tab()
    tab.selectbox(key="example-0").select("heating").run()
    next(button for button in tab.button if button.label == "Simulate").click().run()
    session = server.open("".join(tab.query_params["session"]))
    for text in ("f1' = -a*f1^2", "f1' = -a*f1"):
        session.change(equations=text, declared="a")
        tab.run()
        # The box with the choice is no longer on the page, so a late answer of the browser has no effect.
        (key,) = {box.key for box in tab.selectbox if box.label == "Start with an example"}
        assert key not in ("example-0", "example-1")
        assert tab.selectbox(key=key).value == "your own equations"
        assert session.session.equations == text
        is_refused = "^" in text
        assert [tab.button(key=name).disabled for name in ("fit", "fit-from-here")] == [is_refused] * 2
    session.change(equations="", declared="")
    tab.run()
    assert tab.button(key="fit").disabled
    assert not tab.exception


def test_what_was_typed_before_another_tab_changed_the_equations_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lodekit.studio import components

    state: dict[str, Any] = {}
    typed: dict[str, Any] = {"typed": None, "rest": 0}
    sent: list[dict[str, Any]] = []

    def show(data: dict[str, Any], **_: Any) -> SimpleNamespace:
        sent.append(data)
        return SimpleNamespace(**typed)

    monkeypatch.setattr(st, "session_state", state)
    monkeypatch.setattr(components, "_editor_component", lambda: show)
    assert components.equation_editor("x' = v", "e")[0] == "x' = v"
    typed["typed"] = {"text": "x' = 2*v", "edition": sent[-1]["edition"]}
    assert components.equation_editor("x' = v", "e")[0] == "x' = 2*v"
    # Another tab has changed the text; the browser has not answered yet.
    assert components.equation_editor("x' = 3*v", "e")[0] == "x' = 3*v"
    assert sent[-1]["edition"] != sent[-2]["edition"]
    typed["typed"] = {"text": "x' = 4*v", "edition": sent[-1]["edition"]}
    assert components.equation_editor("x' = 3*v", "e")[0] == "x' = 4*v"


def test_a_page_is_drawn_again_if_another_tab_changed_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from lodekit.studio import components
    from lodekit.studio.controller import SessionController

    server = Patient()
    own = server.open()
    runs: list[int] = []
    monkeypatch.setattr(st, "session_state", {"drawn": own.state})
    monkeypatch.setattr(st, "rerun", lambda: runs.append(1))
    follow: Callable[[SessionController], None] = components.follow_other_tabs.__wrapped__
    follow(own)
    components.store_edit(own, own.session)
    follow(own)
    assert not runs
    own.change(equations="x' = v")
    follow(own)
    assert runs
    server.close()


def test_a_page_is_drawn_again_once_if_an_entry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from lodekit.studio import components
    from lodekit.studio.controller import SessionController

    server = Patient()
    own = server.open()
    runs: list[int] = []
    state = {"drawn": own.state, "b-a": "", "b-a before": ""}
    monkeypatch.setattr(st, "session_state", state)
    monkeypatch.setattr(st, "rerun", lambda: runs.append(1))
    follow: Callable[[SessionController], None] = components.follow_other_tabs.__wrapped__
    follow(own)
    assert not runs
    state["b-a"] = "0.1 to 5"
    follow(own)
    # An entry that is refused, such as a window outside the record, stays as it is.
    follow(own)
    assert len(runs) == 1
    server.close()


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "the file is empty"), (b"PK\x03\x04" + bytes(99), "save the table as CSV")]
)
def test_files_without_a_table_are_refused_in_words(open_tab: OpenTab, content: bytes, said: str) -> None:
    tab = open_tab()
    tab.file_uploader[0].upload("table.csv", content, "text/csv").run()
    assert any(said in item.body for item in tab.get("html"))
