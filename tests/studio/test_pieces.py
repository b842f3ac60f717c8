"""The studio without its page: what is typed, matched, written, kept and saved."""

from __future__ import annotations

import ast
import io
import re
import runpy
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.preview import preview_table
from lodekit.data.row_store import missing_outputs_error
from lodekit.data.tables.columns import resolve_columns
from lodekit.diagnostics import messages
from lodekit.diagnostics.messages import stepped_channel_warnings
from lodekit.errors import DataError, LodekitError, ParameterError
from lodekit.report.panels import PLOTLY_MEAN_COLOR
from lodekit.studio.compute import MAX_EQUATION_CHARACTERS, compute_curve, parse_typed_equations, understand
from lodekit.studio.controller import (
    SessionController,
    StudioServer,
    collect_task,
    read_fit_result,
    start_export,
    start_fit,
    start_subtask,
)
from lodekit.studio.data_files import match_channels, open_data_file, simulate_csv
from lodekit.studio.session import (
    DEFAULT_CHOICES,
    ColumnAssignment,
    ParameterEntry,
    StudioSession,
    analyze_system,
    modes_at,
    session_from_dict,
    to_page_advice,
)
from lodekit.studio.session_files import (
    changed_settings,
    generate_script,
    generate_shell,
    pack_fit,
    pack_session,
    unpack_session,
)
from lodekit.studio.worker import RESULT_FILE
from lodekit.support.files import MODEL_FILE
from lodekit.system.catalog import examples
from lodekit.system.files import read_system_file
from tests.cli.command import run
from tests.studio.present import Patient, Present

