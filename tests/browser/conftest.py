"""A site like GitHub Pages' (a sub-path, gzip) and a browser (Debian's Chromium) that reports all that goes wrong."""

import functools
import gzip
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
HTML = Path(os.environ.get("SITE_HTML", ROOT / "_build" / "html"))
ARTEFACTS = ROOT / "_build" / "artefacts"
PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.glob("*/*.html") if path.parts[-2] in ("book", "exercises"))
COMPRESSED = (".html", ".css", ".js", ".mjs", ".json", ".svg", ".wasm", ".ipynb", ".txt")


@functools.cache
def compressed(path, _modified):
    return gzip.compress(Path(path).read_bytes(), 6)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the site below /course/, everything else is missing."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not re.match(r"/course/", self.path) or (path.is_dir() and not (path / "index.html").is_file()):
            self.send_error(404)
            return
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        small = path.suffix in COMPRESSED
        content = compressed(str(path), path.stat().st_mtime_ns) if small else path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=600")
        if small:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(content)

    def translate_path(self, path):
        return super().translate_path(path.removeprefix("/course"))

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A browser that leaves early is no news."""


@pytest.fixture(scope="session")
def site():
    """The address of the built site, which ends in a slash."""
    assert HTML.is_dir(), "run `make book` first"
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/course/"
    server.shutdown()


def find_chromium():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "Chromium is missing (Debian: apt-get install chromium)"
    return found


@pytest.fixture(scope="session")
def browser():
    found = find_chromium()
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


class Visit:
    """A page of a fresh profile, with what it asked for and what went wrong."""

    def __init__(self, browser, site, **options):
        self.site, self.context = site, browser.new_context(**options)
        self.host = site.removesuffix("course/")
        self.page = self.context.new_page()
        self.requests, self.problems = [], []
        self.context.on("request", self._asked)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.context.on("response", self._answered)

    def _asked(self, request):
        self.requests.append(request)
        if not request.url.startswith((self.host, "data:", "blob:", "about:")):
            self.problems.append(f"off the site: {request.url}")

    def _answered(self, answer):
        if answer.status >= 400:
            self.problems.append(f"{answer.status} {answer.url}")

    def _said(self, message):
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def open(self, path, wait="load"):
        self.page.goto(self.site + path, wait_until=wait)
        return self.page


@pytest.fixture
def visit(browser, site):
    """visit(**options of a browser context) -> Visit; closed at the end of the test."""
    made = []

    def make(**options):
        made.append(Visit(browser, site, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()


def screenshot(page, name, **options):
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", **options)


def pytest_ignore_collect(collection_path, config):
    """These tests need Chromium and minutes: they run where they are asked for (`make test-browser`)."""
    asked = [str(Path(config.invocation_params.dir, str(given).split("::")[0])) for given in config.invocation_params.args]
    return None if any("browser" in given for given in asked) else True
