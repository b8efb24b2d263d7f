"""Last touches to every page: what the theme leaves out for screen readers, for search engines and for small transfers.

Each repair names what it mends.  They are made on the finished text of a page, just before it is written.
"""

import hashlib
import html
import os
import re
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from mgpt.text import _

STILL = _("This figure shows its first state. Its values can be changed here when the page comes from a web server and "
         "the browser runs scripts; <code>make lab</code> shows the same figure in JupyterLab.")
NO_PYTHON = _("This copy of the site was built without Python for the browser, so the figure shows its first state "
             "only. <code>make lab</code> shows it live in JupyterLab.")
WORK_HERE = _("Your work is kept in this browser. In its list of files, the menu of the notebook (right click, or "
             "Shift+F10) has <em>Download</em>, for handing it in, and <em>Delete</em>, which brings the original back.")

# What the live figures' script says; it has no words of its own.
SAID = {
    "ready": _("Change a value or press a button: Python starts in this page then."),
    "starting": _("Starting Python in this page …"),
    "failed": _("No answer: {error} The figure shows its last state."),
    "lost": _("Python could not be loaded."),
}

REPAIRS = [
    # The icons are in the theme's font already; this script of half a megabyte would draw them once more.
    (r'\s*<!-- So that users can add custom icons -->\s*<script defer src="[^"]*fontawesome\.js[^"]*"></script>', ""),
    # A label that differs from the words on the button (WCAG 2.5.3).
    (r'(<button class="btn search-button-field[^>]*) title="Search" aria-label="Search"', r"\1"),
    (r'(<i class="theme-switch[^>]*) title="[^"]*"', r'\1 aria-hidden="true"'),
    (r' aria-label="Toggle hidden content"', ""),
    # The book's name stands outside all landmarks.
    (r'<div class="sidebar-primary-item">(\s*<a class="navbar-brand logo".*?</a>)</div>',
     r'<nav class="sidebar-primary-item" aria-label="' + _("Home") + r'">\1</nav>'),
    # A toggle without a name.
    (r"<summary>(<span class=\"toctree-toggle\")",
     r'<summary aria-label="' + _("Show or hide the pages of this part") + r'">\1'),
    # An empty corner is no header of anything.
    (r'<th class="head[^"]*">(?:<p></p>)?</th>', "<td></td>"),
    # Roles of books that ARIA has given up, in a list whose items are none.
    (r' role="doc-(?:biblioentry|backlink)"', ""),
    (r'<div role="list" class="citation-list">', '<div class="citation-list">'),
    # What may be wider than a phone can be scrolled by keyboard too.
    (r'(<table class="[^"]*docutils[^"]*".*?</table>)', r'<div class="site-wide" tabindex="0">\1</div>'),
    (r'<div class="math notranslate nohighlight"', r'<div tabindex="0" class="math notranslate nohighlight"'),
    # Three times the same line.
    (r'(<meta name="viewport"[^>]*/>)<meta name="viewport"[^>]*/>', r"\1"),
    (r'\n\s*<meta name="viewport" content="width=device-width, initial-scale=1"/>', ""),
    (r'\n\s*<meta name="docsearch:[^>]*/>', ""),
    (r'<div id="ethical-ad-placement".*?</div>', ""),
]
# The index of all words is for the search page; every other page would load it for nothing.
SEARCH_SCRIPTS = r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>'


def repaired(page, pagename):
    for pattern, text in REPAIRS if pagename == "search" else [*REPAIRS, (SEARCH_SCRIPTS, "")]:
        page = re.sub(pattern, text, page, flags=re.S)
    return page


def with_notes(page, python):
    """Live figures with a line that says how to use them, and a place that screen readers listen to."""
    said = "".join(f' data-{key}="{html.escape(words)}"' for key, words in SAID.items())
    note = (f'<p class="mgpt-note" role="status"{said}>{STILL if python else NO_PYTHON}</p>'
            '<p class="mgpt-said visually-hidden" aria-live="polite"></p>')
    return re.sub(r'(<section class="mgpt-control".*?</form>)', lambda found: found[1] + note, page, flags=re.S)


