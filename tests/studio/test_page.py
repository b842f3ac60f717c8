"""The studio in a real browser: every step, what goes wrong, two people at once, a reload, a phone."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lodekit as lk
from lodekit.workflow.pipeline import fit_file
from studio_browser import HOW, PATIENCE, Server, Visitor, browsing, find_browser, serving

pytest.importorskip("streamlit", reason="the studio needs Streamlit: pip install 'lodekit[studio]'")
expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if find_browser() is None:
        pytest.skip(HOW)
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[tuple[Any, str]]:
    with browsing() as browser:
        # One context, so that the script of the page is fetched once.
        yield browser.new_context(viewport={"width": 1280, "height": 900}), server.address


def check_that_nothing_leaks(visitor: Visitor, address: str) -> None:
    """Whatever happened, nobody saw where things are kept, or a traceback, and nothing came from elsewhere."""
    text = visitor.page.inner_text("body")
    assert "Traceback" not in text
    assert "/tmp" not in text  # noqa: S108
    assert all(url.startswith((address, "data:", "blob:")) for url in visitor.fetched)


@pytest.fixture(scope="module")
def regular(place: tuple[Any, str]) -> Iterator[Visitor]:
    """Somebody who stays: opening a page takes longer than most tests."""
    found = Visitor(*place)
    yield found
    found.close()


@pytest.fixture
def visitor(regular: Visitor, place: tuple[Any, str]) -> Iterator[Visitor]:
    yield regular
    check_that_nothing_leaks(regular, place[1])


@pytest.fixture
def newcomer(place: tuple[Any, str]) -> Iterator[Visitor]:
    """Somebody whose session is empty."""
    found = Visitor(*place)
    yield found
    check_that_nothing_leaks(found, place[1])
    found.close()


@pytest.fixture(scope="module")
def fitted(place: tuple[Any, str]) -> Iterator[Visitor]:
    """Somebody who has gone all the way once."""
    found = Visitor(*place)
    found.take_example("heating")
    found.simulate()
    found.click("Keep the last 30 % for validation")
    found.sees("Validate from")
    found.fit()
    yield found
    found.close()


def test_equations_are_explained_while_they_are_typed(visitor: Visitor) -> None:
    visitor.type("tau*y' + y = K*u")
    visitor.sees("One function of time can be chosen freely: either y or u.")
    visitor.sees("Recognised as parameters: tau, K.")
    expect(visitor.page.locator(".lk-equations math")).to_have_count(1)
    visitor.type("x'' + 4*x = 0")
    visitor.sees("undamped oscillation")
    # While the page is drawn again, there can be two.
    plane = visitor.page.locator('[aria-label^="Complex plane"]').first
    expect(plane).to_have_attribute("aria-label", re.compile("uncontrollable modes at 0 - 2i"))


def test_what_does_not_parse_is_shown_with_a_caret_and_stays_in_the_editor(visitor: Visitor) -> None:
    visitor.type("x' = -k*(x - y")
    visitor.sees("this '(' is never closed")
    assert visitor.page.locator(".lk-note.warning pre").first.inner_text().endswith("^")
    assert visitor.editor().input_value() == "x' = -k*(x - y"


def test_the_proof_is_shown_to_those_who_want_it(visitor: Visitor) -> None:
    visitor.type("x' = v")
    visitor.sees("either x or v")
    visitor.click_text("Smith form and proof")
    visitor.sees("Proved: U A V = D")


def test_a_file_that_is_no_table_is_refused_in_words(visitor: Visitor) -> None:
    visitor.type("x' = -a*x")
    visitor.drop("notes.csv", b"\x00\x01\x02 this is no table")
    visitor.sees("notes.csv: expected")
    assert visitor.editor().input_value() == "x' = -a*x"


def test_stepped_columns_are_proposed_as_inputs_and_can_be_changed(visitor: Visitor) -> None:
    visitor.type("tau*y' + y = K*u")
    rows = "\n".join(f"{k},{k // 10 % 2},{(k * 7 % 13) / 3}" for k in range(40))
    visitor.drop("log.csv", f"time [s],u,y [m]\n{rows}\n".encode())
    visitor.sees("takes two values only")
    visitor.sees("known input, held")
    visitor.choose("Role of u", "measured")
    visitor.sees("chosen by you")
    expect(visitor.page.locator('[aria-label^="The record"]').first).to_have_attribute(
        "aria-label", re.compile("u – measured")
    )


def test_windows_are_marked_by_dragging_over_the_record(visitor: Visitor) -> None:
    visitor.type("x' = v")
    rows = "\n".join(f"{k},{(k * 7 % 13) / 3}" for k in range(101))
    visitor.drop("drag.csv", f"t,x\n{rows}\n".encode())
    visitor.sees("drag.csv")
    visitor.brush(0.0, 0.6, "Fit to")
    assert 55 < visitor.number("Fit to") < 65
    visitor.click_text("validation")
    visitor.brush(0.8, 0.95, "Validate to")
    assert 75 < visitor.number("Validate from") < 85
    assert 90 < visitor.number("Validate to") < 99
    # The first window is where it was.
    assert 55 < visitor.number("Fit to") < 65


def test_windows_of_records_with_dates_are_dates(newcomer: Visitor) -> None:
    newcomer.type("x' = v")
    rows = "\n".join(f"2024-03-{4 + k // 24:02} {k % 24:02}:00,{(k * 7 % 13) / 3}" for k in range(97))
    newcomer.drop("dates.csv", f"time,x\n{rows}\n".encode())
    newcomer.sees("dates.csv")
    field = newcomer.page.get_by_label("Fit to", exact=True).first
    expect(field).to_have_value("2024-03-08 00:00:00")
    newcomer.brush(0.0, 0.5, "Fit to")
    expect(field).to_have_value(re.compile("^2024-03-0[56]"))
    field.fill("2024-03-07 12:00")
    field.press("Enter")
    expect(field).to_have_value("2024-03-07 12:00:00")
    field.fill("soon")
    field.press("Enter")
    newcomer.sees("expected a number or a date")


def test_of_several_records_each_can_be_shown(visitor: Visitor) -> None:
    visitor.type("x' = v")
    rows = "\n".join(f"{run},{k / 4},{run + k * 7 % 13}" for run in (1, 2) for k in range(30))
    visitor.drop("runs.csv", f"run,t,x\n{rows}\n".encode())
    visitor.sees("Record to show (all 2 are fitted together)")
    expect(visitor.page.locator('[aria-label^="Posterior mean of"]').first).to_have_attribute(
        "aria-label", re.compile("over the measurements, at")
    )
    visitor.sees("Validation needs a file with one record.")
    visitor.choose("Record to show", "2")
    expect(visitor.page.locator('[aria-label^="Posterior mean of"]').first).to_have_attribute(
        "aria-label", re.compile("of record 2")
    )


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(visitor: Visitor, tmp_path: Path) -> None:
    with open(tmp_path / "large.csv", "wb") as file:
        file.truncate((50 << 20) + 1)
    visitor.settle()
    visitor.page.get_by_test_id("stFileUploader").first.locator("input").set_input_files(tmp_path / "large.csv")
    visitor.sees("File must be 50.0MB or smaller")


def test_numbers_on_the_page_are_those_of_the_library(fitted: Visitor, tmp_path: Path) -> None:
    """The downloaded files, given to the library, lead to the same numbers digit by digit."""
    fitted.sees("All files (zip)", fitted.click("Create report and files"))
    with zipfile.ZipFile(io.BytesIO(fitted.download("All files (zip)"))) as archive:
        archive.extractall(tmp_path)
    shown = {line[0][0]: line for line in fitted.table("Parameters of the fit")}
    # The session says which window was fitted to.
    text = fitted.page.locator("code").filter(has_text="lodekit fit").first.inner_text().splitlines()[0].split()
    window = (None, float(text[text.index("--to") + 1]))
    product = fit_file(
        lk.read_system_file(tmp_path / "system.toml"), tmp_path / "simulated.csv", window=window, random_state=0
    )
    for name, estimate in product.gp.parameters_.items():
        assert shown[name][1][1] == repr(estimate.value)
        assert shown[name][3][1] == repr(estimate.std_error)
        assert shown[name][2][1] == repr(tuple(estimate.interval))
    assert fitted.table("All fits of this session")[0][4][1] == repr(product.gp.log_evidence_)


def test_a_fit_shows_verdict_certificate_and_validation(fitted: Visitor) -> None:
    for text in ("residuals independent", "strict", "Do the curves satisfy the equations? Yes", "fit of the free run"):
        fitted.sees(text)
    assert [line[0][0] for line in fitted.table("Validation")] == ["f1", "f2"]
    words = fitted.page.locator('[aria-label^="Mean, 95 % band"]')
    assert words.count() >= 1


def test_a_slider_moves_the_curve(fitted: Visitor) -> None:
    before = fitted.page.get_by_text("Curve at these parameter values").inner_text()
    slider = fitted.page.get_by_role("slider").first
    slider.focus()
    for _ in range(20):
        slider.press("ArrowRight")
    fitted.page.wait_for_function(
        "before => ![...document.querySelectorAll('p')].some(p => p.innerText === before)", arg=before
    )
    assert "log evidence" in fitted.page.get_by_text("Curve at these parameter values").inner_text()


def test_what_a_process_without_equations_does_is_told_on_request(fitted: Visitor) -> None:
    text = "Without the equations, the curves of a Gaussian process on each channel have residuals"
    fitted.sees(text, fitted.click("Compare with a fit without the equations"))


def test_a_reload_finds_everything_again(fitted: Visitor) -> None:
    before = fitted.table("Parameters of the fit")
    fitted.page.reload()
    fitted.sees("Do the curves satisfy the equations?")
    assert fitted.table("Parameters of the fit") == before
    # The editor gets its text when its script has run, which may be after the rest of the page is there.
    expect(fitted.editor()).to_have_value("f1' = -a*(f1 - f2) + u\nf2' = -b*(f2 - f1)")


def test_a_session_file_reopens_everything_elsewhere(fitted: Visitor, newcomer: Visitor) -> None:
    before = fitted.table("Parameters of the fit")
    newcomer.drop("mine.studio", fitted.download("Save session"), "Reopen a session")
    newcomer.sees("Do the curves satisfy the equations?")
    assert newcomer.table("Parameters of the fit") == before
    newcomer.drop("odd.studio", json.dumps({"kind": "odd"}).encode(), "Reopen a session")
    newcomer.sees("expected a session saved by the studio")
    assert newcomer.table("Parameters of the fit") == before


def test_somebody_who_leaves_does_not_end_the_server(server: Server, visitor: Visitor) -> None:
    """A page that is closed while the server writes to it is a broken pipe, which ends commands."""
    server.process.send_signal(signal.SIGPIPE)
    visitor.type("p' = -p + w")
    visitor.sees("either p or w")
    assert server.process.poll() is None


def test_a_computation_that_ends_does_not_end_the_page(server: Server, visitor: Visitor) -> None:
    visitor.type("p' = -p + w")
    visitor.sees("either p or w")
    for number in server.companions():
        os.kill(number, signal.SIGKILL)
    visitor.type("q' = -q + w")
    visitor.sees("either q or w")


def test_the_keyboard_is_enough(visitor: Visitor) -> None:
    keyboard, active = visitor.page.keyboard, "e => e.getRootNode().activeElement === e"
    area = visitor.editor()
    visitor.page.locator(".lk-brand h1").click()
    for _ in range(20):
        keyboard.press("Tab")
        if area.evaluate(active):
            break
    keyboard.press("Control+a")
    keyboard.type("x' = -a*x + u")
    visitor.sees("either x or u")
    visitor.settle()
    visitor.page.get_by_text("Simulate data instead").click()
    button = visitor.page.get_by_role("button", name="Simulate", exact=True)
    for _ in range(40):
        keyboard.press("Tab")
        if button.evaluate(active):
            break
    keyboard.press("Enter")
    visitor.sees("simulated.csv")


def test_all_that_is_drawn_or_asked_has_words(fitted: Visitor) -> None:
    page = fitted.page
    fitted.settle()
    for words in ("The record: 3 columns", "Posterior mean of f1", "Mean, 95 % band", "Free run over", "Complex plane"):
        expect(page.locator(f'[aria-label^="{words}"]').first).to_be_attached()
    assert page.locator("[role=img]:not([aria-label])").count() == 0
    nameless = """() => {
      const roots = [document, ...[...document.querySelectorAll("*")].map(e => e.shadowRoot).filter(Boolean)];
      const asked = roots.flatMap(root => [...root.querySelectorAll("input, textarea, button")]);
      const shown = asked.filter(e => e.checkVisibility() && e.tabIndex >= 0 && e.type !== "file");
      const named = e => e.ariaLabel || e.labels?.length || e.innerText?.trim() || e.title || e.ariaLabelledByElements;
      return shown.filter(e => !named(e)).map(e => e.outerHTML.slice(0, 200));
    }"""
    assert page.evaluate(nameless) == []
    # Screen readers hear errors and status; the words of the plane are only for them.
    expect(page.locator('[aria-live="polite"]:has(.lk-hidden)')).to_have_text("fit-1 is complete.")
    assert page.locator(".lk-note:not([role=alert], [role=status])").count() == 0
    assert page.get_by_text("Complex plane with").count() == 0


@pytest.mark.parametrize("width", [1366, 390])
def test_intervals_are_visible_without_scrolling_sideways(fitted: Visitor, place: tuple[Any, str], width: int) -> None:
    context = place[0].browser.new_context(viewport={"width": width, "height": 900})
    reader = Visitor(context, fitted.page.url)
    table = reader.page.get_by_label("Parameters of the fit")
    table.wait_for()
    reader.settle()
    interval = table.locator('td[data-label="95 % interval"]').first
    edges = interval.evaluate("cell => [cell.getBoundingClientRect().right, cell.closest('.lk-wide').scrollWidth]")
    box = table.locator("xpath=..").bounding_box()
    assert edges[0] <= box["x"] + box["width"] + 1
    assert edges[1] <= box["width"] + 1
    script = "() => document.querySelector('[data-testid=stMain]').scrollWidth - window.innerWidth"
    assert reader.page.evaluate(script) <= 0
    context.close()


def test_two_people_do_not_see_each_other(fitted: Visitor, newcomer: Visitor) -> None:
    newcomer.type("z' = -q*z + w")
    newcomer.sees("either z or w")
    assert newcomer.count_fits() == 0
    assert newcomer.page.url != fitted.page.url
    assert "z'" not in fitted.editor().input_value()
    stranger = newcomer.page.url.replace("session=", "session=x")
    newcomer.page.goto(stranger)
    newcomer.page.wait_for_selector("textarea")
    newcomer.sees("Type equations, or choose an example")


def test_two_tabs_of_one_session_show_edits_of_each_other(newcomer: Visitor, place: tuple[Any, str]) -> None:
    newcomer.type("x' = -a*x + u")
    newcomer.sees("either x or u")
    newcomer.settle()
    second = Visitor(place[0], newcomer.page.url)
    expect(second.editor()).to_have_value("x' = -a*x + u")
    # Half a sentence that has not been sent yet, and the focus, stay where they are.
    bounds = second.page.get_by_label("Bounds of a")
    bounds.press_sequentially("0.1 t")
    newcomer.type("x' = -a*x + 2*u")
    expect(second.editor()).to_have_value("x' = -a*x + 2*u")
    expect(bounds).to_have_value("0.1 t")
    expect(bounds).to_be_focused()
    bounds.press_sequentially("o 5")
    # A line appears above the entry while it is sent.
    newcomer.type("x' = -a*x + 2*u +")
    expect(second.editor()).to_have_value("x' = -a*x + 2*u +")
    bounds.press("Enter")
    followed = newcomer.page.get_by_label("Bounds of a")
    expect(followed).to_have_value("0.1 to 5")
    second.type("x' = -a*x + 3*u")
    expect(newcomer.editor()).to_have_value("x' = -a*x + 3*u")
    second.close()


def test_a_cancelled_fit_leaves_everything_as_it_was(visitor: Visitor) -> None:
    visitor.take_example("quarter car")
    visitor.simulate(Number_of_times="200")
    visitor.click("Fit from here")
    # A click would wait until the page stands still, and by then a short fit may have ended.
    visitor.page.get_by_role("button", name="Cancel").dispatch_event("click")
    visitor.sees("Cancelled.")
    assert visitor.count_fits() == 0
    assert "zs''" in visitor.editor().input_value()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(place: tuple[Any, str]) -> None:
    context = place[0].browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    phone = Visitor(context, place[1])
    phone.take_example("heating")
    phone.sees("any one of f1, f2 or u")
    phone.simulate()
    phone.sees("Curve at these parameter values")
    script = "() => document.querySelector('[data-testid=stMain]').scrollWidth - window.innerWidth"
    assert phone.page.evaluate(script) <= 0
    ground = phone.page.evaluate(
        "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    )
    assert ground == "rgb(18, 23, 28)"
    context.close()
