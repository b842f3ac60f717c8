"""A server of the studio and a real browser, for tests, screenshots and timings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOW = (
    "no browser to try the studio in; on Debian: apt install chromium; elsewhere: "
    "python -m playwright install chromium, or name one in LODEKIT_BROWSER"
)

#: Seconds to wait for what must come; a busy machine needs far more than an idle one.
PATIENCE = 240

#: Counts what goes to the server and what comes back: whoever waits knows whether an answer is still to come.
_WIRE = """(() => {
  const Plain = window.WebSocket;
  window.wire = { sent: -1, heard: 0 };
  window.WebSocket = class extends Plain {
    constructor(...all) {
      super(...all);
      this.addEventListener("message", () => { window.wire.heard = performance.now(); });
    }
    send(what) { window.wire.sent = performance.now(); super.send(what); }
  };
})();"""
_TRAY = 'table[aria-label="All fits of this session"]'


def find_browser() -> str | None:
    """Return the path of Chromium, nothing where Playwright has its own, or None where there is none."""
    named = os.environ.get("LODEKIT_BROWSER", "")
    for name in (named, "chromium", "chromium-browser", "google-chrome"):
        if name and (found := shutil.which(name)):
            return found
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as driver:
        return "" if Path(driver.chromium.executable_path).exists() else None


@dataclass(frozen=True)
class Server:
    """A server of the studio: where it answers, and its process."""

    address: str
    process: subprocess.Popen[bytes]

    def seconds(self) -> float:
        """Return how long processors have worked for it, its companions included; where the system tells."""
        ticks = 0
        for number in (self.process.pid, *self.companions()):
            with suppress(OSError):
                state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
                ticks += int(state[11]) + int(state[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def companions(self) -> list[int]:
        """Return the processes that compute for sessions, by their numbers."""
        listed = subprocess.run(
            [shutil.which("ps") or "ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        ).stdout
        lines = [line.split(None, 2) for line in listed.splitlines()]
        return [int(own) for own, parent, what in lines if int(parent) == self.process.pid and "studio.compute" in what]


@contextmanager
def serving(data: Path | None = None) -> Iterator[Server]:
    """Yield a server of the studio; one that has ended meanwhile is told with what it said last."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "lodekit", "studio", "--no-browser", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONFAULTHANDLER"] = "1"
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen(
            [*command, *([] if data is None else [str(data)])], env=environment, stdout=said, stderr=said
        )
        try:
            _wait_for(f"http://localhost:{port}", server)
            yield Server(f"http://localhost:{port}", server)
            ended = server.poll()
        finally:
            server.terminate()
            server.wait(20)
        if ended is not None:
            said.seek(0)
            last = said.read().decode(errors="replace")[-4000:]
            raise AssertionError(f"the server ended by itself with {ended}; it said:\n{last}")


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE * 10):
        assert server.poll() is None, "the server ended before it answered"
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):  # noqa: S310 - our own server
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


