"""The documentation site: Sphinx reads the Markdown of this folder as it is, and nothing from the network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

project = "lodekit"
author = "The lodekit developers"
copyright = "the lodekit developers, MIT licence"  # noqa: A001
release = re.findall(r'"(.+)"', Path(__file__).parents[1].joinpath("src/lodekit/version.py").read_text())[-1]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "paper-joss"]

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "lodekit"
html_static_path = ["_static"]
html_css_files = ["lodekit.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
highlight_language = "none"
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0060a0", "color-brand-content": "#0060a0"},
    "dark_css_variables": {"color-brand-primary": "#6cb8f0", "color-brand-content": "#6cb8f0"},
    "footer_icons": [],
}
# What is copied from an example runs: without prompts and results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The integration is described without PyTorch, which takes seconds to load.
autodoc_mock_imports = ["torch", "gpytorch"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True


def write_mathml(translator: Any, node: Any, block: bool) -> None:
    """Write a formula as MathML, which browsers show without a script or a font from elsewhere."""
    from docutils import nodes
    from docutils.utils.math.latex2mathml import tex2mathml

    text = tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="formula">{text}</div>' if block else text)
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx how formulas are written."""

    def inline(translator: Any, node: Any) -> None:
        write_mathml(translator, node, block=False)

    def block(translator: Any, node: Any) -> None:
        write_mathml(translator, node, block=True)

    def close_up(app: Any, doctree: Any) -> None:
        # An example ends with an empty line, which pytest needs and readers do not.
        from docutils import nodes

        for block in doctree.findall(nodes.literal_block):
            text = block.astext().rstrip()
            block.rawsource, block.children = text, [nodes.Text(text)]

    app.connect("doctree-read", close_up)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
