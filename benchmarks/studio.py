"""How soon the studio answers, measured in a real browser: from a stroke to the analysis, from a slider to the curve.

Times are those of the browser's own clock, from the event of the keyboard until the new content is in the page and the
next frame begins. Every system of the catalog is typed several times, and one slider is moved. The best of several is
what the program needs where nobody else keeps the machine busy; beside it stands how long processors have worked for
the server and for its companions until then.

    python benchmarks/studio.py [--repeats N] [--sliders] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.studio import compute
from lodekit.studio.compute import parse_typed_equations
from lodekit.studio.session import ParameterEntry, StudioSession
from lodekit.system.catalog import examples
from studio_browser import Server, Visitor, browsing, serving

#: From an input event to the moment at which a condition on the page holds, in milliseconds of the browser's clock.
_TYPE = """async ([text, want]) => {
  const find = root => [...root.querySelectorAll("*")].map(e => e.shadowRoot && e.shadowRoot.querySelector("textarea"));
  const area = document.querySelector("textarea") || find(document).find(Boolean);
  const begin = performance.now();
  return await new Promise(done => {
    const look = () => [...document.querySelectorAll(".lk-note")].some(e => e.innerText.includes(want));
    const watch = new MutationObserver(() => { if (look()) { watch.disconnect();
      requestAnimationFrame(() => done(performance.now() - begin)); } });
    watch.observe(document.body, { subtree: true, childList: true, characterData: true });
    area.value = text;
    area.dispatchEvent(new Event("input", { bubbles: true }));
    setTimeout(() => { watch.disconnect(); done(-1); }, 8000);
  });
}"""
_SLIDE = """() => {
  const now = () => {
    const curves = [...document.querySelectorAll('[aria-label^="Posterior mean of"] path.js-line')];
    return curves.length ? curves.map(curve => curve.getAttribute("d")).join() : null;
  };
  const before = now();
  let begin = performance.now();
  addEventListener("keydown", () => { begin = performance.now(); }, { capture: true, once: true });
  window.slid = new Promise(done => {
    const look = () => {
      const found = now();
      if (found !== null && found !== before) requestAnimationFrame(() => done(performance.now() - begin));
      else if (performance.now() - begin > 8000) done(-1);
      else setTimeout(look, 5);
    };
    look();
  });
}"""


def measure_typing(
    visitor: Visitor, server: Server, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return milliseconds from a stroke to the analysis, and those of the server's processors, of each system."""
    found: dict[str, list[float]] = {}
    worked: dict[str, list[float]] = {}
    for _ in range(repeats):
        for example in examples():
            visitor.type("")
            visitor.settle()
            text = "\n".join(example.system.equations)
            want = parse_typed_equations(text)[0].explain().splitlines()[0]
            before = server.seconds()
            found.setdefault(example.name, []).append(float(visitor.page.evaluate(_TYPE, [text, want])))
            worked.setdefault(example.name, []).append(1000 * (server.seconds() - before))
    return found, worked


def measure_sliding(visitor: Visitor, repeats: int) -> list[float]:
    """Return milliseconds from the stroke of a key on a slider to the curve."""
    slider = visitor.page.get_by_role("slider").first
    slider.focus()
    found = []
    for _ in range(repeats):
        # The rest of the page follows a slider that has come to rest; the next stroke waits for that.
        visitor.page.wait_for_timeout(1200)
        visitor.settle()
        visitor.page.evaluate(_SLIDE)
        slider.press("ArrowRight")
        found.append(float(visitor.page.evaluate("() => window.slid")))
    return found


def measure_work() -> tuple[list[float], list[float]]:
    """Return milliseconds of a processor for the algebra of each system, and for curves at values that change."""
    algebra = []
    for sample in compute.list_samples().values():
        text = ("\n".join(sample["equations"]), "")
        before = time.process_time()
        inputs = compute.understand(text).inputs
        known = inputs[-1] if inputs else ()
        compute.locate_exponents(text, known, dict.fromkeys(sample["parameters"], 1.0))
        algebra.append(1000 * (time.process_time() - before))
    curves = []
    for name in ("heating", "quarter_car"):
        sample = compute.list_samples()[name]
        text = ("\n".join(sample["equations"]), ", ".join(sample["parameters"]))
        entries = tuple(
            ParameterEntry.from_parameter(own, known, sample["values"].get(own))
            for own, known in sample["parameters"].items()
        )
        session = StudioSession(*text, file="log.csv", entries=entries)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.csv")
            path.write_text(compute.simulate_data(text, sample["values"], name, {}))
            compute.draw_curve(session, text, path, "")
            for share in (1.01, 1.02, 1.03):
                moved = session.with_entry(replace(entries[0], value=share * entries[0].value))
                before = time.process_time()
                compute.draw_curve(moved, text, path, "")
                curves.append(1000 * (time.process_time() - before))
    return algebra, curves


def describe(times: list[float]) -> str:
    best, middle, most = min(times), np.median(times), np.quantile(times, 0.9)
    return f"best {best:4.0f} ms, median {middle:4.0f} ms, nine of ten below {most:4.0f} ms, {len(times)} times"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sliders", action="store_true", help="measure sliders alone")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    algebra, curves = measure_work()
    print(f"of a processor: algebra {min(algebra):.0f} to {max(algebra):.0f} ms, a curve {min(curves):.0f} to", end=" ")
    print(f"{max(curves):.0f} ms")
    result: dict[str, Any] = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    with serving() as server, browsing() as browser:
        visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 900}), server.address)
        visitor.settle()
        typed, worked = ({}, {}) if arguments.sliders else measure_typing(visitor, server, arguments.repeats)
        every = [each for own in typed.values() for each in own]
        if every:
            print(f"stroke to analysis, {len(typed)} systems of the catalog: {describe(every)}")
            best = [min(own) for own in typed.values()]
            print(f"the slowest system at its best {max(best):.0f} ms; {sum(each < 300 for each in best)} below 300 ms")
        for name, own in sorted(typed.items(), key=lambda item: -min(item[1])):
            cpu = f"processors {np.median(worked[name]):3.0f} ms"
            print(f"  {name:<20} best {min(own):4.0f} ms, median {np.median(own):4.0f} ms, {cpu}")
        for name in ("heating", "quarter car"):
            visitor.take_example(name)
            visitor.simulate()
            slid = measure_sliding(visitor, 3 * arguments.repeats)
            print(f"slider to curve, {name}: {describe(slid)}")
            result[f"slider {name}"] = slid
            visitor = Visitor(visitor.page.context, server.address)
    print(f"load {result['load']:.1f} when it began, {os.getloadavg()[0]:.1f} at its end, on {result['cores']} cores")
    if arguments.json:
        arguments.json.write_text(json.dumps({**result, "typing": typed, "processors": worked}, indent=1))


if __name__ == "__main__":
    main()
