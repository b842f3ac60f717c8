"""The command line. `systems`, `init`, `fit`, `results`, `watch` and `programs` hold the commands, `app` what they
share.
"""

from lodekit.cli import fit, init, programs, results, systems, watch
from lodekit.cli.app import app, run as main

__all__ = ["app", "main"]

# In the order of the help.
for _command in (
    systems.inspect,
    init.init,
    fit.fit,
    results.predict,
    results.sample,
    results.check,
    results.simulate,
    results.validate,
    watch.watch,
    systems.catalog,
    fit.demo,
    programs.reproduce,
    programs.studio,
):
    app.command()(_command)