STEPS = (np.arange(40.0), "u", np.arange(40) // 10 % 2)
EXAMPLES = {example.name: example for example in examples()}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionController:
    """The heating system of the catalog with simulated data, a part of them held out."""
    found = SessionController("token", tmp_path, StudioServer())
    monkeypatch.setattr("lodekit.studio.controller.ComputeProcess", Present)
    found.set_example("heating")
    found.simulate()
    found.set_window(7.0, 10.0, for_validation=True)
    return found


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_equations_of_the_catalog_are_understood_without_a_list_of_parameters(name: str) -> None:
    system = EXAMPLES[name].system
    _, inferred = parse_typed_equations("\n".join(system.equations))
    # An offset such as the temperature outside looks like a channel; it has to be declared.
    assert set(inferred) == set(system.parameters) - {"Ta"}
    again, _ = parse_typed_equations("\n".join(system.equations), ", ".join(system.parameters))
    assert analyze_system(again).sentences == tuple(again.explain().splitlines())


def test_names_that_are_not_used_wait_until_they_are() -> None:
    system, _ = parse_typed_equations("x' = -a*x", "a, later")
    assert list(system.parameters) == ["a"]


def test_derivatives_and_products_are_refused_as_by_the_library() -> None:
    for text in ("dx/dt = -x", "x' = -a*x*y"):
        with pytest.raises(lk.LodekitError) as own:
            parse_typed_equations(text)
        with pytest.raises(lk.LodekitError) as other:
            lk.System(text, parameters=["a"] if "a" in text else [])
        assert str(own.value).splitlines()[0].split(":")[0] == str(other.value).splitlines()[0].split(":")[0]
    assert parse_typed_equations("C*T' = k*(Ta - T)/R + u")[1] == ("C", "k", "R")
    assert parse_typed_equations("x' = x*k")[1] == ("k",)


def test_absurd_texts_are_refused_in_words() -> None:
    assert str(MAX_EQUATION_CHARACTERS) in understand(("x" * (MAX_EQUATION_CHARACTERS + 1), "")).error
    assert understand(("x' = " + "(" * 5000 + "x" + ")" * 5000, "")).error
    assert "not linear" in understand(("x*x = 1", "")).error


def test_exponents_are_those_of_numpy() -> None:
    system = lk.System("x''' + a*x'' + b*x' + c*x = u", parameters=["a", "b", "c"])
    found = modes_at(system, ["u"], {"a": 1.5, "b": 2.5, "c": 3.5})
    expected = np.roots([1.0, 1.5, 2.5, 3.5])
    assert np.sort_complex(np.array(found)) == pytest.approx(np.sort_complex(expected), abs=1e-12)


def test_what_is_typed_about_a_parameter_is_kept_though_it_is_wrong() -> None:
    entry = ParameterEntry("k", 2.0, bounds="five to six", prior="cauchy(1, 2)")
    with pytest.raises(ParameterError, match=r"k: expected a number on each side"):
        entry.parameter()
    with pytest.raises(ParameterError, match="expected a prior such as"):
        replace(entry, bounds="").parameter()
    assert session_from_dict(StudioSession(entries=(entry,)).to_dict()).entries == (entry,)


@pytest.mark.parametrize(
    "parameter",
    [
        lk.Parameter(positive=True, bounds=(0.1, 10), start=2),
        lk.Parameter(fixed=9.81),
        lk.Parameter(prior=lk.Normal(5, 1), start=0.25),
        lk.Parameter(positive=True, prior=lk.LogNormal(5, 0.7), start=1),
        lk.Parameter(bounds=(0.12345678, 9.87654321), start=1),
    ],
)
def test_a_parameter_survives_the_table_and_the_system_file(parameter: lk.Parameter, desk: SessionController) -> None:
    entry = ParameterEntry.from_parameter("a", parameter)
    assert entry.parameter(starts=True) == parameter
    desk.session = desk.session.with_entry(entry)
    path = desk.folder / "system.toml"
    path.write_text(desk.system_file(starts=True))
    assert read_system_file(path).system.parameters["a"] == parameter


def test_a_session_that_was_tampered_with_is_refused() -> None:
    spoiled: object
    for spoiled in (
        None,
        [],
        {"equations": 1},
        {**StudioSession().to_dict(), "entries": [{"name": 3}]},
        StudioSession(choices={**DEFAULT_CHOICES, "latent": "matern-9/2"}).to_dict(),
    ):
        with pytest.raises(LodekitError, match="expected a session"):
            session_from_dict(spoiled)


def test_stepped_columns_become_inputs_and_a_person_has_the_last_word(tmp_path: Path) -> None:
    rows = "\n".join(f"{k},{k // 10 % 2},{k * 7 % 13}" for k in range(40))
    (tmp_path / "log.csv").write_text(f"time [s],u,y\n{rows}\n")
    look = preview_table(tmp_path / "log.csv")
    system = lk.System("tau*y' + y = K*u", parameters=["tau", "K"])
    assert {m.assignment.channel: m.assignment.kind for m in match_channels(look, system, ())} == {"y": "", "u": "hold"}
    said = match_channels(look, system, [ColumnAssignment("u", "u", "linear"), ColumnAssignment("y", "")])
    assert [(m.assignment.column, m.assignment.kind) for m in said] == [("", ""), ("u", "linear")]


def test_only_ambiguous_or_empty_columns_are_left_to_the_user(tmp_path: Path) -> None:
    rows = "\n".join(f"{k},{k // 10 % 2},{k * 7 % 13},{k * 3 % 11}," for k in range(40))
    (tmp_path / "log.csv").write_text(f"time [s],u,T [degC],T [K],z\n{rows}\n")
    system = lk.System("T' = -a*(T - Ta) + b*u + z", parameters=["a", "b"])
    found = {m.assignment.channel: m for m in match_channels(preview_table(tmp_path / "log.csv"), system, ())}
    assert {name: m.assignment.column for name, m in found.items()} == {"T": "", "Ta": "", "u": "u", "z": ""}
    assert "ambiguous" in found["T"].reason
    assert found["z"].reason == "z contains no values"
    assert found["Ta"].reason == "no column has this name"
    assert "Ta" in analyze_system(system).undifferentiated
    assert "T" not in analyze_system(system).undifferentiated


def test_a_new_file_keeps_the_columns_that_it_has(desk: SessionController) -> None:
    rows = "\n".join(f"{k},{k // 10 % 2},{(k * 7 % 13) / 3}" for k in range(40))
    desk.change(equations="tau*y' + y = K*u", declared="")
    desk.set_file("one.csv", f"t,heater,y\n{rows}\n".encode())
    desk.session = desk.session.with_assignment(ColumnAssignment("u", "heater", "linear"))
    desk.change(split_gaps=True)
    desk.set_file("two.csv", f"t,heater,y\n{rows}\n".encode())
    assert desk.session.split_gaps
    assert ColumnAssignment("u", "heater", "linear") in [item.assignment for item in desk.matches]
    desk.set_file("three.csv", f"t,valve,y\n{rows}\n".encode())
    assert ColumnAssignment("u") in [item.assignment for item in desk.matches]


def test_nothing_of_earlier_equations_remains_if_others_replace_them(desk: SessionController) -> None:
    desk.set_example("two_room")
    assert "two_room" in desk.system_file()
    used = desk.session.entries[-1].name
    edited = desk.session.with_equations(desk.session.equations.replace("=", "= 2*0*t +", 1), desk.session.declared)
    assert edited.entries == desk.session.entries
    desk.session = desk.session.with_equations(f"y' = -{used}*y + v", desk.session.declared)
    assert [entry.name for entry in desk.session.entries] == [used]
    assert desk.session.declared == used
    # Equations of an example that were changed a little do not have its title.
    desk.set_example("two_room")
    desk.change(equations=desk.session.equations.replace("=", "= 2*", 1))
    assert "two_room" not in desk.system_file()
    desk.set_example("heating")
    assert {entry.name for entry in desk.session.entries} == set(desk.catalog["heating"]["parameters"])


def test_refused_equations_are_neither_fitted_nor_simulated(desk: SessionController) -> None:
    desk.change(equations="x' = -x^2", example="")
    assert desk.is_outdated
    start_fit(desk)
    assert (desk.errors["fit"], desk.task) == ("Correct the equations in step 1 first.", None)
    with pytest.raises(LodekitError, match="Correct the equations in step 1"):
        desk.simulate()


def test_a_file_with_unordered_times_offers_other_time_columns(tmp_path: Path) -> None:
    rows = "\n".join(f"{k * 7 % 20},{k},{k % 3}" for k in range(20))
    (tmp_path / "log.csv").write_text(f"t,clock,y\n{rows}\n")
    found = open_data_file(tmp_path / "log.csv")
    assert to_page_advice(found.error).endswith("choose another time column in step 2, or none")
    assert not found.records
    assert open_data_file(tmp_path / "log.csv", time_column="clock").window == (0.0, 19.0)


def test_a_channel_that_is_left_out_is_left_out_of_the_fit_and_of_the_system_file(desk: SessionController) -> None:
    desk.session = desk.session.with_assignment(ColumnAssignment("u", ""))
    path = desk.folder / "system.toml"
    path.write_text(desk.system_file())
    assert read_system_file(path).columns == {"u": "-"}
    figure, words, _ = desk.curve_figure()
    assert "over the measurements" in words
    assert "not measured" in str(figure["layout"]["annotations"])


def test_a_file_without_times_asks_for_the_time_between_lines(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("a,b\n" + "\n".join(f"{k % 3},{k % 5}" for k in range(9)))
    assert not open_data_file(tmp_path / "log.csv").records
    assert open_data_file(tmp_path / "log.csv", 0.5).window == (0.0, 4.0)


def test_a_time_column_that_was_chosen_is_in_the_system_file(desk: SessionController) -> None:
    rows = "\n".join(f"{k},{k / 4},{k // 10 % 2},{(k * 7 % 13) / 3}" for k in range(40))
    desk.set_file("log.csv", f"time,clock,u,y\n{rows}\n".encode())
    desk.change(equations="tau*y' + y = K*u", declared="")
    desk.session = desk.session.with_assignment(ColumnAssignment("t", "clock"))
    assert desk.data_file is not None
    assert desk.data_file.window == (0.0, 9.75)
    (desk.folder / "system.toml").write_text(desk.system_file())
    assert read_system_file(desk.folder / "system.toml").columns == {"t": "clock"}


def test_of_a_wide_file_all_columns_can_be_chosen_though_few_are_drawn(tmp_path: Path) -> None:
    names = [f"y{k}" for k in range(50)]
    rows = [",".join([str(t), *(str((t + 1) * k % 7) for k in range(50))]) for t in range(9)]
    (tmp_path / "log.csv").write_text("\n".join([",".join(["t", *names]), *rows]))
    found = open_data_file(tmp_path / "log.csv")
    assert "y49" in found.columns
    assert len(found.points()) < 50
    assert "of 50 columns are drawn" in "; ".join(found.notes)


def test_simulated_data_have_the_noise_gaps_and_hidden_channels_that_were_asked_for(tmp_path: Path) -> None:
    example = EXAMPLES["heating"]
    options: dict[str, Any] = {"count": 400, "noise": 0.05, "missing_fraction": 0.25, "hidden": ("u",), "seed": 3}
    (tmp_path / "log.csv").write_text(simulate_csv(example.system, {}, example, **options))
    found = open_data_file(tmp_path / "log.csv")
    assert set(found.columns) == {"f1", "f2"}
    times, values = found.points()["f1"]
    # A quarter is missing, give or take four standard deviations of a count.
    assert abs(len(times) - 300) < 4 * np.sqrt(400 * 0.25 * 0.75)
    error = values - example.solution_at(times)[:, 0]
    size = 0.05 * np.std(example.solution_at(np.linspace(0, 10, 400))[:, 0])
    assert np.std(error) == pytest.approx(size, rel=0.2)
    with pytest.raises(LodekitError, match="at least one channel"):
        simulate_csv(example.system, {}, example, hidden=("f1", "f2", "u"))


def test_windows_of_fit_and_validation_never_overlap(desk: SessionController) -> None:
    assert (desk.session.window, desk.session.held_out) == ((None, 7.0), (7.0, 10.0))
    desk.set_window(2.0, 8.0, for_validation=False)
    assert (desk.session.window, desk.session.held_out) == ((2.0, 8.0), (8.0, 10.0))
    desk.set_window(0.0, 10.0, for_validation=False)
    assert desk.session.held_out is None


def test_windows_of_fit_and_validation_share_no_row(desk: SessionController) -> None:
    desk.set_file("even.csv", b"t,f1,f2,u\n" + b"\n".join(b"%d,1,2,3" % k for k in range(11)))
    desk.set_window(7.0, 10.0, for_validation=True)
    assert (desk.session.window, desk.session.held_out) == ((None, 6.0), (7.0, 10.0))
    assert "--to 6.0" in generate_shell(desk.session, desk.folder)
    desk.set_window(2.0, 8.0, for_validation=False)
    assert (desk.session.window, desk.session.held_out) == ((2.0, 8.0), (9.0, 10.0))


def test_what_is_known_over_the_held_out_part_is_measured_there(desk: SessionController) -> None:
    """The page offers nothing else, and shows earlier fits though the next file cannot be read."""
    assert desk.possible_given == [("f1",), ("f2",), ("u",)]
    desk.session = desk.session.with_assignment(ColumnAssignment("u", ""))
    desk.change(given=("u",))
    assert desk.possible_given == [("f1",), ("f2",)]
    assert desk.given == ("f2",)
    desk.set_file("odd.csv", b"\x00\x01")
    assert not desk.given


def fit_and_export(desk: SessionController) -> tuple[str, dict[str, Any]]:
    """Fit, write the report, and return the name and the result of the fit."""
    desk.server = Patient()
    start_fit(desk)
    assert collect_task(desk)
    (name,) = desk.session.tray
    start_export(desk, name, figures=False)
    assert collect_task(desk)
    return name, read_fit_result(desk, name)


def driven_log(seed: int, period: int) -> bytes:
    """Return a log of y' = -0.5*y + u + w with noise w, and a constant column of another name for it."""
    generator, rows, level = np.random.default_rng(seed), [], 0.0
    for k in range(60):
        u = k // period % 2
        rows.append(f"{k},{u},{level:.5f}")
        level += (1.0 - np.exp(-0.5)) * (2.0 * u - level) + 0.02 * generator.standard_normal()
    return "\n".join(["t,u,y", *rows]).encode()


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> SessionController:
    """A fit with a known input and a disturbance."""
    found = SessionController("token", tmp_path_factory.mktemp("driven"), Patient())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lodekit.studio.controller.ComputeProcess", Present)
        found.set_file("log.csv", driven_log(0, 10))
        found.change(equations="y' = -a*y + u + w")
        found.session = found.session.with_assignment(ColumnAssignment("w", kind="white"))
        start_fit(found)
        collect_task(found)
    return found


def test_a_disturbance_is_chosen_as_the_role_of_a_channel(driven: SessionController) -> None:
    own = driven.folder / "fit-1" / "system.toml"
    assert read_system_file(own).disturbances == {"w": "white"}
    assert read_system_file(own).inputs == {"u": "hold"}
    assert session_from_dict(driven.session.to_dict()) == driven.session
    found = read_fit_result(driven, "fit-1")
    assert found["parameters"]["a"]["value"] == pytest.approx(0.5, abs=0.1)
    gp = lk.LODEGP.load(driven.folder / "fit-1" / MODEL_FILE)
    assert gp.disturbances == {"w": "white"}
    # White noise has no values to draw.
    figures = (*(each["Curves"] for each in found["figures"].values()), driven.curve_figure()[0])
    inputs = [trace for figure in figures for trace in figure["data"] if trace["name"] == "known input"]
    # A known input has one colour on the whole page, and not that of a mean.
    assert len(inputs) == 2
    assert len({PLOTLY_MEAN_COLOR, *(trace["line"]["color"] for trace in inputs)}) == 2
    assert [note["text"] for note in driven.curve_figure()[0]["layout"]["annotations"]] == [
        "<b>y</b>",
        "<b>u</b> – known",
    ]


def test_a_disturbance_without_a_known_input_is_fitted_and_drawn_from_the_start_of_the_record(
    desk: SessionController,
) -> None:
    desk.server = Patient()
    desk.set_file("noise.csv", b"t,x\n" + b"\n".join(b"%d,%d" % (k, k * k % 7) for k in range(12)))
    desk.change(equations="x' = -a*x + w", declared="a")
    desk.session = desk.session.with_assignment(ColumnAssignment("w", kind="white"))
    start_fit(desk)
    assert collect_task(desk)
    assert not desk.errors
    found = read_fit_result(desk, "fit-1")
    assert found["residual_verdict"] == "too few to test"
    (figures,) = found["figures"].values()
    for figure in (figures["Curves"], desk.curve_figure()[0]):
        assert min(min(trace["x"]) for trace in figure["data"]) == 0.0


def test_a_fit_is_validated_on_another_file_and_the_download_contains_the_result(driven: SessionController) -> None:
    (driven.folder / "fit-1" / "files").mkdir()
    start_subtask(driven, "fit-1", "validate", ("log.csv", driven_log(1, 7)))
    assert collect_task(driven)
    # The next report contains the result.
    assert not (driven.folder / "fit-1" / "files").exists()
    found = read_fit_result(driven, "fit-1", "validate")
    assert found["channels"]["y"]["fit_percent"] > 80
    assert found["verdict"]
    assert found["figure"]["data"]
    with zipfile.ZipFile(io.BytesIO(pack_fit(driven.folder / "fit-1", []))) as archive:
        assert "The free run of y" in archive.read("validation.txt").decode()
        assert archive.read("other-log.csv") == driven_log(1, 7)
        assert 'print(gp.validate("other-log.csv"))' in archive.read("fit.py").decode()
    gp = lk.LODEGP.load(driven.folder / "fit-1" / MODEL_FILE)
    result = gp.validate(str(driven.folder / "fit-1" / "validate" / "other-log.csv"))
    assert found["text"] == f"Validation: other-log.csv\n{result!r}"
    start_export(driven, "fit-1", figures=False)
    assert collect_task(driven)
    report = (driven.folder / "fit-1" / "files" / "report.html").read_text()
    assert re.search("Validation: other-log.csv</h2>.*Free run with its 95 % band", report, re.DOTALL)
    # The session file contains it as well; a file that cannot be used is refused in words.
    elsewhere = SessionController("token", driven.folder / "fit-1" / "validate", Patient())
    elsewhere.session = unpack_session(pack_session(driven.session, driven.folder), elsewhere.folder)
    assert read_fit_result(elsewhere, "fit-1", "validate") == found
    start_subtask(driven, "fit-1", "validate", ("odd.csv", b"t,z\n0,1\n1,2\n"))
    collect_task(driven)
    assert "odd.csv: " in driven.errors["validate"]
    assert str(driven.folder) not in driven.errors["validate"]
    start_subtask(driven, "fit-1", "validate", ("other.csv", driven_log(1, 7).replace(b"u", b"valve")))
    collect_task(driven)
    shown = to_page_advice(driven.errors["validate"])
    assert shown.endswith("rename the column in the file; the fit used the columns t, y, u")


def test_a_fit_is_simulated_with_a_step_or_with_the_inputs_of_a_file(driven: SessionController) -> None:
    gp = lk.LODEGP.load(driven.folder / "fit-1" / MODEL_FILE)
    request = {"steps": {"u": (0.0, 3.0)}, "at": 5.0, "duration": 50.0}
    tables = {}
    for start, content in {"rest": None, "end": None, "steady": b"t,u\n0,1\n10,2\n"}.items():
        upload = None if content is None else ("inputs.csv", content)
        start_subtask(driven, "fit-1", "simulate", upload, start=start, **request)
        assert collect_task(driven)
        assert "simulate" not in driven.errors
        path = driven.folder / "fit-1" / "simulate" / "simulation.csv"
        tables[start] = np.genfromtxt(path, delimiter=",", names=True)
    times = tables["rest"]["t"]
    assert (times[0], times[-1]) == (0.0, 50.0)
    assert set(tables["rest"]["u"][times < 5.0]) == {0.0}
    assert set(tables["rest"]["u"][times >= 5.0]) == {3.0}
    signals = {"u": ([0.0, 5.0], [0.0, 3.0])}
    mean, std = gp.simulate(times, signals, observable="y", return_std=True)
    assert tables["rest"]["y"] == pytest.approx(mean, abs=1e-9)
    assert tables["rest"]["stdy"] == pytest.approx(std, rel=1e-9)
    assert (tables["end"]["t"][0], tables["end"]["t"][-1]) == (59.0, 109.0)
    assert tables["steady"]["y"][0] == pytest.approx(float(gp.simulate([0.0], {"u": 1.0}, "steady", "y")[0]), rel=1e-6)
    names = {trace["name"] for trace in read_fit_result(driven, "fit-1", "simulate")["figure"]["data"]}
    assert names == {"95 % band", "simulation", "known input"}


def test_code_and_command_repeat_a_simulation_if_columns_have_other_names_than_channels(
    desk: SessionController, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="the code reads a CSV file with pandas")
    rows, level = "", 0.0
    for k in range(24):
        rows += f"2024-03-04 {k:02}:00,{k // 6 % 2},{level + 0.02 * np.sin(50 * k):.4f}\n"
        level += 0.3 * (2.0 * (k // 6 % 2) - level)
    desk.set_file("log.csv", f"time,Valve [%],Level [cm]\n{rows}".encode())
    desk.change(equations="tau*y' + y = K*u", declared="tau, K")
    desk.session = desk.session.with_assignment(ColumnAssignment("u", "Valve [%]", "hold"))
    desk.session = desk.session.with_assignment(ColumnAssignment("y", "Level [cm]"))
    desk.server = Patient()
    start_fit(desk)
    assert collect_task(desk)
    fit = desk.folder / "fit-1"
    assert read_fit_result(desk, "fit-1")["span"] == "2024-03-04 00:00 to 2024-03-04 23:00"
    plan = b"time,Valve [%]\n2024-03-05 00:00,1\n2024-03-05 04:00,0\n2024-03-05 09:00,1\n"
    start_subtask(desk, "fit-1", "simulate", ("plan.csv", plan), start="end")
    assert collect_task(desk)
    monkeypatch.chdir(fit / "simulate")
    table = np.genfromtxt("simulation.csv", delimiter=",", names=True)
    script = generate_script(desk.session, fit)
    Path("code.py").write_text(script[script.index("import pandas") :].replace("print(", "found = ("))
    found = runpy.run_path("code.py", {"gp": lk.LODEGP.load(fit / MODEL_FILE)})["found"]
    assert np.asarray(found)[:, -2:] == pytest.approx(np.column_stack([table["y"], table["u"]]), abs=1e-9)
    words = shlex.split(generate_shell(desk.session, fit).splitlines()[-1])
    assert words[:3] == ["lodekit", "simulate", "log-fit"]
    done = run(*[str(fit / MODEL_FILE) if word == "log-fit" else word for word in words[1:]])
    assert done.returncode == 0, done.stderr
    again = np.genfromtxt("response.csv", delimiter=",", names=True)
    assert again["y"] == pytest.approx(table["y"], abs=1e-9)


def is_lk(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "lk"


def test_a_fit_of_the_studio_is_that_of_the_library(
    desk: SessionController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same numbers from the script that is taken away, and the curve of the sliders is the posterior mean."""
    name, found = fit_and_export(desk)
    content = pack_fit(desk.folder / name, read_fit_result(desk, name, "files")["files"])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {"fit.py", "system.toml", "simulated.csv", MODEL_FILE, "report.html"}
        files |= {"predictions.csv", "validation.txt"}
        assert set(archive.namelist()) == files
        archive.extractall(tmp_path / "taken")
    script = (tmp_path / "taken" / "fit.py").read_text()
    assert [line for line in script.splitlines() if "import" in line] == ["import lodekit as lk"]
    assert {node.attr for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Attribute) and is_lk(node)} <= {
        *lk.__all__
    }
    monkeypatch.chdir(tmp_path / "taken")
    # Figures take longer than everything else.
    monkeypatch.setattr("lodekit.workflow.pipeline.draw_figures", lambda gp: ({}, []))
    names: dict[str, object] = {}
    exec(compile(script, "script", "exec"), names)  # noqa: S102 - the very lines that people take away
    assert Path("log-fit", "report.html").is_file()
    report = (tmp_path / "taken" / "report.html").read_text()
    assert "run = lk.fit_file(&quot;system.toml&quot;" in report
    # The part of the record that was used is named.
    assert "The free run of f1" in report.partition(">Validation: simulated.csv, t = ")[2]
    assert "The free run of f1" in capsys.readouterr().out
    gp = names["gp"]
    assert isinstance(gp, lk.LODEGP)
    assert found["log_evidence"] == gp.log_evidence_
    assert {n: own["value"] for n, own in found["parameters"].items()} == {
        n: e.value for n, e in gp.parameters_.items()
    }
    fit = lk.LODEGP.load(desk.folder / name / MODEL_FILE).fit_
    times, mean, _ = compute_curve(fit.setup, fit.setup, fit.hyperparameters, {})
    assert np.array_equal(mean, gp.predict(times))
    assert found["validation"]["channels"]["f1"]["fit_percent"] > 0
    (figures,) = found["figures"].values()
    assert list(figures) == ["Curves", "Residuals", "Autocorrelation"]
    assert {trace["name"] for trace in figures["Residuals"]["data"]} == {"residual"}
    # Dotted lines at the 95 % limits of white noise: for each channel, two beside zero.
    count = found["residuals"]["f1"]["count"]
    limits = {round(line["y0"], 9) for line in figures["Autocorrelation"]["layout"]["shapes"]}
    assert limits == {0.0, round(1.959963985 / count**0.5, 9), -round(1.959963985 / count**0.5, 9)}
    assert len(figures["Autocorrelation"]["data"]) == 3


def test_a_session_file_restores_fits_and_is_refused_if_it_is_damaged(desk: SessionController, tmp_path: Path) -> None:
    name, found = fit_and_export(desk)
    assert changed_settings(desk.folder / name, desk.resolved_session(), desk.parsed.equations) == []
    other = replace(desk.resolved_session().with_entry(ParameterEntry("a", is_fixed=True)), split_gaps=True)
    (desk.folder / desk.session.file).write_text("t,f1\n0,1\n")
    changed = ["equations " + "; ".join(found["equations"]), "file simulated.csv"]
    changed += ["constraints of parameters", "sampling interval or splitting at gaps"]
    assert changed_settings(desk.folder / name, other, ["x' = -x"]) == changed
    content = pack_session(desk.session, desk.folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert unpack_session(content, elsewhere) == desk.session
    assert (elsewhere / name / RESULT_FILE).read_bytes() == (desk.folder / name / RESULT_FILE).read_bytes()
    with pytest.raises(LodekitError, match="damaged"):
        unpack_session(content[:-200] + bytes(200), elsewhere)
    # What is on the page stays where another session is damaged, and goes, with its report, where it is not.
    result = desk.folder / name / RESULT_FILE
    kept, before = result.read_bytes(), desk.session
    result.write_bytes(b"{")
    spoiled = pack_session(before, desk.folder)
    result.write_bytes(kept)
    with pytest.raises(LodekitError, match="damaged"):
        desk.reopen(spoiled)
    assert result.read_bytes() == kept
    assert read_fit_result(desk, name, "files")
    desk.errors["fit"] = "too few lines"
    desk.reopen(content)
    assert (desk.session.tray, desk.errors) == (before.tray, {})
    assert read_fit_result(desk, name)["log_evidence"] == found["log_evidence"]
    assert not read_fit_result(desk, name, "files")


def test_a_session_that_could_not_be_opened_again_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = SessionController("token", tmp_path, StudioServer())
    desk.change(file="log.csv")
    monkeypatch.setattr("lodekit.studio.session_files.MAX_UPLOAD_BYTES", 100_000)
    # What shrinks when it is packed may be larger.
    for content in (bytes(10), bytes(200_000)):
        (tmp_path / "log.csv").write_bytes(content)
        assert desk.save_error == ""
        assert unpack_session(pack_session(desk.session, tmp_path), tmp_path) == desk.session
    (tmp_path / "log.csv").write_bytes(np.random.default_rng(0).bytes(300_000))
    assert "expected a session of at most 0.1 MB, got 0.3 MB; remove fits" in desk.save_error
    with pytest.raises(LodekitError, match=r"at most 0.1 MB, got 0.3 MB"):
        unpack_session(pack_session(desk.session, tmp_path), tmp_path)
    monkeypatch.setattr("lodekit.support.files._MIN_EXPANDED_BYTES", 1000)
    (tmp_path / "log.csv").write_bytes(bytes(1_000_000))
    assert "its data are too repetitive" in desk.save_error


def test_curves_follow_the_sliders(desk: SessionController) -> None:
    at_truth = desk.curve_figure()
    desk.session = desk.session.with_entry(replace(desk.session.entry("a"), value=9.0))
    elsewhere = desk.curve_figure()
    assert at_truth[2] > elsewhere[2] + 10
    assert at_truth[0]["data"][1]["y"] != elsewhere[0]["data"][1]["y"]


def test_every_record_of_a_file_can_be_shown(desk: SessionController) -> None:
    rows = [f"{run},{k / 5},{run + k % 3},{run * k}" for run in (1, 2) for k in range(20)]
    desk.set_file("runs.csv", "\n".join(["run,t,x,v", *rows]).encode())
    desk.change(equations="x' = v", declared="")
    recording = desk.data_file
    assert recording is not None
    assert list(recording.records) == ["1", "2"]
    assert recording.points("2")["v"][1].tolist() == [2.0 * k for k in range(20)]
    shown = []
    for record in ("1", "2"):
        desk.change(record=record)
        figure, words, _ = desk.curve_figure()
        shown.append(figure["data"][1]["y"])
        assert f"of record {record}" in words
    assert shown[0] != shown[1]


def test_a_log_is_split_at_gaps_into_records_that_are_fitted_and_validated(desk: SessionController) -> None:
    rows, level = [], 0.0
    for k in range(90):
        u = k // 9 % 2
        rows.append(f"{k + 50 * (k // 30)},{u},{level + 0.01 * np.sin(50 * k):.4f},{k % 5}")
        level += (1.0 - np.exp(-1 / 3)) * (2.0 * u - level)
    desk.set_file("log.csv", "\n".join(["t,u,y,unused", *rows]).encode())
    desk.change(equations="tau*y' + y = K*u", declared="")
    recording = desk.data_file
    assert recording is not None
    assert len(recording.records) == 1
    desk.change(split_gaps=True)
    desk.set_window(150.0, 200.0, for_validation=True)
    recording = desk.data_file
    assert recording is not None
    assert [recording.span(record) for record in recording.records] == [(0.0, 29.0), (80.0, 109.0), (160.0, 189.0)]
    assert "3 records" in "; ".join(recording.notes)
    assert "--split-gaps" in generate_shell(desk.session, desk.folder).splitlines()[0]
    assert "--split-gaps" in generate_shell(desk.session, desk.folder).splitlines()[1]
    desk.change(record="1")
    assert "of record 1" in desk.curve_figure()[1]
    desk.server = Patient()
    start_fit(desk)
    assert collect_task(desk)
    found = read_fit_result(desk, desk.session.tray[0])
    assert list(found["figures"]) == ["0", "1"]
    assert found["window"] == [0.0, 109.0]
    assert found["parameters"]["K"]["value"] == pytest.approx(2.0, abs=0.05)
    assert found["validation"]["channels"]["y"]["fit_percent"] > 90


def test_the_lines_for_the_shell_are_those_of_the_session(tmp_path: Path) -> None:
    own = StudioSession(file="my log.csv", held_out=(5.0, 9.0), window=(None, 5.0), dt=0.5, given=("u",))
    assert generate_shell(own, tmp_path).splitlines() == [
        "lodekit fit system.toml 'my log.csv' --dt 0.5 --to 5.0 --seed 0 --out log-fit",
        "lodekit validate log-fit 'my log.csv' --given u --dt 0.5 --from 5.0 --to 9.0",
    ]


def test_a_log_begins_with_what_is_proposed_for_it(desk: SessionController) -> None:
    """Equations, parameters and roles as `lodekit init` writes them; what somebody has typed stays."""
    lines = [f"{t};{(t // 10) % 2};{20 + t % 7 / 3}" for t in range(60)]
    desk.set_file("log.csv", "\n".join(["t;Power [kW];Temp. Tank 1 (degC)", *lines]).encode())
    before = desk.session.equations
    desk.apply_proposal()
    assert desk.session.equations == before
    desk.change(equations="", declared="")
    desk.apply_proposal()
    assert desk.session.equations == "tau*Temp_Tank_1' + Temp_Tank_1 - Temp_Tank_1_0 = K*Power"
    assert {name: desk.session.entry(name).is_positive for name in ("tau", "K")} == {"tau": True, "K": False}
    found = {item.assignment.channel: item.assignment for item in desk.matches}
    assert (found["Power"].column, found["Power"].kind) == ("Power [kW]", "hold")
    assert (found["Temp_Tank_1"].column, found["Temp_Tank_1"].kind) == ("Temp. Tank 1 (degC)", "")


def test_advice_on_the_page_names_its_controls_and_no_arguments_or_options() -> None:
    """Every message of the diagnostics: what is filled in is u here."""
    tree = ast.parse(Path(messages.__file__).read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = []
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if id(node) not in inner and isinstance(node, ast.JoinedStr | ast.Constant):
            texts.append("".join(str(part.value) if isinstance(part, ast.Constant) else "u" for part in parts))
    foreign = re.compile(r"--\w|noise_std|\w=[\w{'\"]|lk\.|positive = true")
    advised = [text for text in texts if foreign.search(text) and ">>>" not in text]
    assert len(advised) > 8
    assert [text for text in map(to_page_advice, advised) if foreign.search(text)] == []
    found = to_page_advice(stepped_channel_warnings([lk.Observations().add(*STEPS).series[0]], {}, ["u"])[0])
    assert found.endswith("if it is a known input, choose the role 'known input, held' for u in step 2")
    with pytest.raises(DataError) as caught:
        resolve_columns(["t", "a"], ["y"])
    assert to_page_advice(str(caught.value)).endswith("choose the column of y in step 2")
    for names in (["a", "b"], ["1", "2"], ["t", "time", "y"]):
        with pytest.raises(DataError) as caught:
            resolve_columns(names, ["y"])
        assert not foreign.search(to_page_advice(str(caught.value)))
    assert (
        to_page_advice(
            "the run is free; this record continues the fitted one, so "
            'the run can also start from the state at its end: try start="end"'
        )
        == "the run is free"
    )
    assert to_page_advice("give noise_std, or [noise] in a system file").startswith(
        "give the noise level ([noise] in the"
    )
    assert to_page_advice(str(missing_outputs_error(["u"]))).endswith("choose it in step 2")
    with pytest.raises(ParameterError) as refused:
        ParameterEntry("a", 5.0, is_fixed=True, bounds="0 to 3").parameter()
    assert to_page_advice(str(refused.value)).endswith("change the value or the limits in step 3")


def test_the_status_for_screen_readers_names_the_task_an_error_or_the_last_fit(desk: SessionController) -> None:
    assert desk.status == ""
    desk.change(tray=("fit-1",))
    assert desk.status == "fit-1 is complete."
    desk.errors["fit"] = "expected a column for x, got none; try columns={'x': 'COLUMN'}"
    assert desk.status == "expected a column for x, got none; choose the column of x in step 2"
    desk.task = SimpleNamespace(task="fit")  # type: ignore[assignment]
    assert desk.status == "Fitting."


def test_sliders_show_units_that_follow_from_those_of_the_columns(desk: SessionController) -> None:
    rows = "\n".join(f"{k},{k // 10 % 2},{(k * 7 % 13) / 3}" for k in range(40))
    desk.set_file("log.csv", f"time [min],u [kW],y [degC]\n{rows}\n".encode())
    desk.change(equations="tau*y' + y = K*u", declared="")
    assert desk.parameter_units == {"tau": "min", "K": "degC/kW"}
    desk.set_file("log.csv", f"t,u,y\n{rows}\n".encode())
    assert desk.parameter_units == {}
