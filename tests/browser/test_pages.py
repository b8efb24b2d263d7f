"""Every page in a real browser, below a sub-path as on GitHub Pages: nothing fails, nothing comes from elsewhere."""

import re

import pytest

from conftest import HTML, PAGES, ROOT, screenshot

AXE = (ROOT / "tests/browser/vendor/axe.min.js").read_text(encoding="utf-8")
EVERY = [*PAGES, "index.html", "search.html?q=cache", "genindex.html"]
RUN_AXE = """async () => (await axe.run(document)).violations.map(
  (rule) => rule.id + ": " + rule.nodes.map((node) => node.target.join(" ")).join(", "))"""
BUDGET = 250_000  # bytes of a first visit to an ordinary page, as transferred


def test_the_pages_of_the_book_are_found():
    assert {"book/index.html", "book/02_cache.html", "exercises/30_8_exercises.html"} <= set(PAGES)


@pytest.mark.parametrize("page", EVERY)
def test_a_page_loads_without_an_error_and_without_another_host(visit, page):
    guest = visit()
    guest.open(page, wait="networkidle")
    assert guest.problems == []
    assert guest.page.title().strip() and guest.page.locator("h1:visible").count() >= 1


def test_an_error_a_missing_file_and_another_host_would_be_noticed(visit):
    guest = visit()
    page = guest.open("book/index.html")
    page.evaluate("console.error('spoken')")
    page.evaluate("fetch('no-such-file.js')")
    page.evaluate("fetch('http://127.0.0.1:9/x').catch(() => null)")
    page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    page.wait_for_timeout(300)
    told = "\n".join(guest.problems)
    assert all(word in told for word in ("spoken", "404", "off the site: http://127.0.0.1:9/x", "thrown"))


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 1280), ("light", 390)])
@pytest.mark.parametrize("page", [*PAGES, "search.html?q=cache", "genindex.html"])
def test_axe_finds_nothing(visit, page, scheme, width):
    """All rules of axe-core, none switched off, on a wide page and on a phone's."""
    found = visit(color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800})
    found = found.open(page, wait="networkidle")
    found.evaluate(AXE)
    assert found.evaluate(RUN_AXE) == []


def test_axe_would_find_something(visit):
    page = visit().open("book/index.html")
    page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<input><img src=\"x.png\">')")
    page.evaluate(AXE)
    assert {text.split(":")[0] for text in page.evaluate(RUN_AXE)} >= {"label", "image-alt"}


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_needs_no_sideways_scroll(visit, page):
    found = visit(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, device_scale_factor=1).open(page)
    assert found.evaluate("document.documentElement.scrollWidth") <= 390
    screenshot(found, "phone-" + page.replace("/", "-").removesuffix(".html"), full_page=True)


def transferred(guest):
    """Bytes of all answers as they went over the line (their bodies)."""
    return sum(max(0, request.sizes()["responseBodySize"]) for request in guest.requests if request.url.startswith("http"))


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_is_small(visit, page):
    guest = visit()
    guest.open(page, wait="networkidle")
    assert 10_000 < transferred(guest) <= BUDGET, f"{transferred(guest):,} bytes in {len(guest.requests)} requests"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_printed(visit, page):
    """Print hides what only a screen can use, and a chapter's text is all there."""
    found = visit(viewport={"width": 794, "height": 1123}).open(page)
    found.emulate_media(media="print")
    assert found.locator("main h1:visible").count() >= 1
    for hidden in (".bd-sidebar-primary", ".mgpt-form", ".prev-next-footer", ".article-header-buttons"):
        assert found.locator(f"{hidden}:visible").count() == 0, hidden
    screenshot(found, "print-" + page.replace("/", "-").removesuffix(".html"), full_page=True)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_read_from_a_file_has_its_text_its_style_and_no_error(visit, page):
    guest = visit()
    guest.host = "file://"
    found = guest.page
    found.goto((HTML / page).as_uri())
    found.wait_for_timeout(200)
    assert guest.problems == []
    assert found.evaluate("getComputedStyle(document.querySelector('.bd-main')).display") == "flex"
    if found.locator("section.mgpt-control").count():
        assert "from a web server" in found.locator(".mgpt-note").first.inner_text()
        assert found.locator("section.mgpt-control svg:visible").count() >= 1


@pytest.mark.parametrize("page", PAGES)
def test_a_page_describes_itself(visit, page):
    found = visit(java_script_enabled=False).open(page)
    words = found.locator('meta[name="description"]').get_attribute("content")
    assert 40 <= len(words) <= 200
    assert found.locator('meta[property="og:description"]').get_attribute("content") == words
    assert found.locator('link[rel="icon"]').count() == 1 and found.locator('meta[name="viewport"]').count() == 1


@pytest.mark.parametrize("page", PAGES)
def test_headings_go_down_one_level_at_a_time_and_pictures_have_words(visit, page):
    found = visit().open(page)
    levels = found.eval_on_selector_all("article h1, article h2, article h3, article h4", "all => all.map(h => +h.tagName[1])")
    assert levels.count(1) == 1 and all(after - before <= 1 for before, after in zip(levels, levels[1:]))
    for picture in found.locator("article img").all():
        assert len(picture.get_attribute("alt") or "") > 10
        assert not re.fullmatch(r"[0-9a-f_/.]+(png|svg)?", picture.get_attribute("alt"))


@pytest.mark.parametrize("word, page", [
    ("softmax", "book/02_cache.html"), ("prefill", "book/02_cache.html"), ("rotary", "book/02_cache.html"),
    ("缓存", "book/glossary.html"), ("注意力", "book/glossary.html"), ("量化", "book/glossary.html"),
    ("预填充", "book/glossary.html"),
])
def test_a_search_in_english_or_chinese_leads_to_the_page(visit, word, page):
    found = visit().open(f"search.html?q={word}")
    found.wait_for_selector("#search-results li a", timeout=10_000)
    found.wait_for_function("document.querySelector('.search-summary')?.innerText.match(/\\d/)")  # results come one by one
    addresses = found.eval_on_selector_all("#search-results li a", "all => all.map(a => a.getAttribute('href'))")
    assert any(address.split("?")[0].split("#")[0] == page for address in addresses), addresses


def test_a_search_for_nothing_finds_nothing(visit):
    found = visit().open("search.html?q=无此词")
    found.wait_for_function("document.querySelector('#search-results').textContent.includes('did not match')")
    assert found.locator("#search-results li a").count() == 0
