"""What a translated edition needs beyond Sphinx's gettext: the words that reach a page after its translation.

`make book-zh_CN` builds the edition in the language zh_CN.  Its catalogues stand in locale/zh_CN/LC_MESSAGES (the pages)
and mgpt/locale/zh_CN/LC_MESSAGES (figures, controls, the site's own words).
"""

import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.locale import init
from sphinx.transforms import SphinxTransform
from sphinx.util.i18n import docname_to_domain


def catalogue(srcdir, config, docname):
    """sentence -> sentence of a page's catalogue; the sentence itself where it has none."""
    folders = [str(Path(srcdir) / folder) for folder in config.locale_dirs]
    return init(folders, config.language, docname_to_domain(docname, config.gettext_compact))[0].gettext


class Descriptions(SphinxTransform):
    """A page's description.  MyST keeps it back until docutils filters components (780), after the translation (20)."""

    default_priority = 790

    def apply(self, **kwargs):
        said = catalogue(self.env.srcdir, self.config, self.env.docname)
        for node in self.document.findall(nodes.meta):
            if node.get("name") == "description" and node.get("content"):
                node["content"] = said(node["content"])


def translate_captions(app, doctree):
    """The names of the parts, which the external table of contents puts in when the page has been translated."""
    said = catalogue(app.srcdir, app.config, app.env.docname)
    if app.builder.name != "gettext":
        for node in doctree.findall(addnodes.toctree):
            if node.get("caption"):
                node["caption"] = said(node["caption"])


def translate_title(app, config):
    """The book's name is the heading of its first page."""
    config.html_title = config.project = catalogue(app.srcdir, config, config.root_doc)(config.html_title)


def setup(app):
    # For mgpt.text, here and in the notebooks that are run.  This extension is loaded before those that import it.
    os.environ["LANGUAGE"] = app.config.language
    app.add_transform(Descriptions)
    app.connect("config-inited", translate_title, priority=900)
    app.connect("doctree-read", translate_captions, priority=150)  # after the toctrees (100), before they are kept
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
