"""Math set at build time by KaTeX: HTML and MathML in the page, no script and no other host in the reader's browser.

KaTeX itself comes from the sphinxcontrib-katex package; mini-racer runs it.  Its stylesheet and fonts lie in
book/_static/vendor/katex, of the same version.  TeX that KaTeX refuses is a Sphinx warning with file and line.
"""

import functools
from pathlib import Path

import sphinxcontrib.katex
from docutils import nodes
from py_mini_racer import JSEvalException, MiniRacer
from sphinx.domains.math import MathDomain
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)


@functools.cache
def _katex():
    racer = MiniRacer()
    racer.eval(Path(sphinxcontrib.katex.__file__).with_name("katex.min.js").read_text(encoding="utf-8"))
    return racer


@functools.cache
def _render(tex, display):
    # strict="error" also refuses what KaTeX would set with a console warning that nobody reads.
    return _katex().call("katex.renderToString", tex, {"displayMode": display, "strict": "error"})


def _rendered(tex, display, node):
    try:
        return _render(tex, display)
    except JSEvalException as error:
        reason = next((line for line in str(error).splitlines() if "ParseError" in line), str(error))
        logger.warning("bad TeX %r: %s", tex, reason, location=node, type="math", subtype="katex")
        return ""


def visit_math(self, node):
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(_rendered(node.astext(), False, node) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, self.builder.env.get_domain("math") and "Link to this equation")
        self.body.append("</span>")
    self.body.append(_rendered(node.astext(), True, node) + "</div>\n")
    raise nodes.SkipNode


def add_stylesheet(app, pagename, templatename, context, doctree):
    if isinstance(domain := app.env.get_domain("math"), MathDomain) and domain.has_equations(pagename):
        app.add_css_file("vendor/katex/katex.min.css")


def setup(app):
    app.add_html_math_renderer("katex_static", (visit_math, None), (visit_math_block, None))
    app.connect("html-page-context", add_stylesheet)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