def description(context):
    """What the page says of itself, or its first sentences."""
    given = re.search(r'<meta content="([^"]*)" name="description"', context.get("metatags", ""))
    if given:
        return given[1]
    paragraphs = re.findall(r"<p>(.*?)</p>", context.get("body", ""), flags=re.S)
    plain = (" ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split()) for text in paragraphs)
    found = next((text for text in plain if len(text) > 60), "")
    return html.escape(found if len(found) <= 160 else found[:157].rsplit(" ", 1)[0] + " …")


def head(app, pagename, templatename, context, doctree):
    """Description, address and preview of the page, for search engines and for those who send its link."""
    words, tags = description(context), context.get("metatags", "")
    if words and 'name="description"' not in tags:
        tags += f'\n<meta name="description" content="{words}"/>'
    title = html.escape(re.sub(r"<[^>]+>", "", context.get("title", "")) or app.config.html_title)
    tags += f'\n<meta property="og:title" content="{title}"/>\n<meta property="og:type" content="article"/>'
    if words:
        tags += f'\n<meta property="og:description" content="{words}"/>'
    if base := app.config.html_baseurl:  # previews need a whole address
        tags += (f'\n<meta property="og:url" content="{base}{pagename}.html"/>'
                 f'\n<meta property="og:image" content="{base}_static/social.png"/>'
                 '\n<meta name="twitter:card" content="summary_large_image"/>')
    context["metatags"] = tags


# ------------------------------------------------------------------ launch
def notebook_of(app, pagename):
    """The page's notebook in JupyterLite, or None."""
    source = Path(app.srcdir) / pagename
    if source.with_suffix(".ipynb").is_file():
        return f"{pagename}.ipynb"
    text = source.with_suffix(".md")
    return f"{pagename}.ipynb" if text.is_file() and "{code-cell}" in text.read_text(encoding="utf-8") else None


def launch_links(app, pagename, context):
    """(words, address, hint) of each way to run the page, from this page's place in the site."""
    notebook, up = notebook_of(app, pagename), "../" * pagename.count("/")
    if notebook is None:
        return []
    if app.config.site_lite:
        links = [(_("Run in this browser"), f"{up}lite/lab/index.html?path={notebook}",
                  _("JupyterLite: nothing to install"))]
    else:
        links = [(_("In the browser: not in this copy"), f"{up}book/index.html#practise",
                  _("The site was built without JupyterLite"))]
    if app.config.site_repository:
        host, _sep, repository = app.config.site_repository.partition("github.com/")
        source = notebook if (Path(app.srcdir) / notebook).is_file() else notebook.replace(".ipynb", ".md")
        if repository:
            links.append((_("Run on Binder"), f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{source}",
                          _("JupyterLab on a public server")))
    return [*links, (_("In JupyterLab, at home"), f"{up}book/index.html#practise", "make lab")]


def add_launch(app, pagename, templatename, context, doctree):
    links = launch_links(app, pagename, context)
    if links:
        context.setdefault("header_buttons", []).insert(0, {
            "type": "group", "label": "launch-buttons", "tooltip": _("Run this page"), "icon": "fas fa-rocket",
            "buttons": [{"type": "link", "text": words, "url": address, "tooltip": hint, "label": "launch"}
                        for words, address, hint in links]})
    if links and pagename.startswith("exercises/") and context.get("body"):
        offers = [f'<a href="{address}">{words}</a>' for words, address, _hint in links]
        if app.config.site_lite:
            file = f'{"../" * pagename.count("/")}lite/files/{pagename}.ipynb'
            offers.insert(1, f'<a href="{file}" download>{_("Download the notebook")}</a>')
        kept = f" {WORK_HERE}" if app.config.site_lite else ""
        line = f'<p class="site-launch"><strong>{_("Work on it:")}</strong> {" · ".join(offers)}.{kept}</p>'
        context["body"] = context["body"].replace("</h1>", f"</h1>{line}", 1)


# ------------------------------------------------------------------ the page as a whole
def add_client(app, pagename, templatename, context, doctree):
    """The script of the live figures, on pages that have one."""
    context["has_control"] = 'class="mgpt-control"' in context.get("body", "")
    if context["has_control"] and app.config.site_python:
        app.add_js_file("live.js", loading_method="defer")


def finish_pages(app):
    """Every page goes through the repairs between its template and its file."""
    if app.builder.format != "html":
        return
    render = app.builder.templates.render

    def finished(template, context):
        page = repaired(render(template, context), context.get("pagename"))
        return with_notes(page, app.config.site_python) if context.get("has_control") else page

    app.builder.templates.render = finished


def write_sitemap(app, exception):
    if exception or app.builder.format != "html":
        return
    (Path(app.outdir) / ".nojekyll").touch()  # GitHub Pages would leave out _static otherwise
    (Path(app.outdir) / "_static" / "scripts" / "fontawesome.js").unlink(missing_ok=True)
    if base := app.config.html_baseurl:
        pages = "".join(f"<url><loc>{base}{name}.html</loc></url>\n" for name in sorted(app.env.found_docs))
        (Path(app.outdir) / "sitemap.xml").write_text(
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{pages}</urlset>\n')


def addresses(app, config):
    """Where the site will stand and where its source is: known to whoever publishes it, not to the book."""
    config.html_baseurl = os.environ.get("SITE_URL", config.html_baseurl)
    if config.html_baseurl and not config.html_baseurl.endswith("/"):
        config.html_baseurl += "/"
    config.site_repository = os.environ.get("SITE_REPOSITORY", config.site_repository)
    # An edit of these extensions, of a script, style or font, or of the list of pages changes every page, and Sphinx
    # cannot know: it would not even copy the file.
    here = Path(__file__).parent
    files = [*here.glob("*.py"), here.parents[1] / "_toc.yml", *(here.parent / "_static").rglob("*")]
    config.site_files = {str(path.relative_to(here.parents[1])): hashlib.sha256(path.read_bytes()).hexdigest()
                         for path in sorted(files) if path.is_file()}


class ControlDirective(SphinxDirective):
    """A live figure of mgpt.widgets, by its name."""

    required_arguments = 1

    def run(self):
        from mgpt.widgets import load

        return [nodes.raw("", load(self.arguments[0]).html(), format="html")]


def setup(app):
    app.add_config_value("site_repository", "", "html")
    app.add_config_value("site_files", {}, "html")
    app.add_directive("control", ControlDirective)
    app.connect("config-inited", addresses, priority=940)
    app.connect("builder-inited", finish_pages)
    app.connect("html-page-context", head, priority=910)
    app.connect("html-page-context", add_launch, priority=910)
    app.connect("html-page-context", add_client, priority=400)
    app.connect("build-finished", write_sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
