"""Pictures of the studio for the documentation: each step once, the fit in dark as well, and the top on a phone.

It needs a browser, as `studio_browser.py` says.

    python benchmarks/studio_pictures.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from PIL import Image

from studio_browser import Visitor, browsing, serving

_FOLDER = Path(__file__).parents[1] / "docs" / "studio"
_STEPS = ("system", "data", "parameters", "fit", "compare", "download")


def prepare(visitor: Visitor) -> None:
    """Go all the way: equations, data, and two fits to be compared."""
    visitor.take_example("heating")
    visitor.simulate(First_time="-5", Last_time="5", Number_of_times="120", Noise="8")
    visitor.click("Keep the last 30 % for validation")
    visitor.fit()


def add_rival(visitor: Visitor) -> None:
    """Fit a simpler structure to the same data, for the comparison."""
    visitor.type("f1' = -a*(f1 - f2) + u\nf2' = -a*(f2 - f1)")
    visitor.settle()
    visitor.fit()


def shoot(visitor: Visitor, name: str, folder: Path, number: int) -> None:
    """Take the picture of a step: from its heading to the next one."""
    visitor.settle()
    page = visitor.page
    box = page.evaluate(
        """number => {
          const top = document.querySelector(`#step-${number}`).getBoundingClientRect().top;
          const next = document.querySelector(`#step-${number + 1}`);
          const all = document.querySelector(".block-container").getBoundingClientRect();
          return [top - 14, (next ? next.getBoundingClientRect().top : all.bottom - 60) - 8];
        }""",
        number,
    )
    width = page.viewport_size["width"]
    clip: dict[str, Any] = {"x": 0, "y": max(box[0], 0), "width": width, "height": box[1] - max(box[0], 0)}
    save(page.screenshot(clip=clip), folder / f"{name}.png")


def save(content: bytes, path: Path) -> None:
    """Write a picture with a palette: small, and sharp."""
    picture = Image.open(io.BytesIO(content)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path.name}: {picture.size[0]} x {picture.size[1]}, {path.stat().st_size // 1024} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=_FOLDER)
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with serving() as server, browsing() as browser:
        context = browser.new_context(viewport={"width": 1240, "height": 7400})
        visitor = Visitor(context, server.address)
        prepare(visitor)
        visitor.page.wait_for_timeout(2000)
        for number, name in enumerate(_STEPS[:4], 1):
            shoot(visitor, name, folder, number)
        session = visitor.page.url
        add_rival(visitor)
        visitor.page.wait_for_timeout(2000)
        for number, name in enumerate(_STEPS[4:], 5):
            shoot(visitor, name, folder, number)
        dark = Visitor(browser.new_context(viewport={"width": 1240, "height": 7400}, color_scheme="dark"), session)
        dark.sees("Do the curves satisfy")
        dark.settle()
        dark.page.wait_for_timeout(2500)
        shoot(dark, "fit-dark", folder, 4)
        phone = Visitor(browser.new_context(viewport={"width": 390, "height": 9000}), session)
        phone.sees("Do the curves satisfy")
        phone.settle()
        phone.page.wait_for_timeout(2500)
        save(phone.page.screenshot(clip={"x": 0, "y": 0, "width": 390, "height": 1400}), folder / "phone.png")


if __name__ == "__main__":
    main()
