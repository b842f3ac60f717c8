"""The command line: one module for each kind of command, listed here in the order of the help."""

from lodekit.cli import beginning, fitting, reproduction, studio, systems, using, validating, watching
from lodekit.cli.app import app
from lodekit.cli.app import run as main

__all__ = ["app", "main"]

for _command in (
    systems.inspect,
    beginning.init,
    fitting.fit,
    using.predict,
    using.sample,
    using.check,
    using.simulate,
    validating.validate,
    watching.watch,
    systems.catalog,
    fitting.demo,
    reproduction.reproduce,
    studio.studio,
):
    app.command()(_command)
