"""The command line.

`systems` analyses equations, `init` writes system files, `fit` fits, `results` uses fitted models, `watch` monitors
growing files, `programs` reproduces the paper and opens the studio. `arguments` contains what the commands share.
"""

from lodekit.cli import fit, init, programs, results, systems, watch
from lodekit.cli.arguments import app, run as main

__all__ = ["app", "main"]

# In the order of the help.
_COMMANDS = (systems.inspect, init.init, fit.fit, results.predict, results.sample, results.check, results.simulate)
_MORE_COMMANDS = (results.validate, watch.watch, systems.catalog, fit.demo, programs.reproduce, programs.studio)
for _command in (*_COMMANDS, *_MORE_COMMANDS):
    app.command()(_command)