@contextmanager
def browsing(**options: Any) -> Iterator[Any]:
    """Yield a browser without windows."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path or None, args=["--no-sandbox"], **options)
        yield browser
        browser.close()


class Visitor:
    """Somebody who uses the page."""

    def __init__(self, context: Any, address: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.add_init_script(_WIRE)
        self.fetched: list[str] = []
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("textarea")

    def settle(self) -> None:
        """Wait until the page has answered: a menu that is open while it changes is closed again."""
        script = """() => {
          const shadows = [...document.querySelectorAll("*")].map(each => each.shadowRoot).filter(Boolean);
          const typing = [document, ...shadows].some(root => root.querySelector('textarea[data-rests="no"]'));
          const { sent, heard } = window.wire;
          if (typing || (heard < sent && performance.now() - sent < 20000)) return false;
          return document.querySelector("[data-testid=stApp]")?.dataset.testScriptState === "notRunning";
        }"""
        quiet = 0
        for _ in range(PATIENCE * 16):
            quiet = quiet + 1 if self.page.evaluate(script) else 0
            if quiet > 4:
                return
            self.page.wait_for_timeout(60)
        raise AssertionError("the page does not come to rest")

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a menu."""
        self.settle()
        menu, chosen = self.page.get_by_role("combobox", name=label), self.page.get_by_role("option", name=option).first
        for _ in range(10):
            menu.click()
            try:
                chosen.click(timeout=3000)
                break
            except Exception:  # noqa: S112 - the page changed and closed the menu
                continue
        self.settle()

    def type(self, equations: str) -> None:
        """Replace the equations."""
        self.editor().fill(equations)

    def editor(self) -> Any:
        """Return the editor of equations; while one takes the place of another there are two."""
        area = self.page.get_by_label("Equations, one per line")
        for _ in range(PATIENCE * 10):
            if area.count() == 1:
                break
            self.page.wait_for_timeout(100)
        return area

    def take_example(self, name: str) -> None:
        """Begin with an example of the catalog, and wait until its equations are there."""
        before = self.editor().input_value()
        self.choose("Start with an example", name)
        texts = "areas => areas.map(area => area.value)"
        for _ in range(PATIENCE * 10):
            if self.page.get_by_label("Equations, one per line").evaluate_all(texts) not in ([], [""], [before]):
                break
            self.page.wait_for_timeout(100)
        self.settle()

    def simulate(self, **fields: str) -> None:
        """Simulate data, with fields of the form by their labels."""
        self.settle()
        button = self.page.get_by_role("button", name="Simulate", exact=True)
        for _ in range(10):
            # A page that changes meanwhile closes it again.
            if not button.is_visible():
                self.page.get_by_text("Simulate data instead").click()
            with suppress(Exception):
                button.wait_for(timeout=2000)
                break
        for label, value in fields.items():
            self.page.get_by_label(label.replace("_", " "), exact=False).first.fill(value)
        button.click()
        self.sees("simulated.csv", button)
        self.settle()

    def drop(self, name: str, content: bytes, label: str = "Upload a record") -> None:
        """Drop a file where a label stands."""
        self.settle()
        kinds = {"name": name, "mimeType": "text/plain", "buffer": content}
        self.page.get_by_test_id("stFileUploader").filter(has_text=label).locator("input").set_input_files(kinds)

    def click(self, name: str) -> Any:
        """Press a button once the page has come to rest, and return it."""
        self.settle()
        button = self.page.get_by_role("button", name=name, exact=True).first
        button.click()
        return button

    def download(self, name: str) -> bytes:
        """Press a button that downloads a file, and return its content.

        Streamlit forgets a file that was just made if the page changes before the browser has fetched it; then the
        button is pressed again, as a person would do.
        """
        for _ in range(5):
            with self.page.expect_download() as found:
                self.click(name)
            if found.value.failure() is None:
                return Path(found.value.path()).read_bytes()
        raise AssertionError(f"the download of {name!r} fails: {found.value.failure()}")

    def click_text(self, text: str) -> None:
        """Press whatever is called so, once the page has come to rest."""
        self.settle()
        self.page.get_by_text(text, exact=True).first.click()

    def fit(self) -> None:
        """Fit, and wait until the result is there."""
        fits = self.count_fits()
        script = "([table, count]) => document.querySelectorAll(`${table} tbody tr`).length > count"
        button = self.click("Fit")
        self._wait(lambda limit: self.page.wait_for_function(script, arg=[_TRAY, fits], timeout=limit), "a fit", button)

    def brush(self, first: float, last: float, label: str) -> None:
        """Drag over the record, from one share of its width to another, until the value of a field has changed."""
        self.settle()
        plot = self.page.locator('[aria-label^="The record"]').first
        field = self.page.get_by_label(label, exact=True).first
        before = field.input_value()
        for _ in range(10):
            plot.scroll_into_view_if_needed()
            box = plot.locator(".nsewdrag").first.bounding_box()
            height = box["y"] + 0.5 * box["height"]
            self.page.mouse.move(box["x"] + first * box["width"], height)
            self.page.mouse.down()
            self.page.mouse.move(box["x"] + last * box["width"], height, steps=8)
            self.page.mouse.up()
            for _ in range(50):
                self.settle()
                if field.input_value() != before:
                    return
                self.page.wait_for_timeout(100)
            # The figure was drawn again while it was dragged over.
        raise AssertionError(f"dragging does not change the field {label!r}")

    def number(self, label: str) -> float:
        """Return the number in a field."""
        return float(self.page.get_by_label(label, exact=True).first.input_value())

    def count_fits(self) -> int:
        """Return how many fits are in the tray."""
        return int(self.page.locator(f"{_TRAY} tbody tr").count())

    def sees(self, text: str, button: Any = None) -> None:
        """Wait until a text appears; if it does not, press the button again that makes it appear."""
        self._wait(lambda limit: self.page.get_by_text(text).first.wait_for(timeout=limit), repr(text), button)

    def _wait(self, wait: Callable[[int], object], what: str, button: Any) -> None:
        """Wait with patience; a button that was redrawn when it was pressed is pressed again, as a person would do."""
        seconds = 15
        for _ in range(PATIENCE // seconds):
            with suppress(Exception):
                wait(1000 * seconds)
                return
            if button is not None and button.is_visible() and button.is_enabled():
                button.click()
        raise AssertionError(f"{what} did not appear; the page shows:\n{self.page.inner_text('body')}")

    def table(self, words: str) -> list[list[tuple[str, str]]]:
        """Return the cells of a table: what is shown, and the whole number behind it."""
        script = """table => [...table.querySelectorAll("tbody tr")].map(
            row => [...row.cells].map(cell => [cell.innerText, cell.title]))"""
        found = self.page.locator(f'table[aria-label="{words}"]').first.evaluate(script)
        return [[(cell[0], cell[1]) for cell in line] for line in found]

    def close(self) -> None:
        """Close the page."""
        self.page.close()
