"""``python -m lodekit``, and the command ``lodekit``."""

from __future__ import annotations

import sys

from lodekit.version import __version__


def main() -> None:
    """Run the command line; an interruption while it is loaded ends it quietly, too."""
    if sys.argv[1:] == ["--version"]:
        # Without the command line, which takes several times as long to load.
        sys.stdout.write(f"lodekit {__version__}\n")
        return
    try:
        from lodekit.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
