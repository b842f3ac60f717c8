"""Small tables as people write them, and what they hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lodekit.data.tables import TableData

Reader = Callable[..., TableData]
nan = math.nan
PLAIN = "t,x,y\n0,1.5,2\n1,2.5,-3e-1\n"
#: The same table, written in many ways.
DIALECTS = [
    PLAIN,
    PLAIN.replace("\n", "\r\n"),
    PLAIN.replace("\n", "\r"),
    PLAIN.rstrip(),
    PLAIN.replace(",", ";"),
    PLAIN.replace(",", "\t"),
    PLAIN.replace(",", "|"),
    PLAIN.replace(",", ", "),
    PLAIN.replace(",", " "),
    PLAIN.replace(",", "   ").replace("\n", "  \n  "),
    PLAIN.replace(",", " \t "),
    PLAIN.replace(",", ";").replace(".", ","),
    PLAIN.replace(",", "\t").replace(".", ","),
    PLAIN.replace(",", "  ").replace(".", ","),
    '"t" ; "x" ; "y" \n"0" ; "1,5" ; "2" \n1;2,5;-3e-1',
    't;x;y\n"0";"1,5";"2"\n1;2,5;-3e-1',
    '"t","x","y"\n"0","1,5","2"\n"1","2,5","-0,3"',
    '"t" "x" "y"\n0 1.5 2\n1 2.5 -.3',
    "t,x,y,\n0,1.5,2,\n1,2.5,-3e-1,\n",
    "t,x,y\n0,1.5,2,\n1,2.5,-3e-1,\n",
    "t;x;y\n0;1.5;2\n;;\n1;2.5;-.3\n;;\n ; ; \n",
    "# a comment\n\n% another\nt,x,y\n# units\n0,1.5,2\n\n  # more, and, more\n1,2.5,-3e-1\n\n",
    "# t, x, y\n0,1.5,2\n1,2.5,-3e-1\n",
    "sep=;\nt;x;y\n0;1,5;2\n1;2,5;-0,3\n",
    "y;t;x\n2;0;1.5\n-.3;1;2.5\n",
    "t,x,y,remark\n0,1.5,2,ok\n1,2.5,-0.3,50%\n",
    't,x,"a, b",y\n0,1.5,"u, v",2\n1,2.5,,-0.3\n',
    't,x,"two\nlines",y\n0,1.5,3,2\n1,2.5,,-0.3\n',
    "t,x,y\n +0. , 1.50 ,2e0\n1E0,+2.5,-.3\n",
    "Time,x,y\n0,1.5,2\n1,2.5,-0.3\n\x1a",
]


def same(table: TableData, times: list[float], **values: list[float]) -> None:
    """Assert that a table holds these numbers, to the last digit."""
    np.testing.assert_array_equal(table.times, times)
    assert list(table.values) == list(values)
    for name, numbers in values.items():
        np.testing.assert_array_equal(table.values[name], numbers)
