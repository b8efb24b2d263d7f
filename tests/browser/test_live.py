"""Live figures in a real browser answer as `mgpt.widgets.respond` does here, and stand still where they cannot."""

import json
from urllib.parse import urlencode

import pytest

from conftest import HTML, PAGES, ROOT, screenshot
from mgpt.widgets import load, respond

IN_PAGES = [(page, name) for page in PAGES for name in sorted(path.stem for path in (ROOT / "mgpt/widgets").glob("*.py"))
            if f'data-control="{name}"' in (HTML / page).read_text(encoding="utf-8")]
# The browser's NumPy may differ in the last digit of a float, so numbers are compared as they are shown.
VIEW = 'section[data-control="{}"] .mgpt-view'


@pytest.fixture(scope="module")
def warm(browser, site):
    """name -> a page on which that figure has answered once.  One visit a page."""
    from conftest import Visit

    made = {}

    def get(page, name):
        if page not in made:
            made[page] = Visit(browser, site, reduced_motion="reduce")
            made[page].open(page)
        found = made[page].page
        found.locator(f'section[data-control="{name}"] button[data-reset]').click()
        settle(found, name, timeout=120_000)
        return made[page]

    yield get
    for one in made.values():
        one.context.close()


def settle(page, name, timeout=10_000):
    """Wait for the answer to the last change."""
    page.wait_for_function(
        """name => { const s = document.querySelector(`section[data-control="${name}"]`);
                     return !s.hasAttribute("aria-busy") && s.querySelector(".mgpt-note").textContent === ""; }""",
        arg=name, timeout=timeout)


def wait_for_address(page, text, there=True):
    """The address is written a moment after a row of changes."""
    page.wait_for_function("([text, there]) => location.hash.includes(text) === there", arg=[text, there])


def view(page, name):
    return page.locator(VIEW.format(name)).evaluate("element => element.innerHTML")


def as_browser_writes(page, markup):
    return page.evaluate("text => { const d = document.createElement('div'); d.innerHTML = text; return d.innerHTML; }", markup)


def test_the_landing_page_and_chapters_have_live_figures():
    assert ("book/index.html", "decode_stepper") in IN_PAGES and ("book/02_cache.html", "decode_stepper") in IN_PAGES


@pytest.mark.parametrize("page, name", IN_PAGES)
def test_a_figure_answers_as_mgpt_does(warm, page, name):
    guest, control = warm(page, name), load(name)
    found, section = guest.page, guest.page.locator(f'section[data-control="{name}"]')
    assert view(found, name) == as_browser_writes(found, respond(name, {})["html"])
    state = respond(name, {})["state"]
    for item in control.inputs:
        given = found.locator(f'[id="{name}-{item.name}"]')
        if hasattr(item, "options"):
            value = list(item.options)[-1]
            given.select_option(value)
        elif hasattr(item, "high"):
            value = f"{item.high:g}"
            given.fill(value)
        else:
            continue
        settle(found, name)
        state = respond(name, state | {item.name: value})["state"]
        assert view(found, name) == as_browser_writes(found, respond(name, state)["html"]), item.name
    for action in control.actions:
        section.locator(f'[data-action="{action}"]').click()
        settle(found, name)
        state = respond(name, state, action)["state"]
        assert view(found, name) == as_browser_writes(found, respond(name, state)["html"]), action
    wait_for_address(found, f"{name}?")
    screenshot(found, f"live-{page.replace('/', '-')}-{name}")
    section.locator("[data-reset]").click()
    settle(found, name)
    assert view(found, name) == as_browser_writes(found, respond(name, {})["html"])
    wait_for_address(found, f"{name}?", there=False)
    assert guest.problems == []


def test_a_change_can_be_undone_and_a_wrong_value_is_named(visit):
    name = "decode_stepper"
    found = visit().open("book/02_cache.html")
    prompt, undo = found.locator("#decode_stepper-prompt"), found.locator("[data-undo]")
    assert undo.is_disabled()
    prompt.fill("12")
    settle(found, name, timeout=120_000)
    prompt.fill("99")
    settle(found, name)
    assert "a number from 1 to 40 is needed, not 99" in found.locator(".mgpt-sentence").inner_text()
    undo.click()
    settle(found, name)
    assert prompt.input_value() == "12" and "holds 12 positions" in found.locator(".mgpt-sentence").inner_text()
    undo.click()
    settle(found, name)
    assert prompt.input_value() == "8" and undo.is_disabled()
    assert found.locator(".mgpt-said").inner_text() == found.locator(".mgpt-sentence").inner_text()


def test_the_address_brings_the_state_back(visit):
    state = {"prompt": 3, "outputs": 5, "batch": 2, "passes": 4}
    found = visit().open(f"book/02_cache.html#decode_stepper?{urlencode(state)}")
    settle(found, "decode_stepper", timeout=120_000)
    assert view(found, "decode_stepper") == as_browser_writes(found, respond("decode_stepper", state)["html"])
    assert found.locator("#decode_stepper-prompt").input_value() == "3"


def test_what_is_likely_next_is_answered_ahead_and_stands_there_at_once(visit):
    """In the same turn of the browser's loop, in which no worker could have answered; and it is what mgpt gives."""
    page = visit().open("book/02_cache.html")
    page.evaluate("""() => { window.asked = []; const post = Worker.prototype.postMessage;
                     Worker.prototype.postMessage = function (data) { asked.push(data.question); post.call(this, data); }; }""")
    page.locator("#decode_stepper-batch").fill("5")
    settle(page, "decode_stepper", timeout=120_000)
    page.wait_for_function("asked.some(text => text.includes('step'))")
    page.wait_for_timeout(500)
    before = page.evaluate("asked.length")
    for touch, state in (
            ("document.querySelector('[data-action=step]').click()", {"batch": 5, "passes": 2}),
            ("const i = document.querySelector('#decode_stepper-batch'); i.stepUp(); i.dispatchEvent(new Event('input', { bubbles: true }))",
             {"batch": 6, "passes": 2})):
        at_once = page.evaluate("async () => { %s; for (let i = 0; i < 50; i++) await null; "
                                "return document.querySelector('.mgpt-view').innerHTML; }" % touch)
        assert at_once == as_browser_writes(page, respond("decode_stepper", state)["html"])
        page.wait_for_timeout(1000)
    asked = page.evaluate("asked")[before:]
    assert len(set(asked)) == len(asked)  # no question is asked twice


def test_a_picture_stays_scrolled_where_it_was(visit):
    page = visit(viewport={"width": 320, "height": 700}).open("book/02_cache.html")
    page.locator('[data-control="decode_stepper"] [data-action="step"]').click()
    settle(page, "decode_stepper", timeout=120_000)
    page.evaluate("document.querySelector('.mgpt-view .mgpt-table').scrollLeft = 40")
    page.locator('[data-control="decode_stepper"] [data-action="step"]').click()
    wait_for_output(page, 3)
    assert page.evaluate("document.querySelector('.mgpt-view .mgpt-table').scrollLeft") == 40


@pytest.mark.parametrize("nonsense", ["decode_stepper?passes=many&prompt=x", "decode_stepper?", "no_such?x=1", "traps"])
def test_an_address_that_means_nothing_leaves_the_figure_alone(visit, nonsense):
    guest = visit()
    found = guest.open(f"book/02_cache.html#{nonsense}")
    if "?" in nonsense and not nonsense.startswith("no_such"):
        found.wait_for_function("!document.querySelector('section.mgpt-control').hasAttribute('aria-busy')", timeout=120_000)
    assert found.locator("section.mgpt-control svg").count() + found.locator('[role="alert"]').count() >= 1
    assert guest.problems == []


def test_nothing_is_loaded_before_a_figure_is_touched(visit):
    guest = visit()
    found = guest.open("book/02_cache.html", wait="networkidle")
    assert not [request.url for request in guest.requests if "pyodide" in request.url or "live-worker" in request.url]
    found.locator("#decode_stepper-prompt").focus()
    settle(found, "decode_stepper", timeout=120_000)
    assert [request.url for request in guest.requests if request.url.endswith("pyodide.asm.wasm")]


def test_without_scripts_the_figure_its_words_and_a_note_are_there(visit):
    found = visit(java_script_enabled=False).open("book/02_cache.html")
    section = found.locator("section.mgpt-control")
    assert section.locator("svg title").count() == 1 and section.locator("table").is_visible()
    assert "make lab" in section.locator(".mgpt-note").inner_text()
    assert section.locator("button:enabled").count() == 0


def test_without_python_the_figure_says_so_and_stays(visit):
    guest = visit()
    guest.context.route("**/pyodide/**", lambda route: route.abort())
    found = guest.open("book/02_cache.html")
    before = view(found, "decode_stepper")
    found.locator('[data-action="step"]').click()
    found.wait_for_function("document.querySelector('.mgpt-note').textContent.includes('No answer')", timeout=30_000)
    assert view(found, "decode_stepper") == before


def test_times_and_bytes_of_a_first_answer_are_kept_for_people(visit):
    """Measured, never asserted: they go into the artefacts."""
    from conftest import ARTEFACTS
    from test_pages import transferred

    measured = {}
    guest = visit()
    for kind in ("cold", "warm"):
        found = guest.open("book/02_cache.html", wait="networkidle")
        guest.requests.clear()
        measured[f"first answer, {kind}, ms"] = found.evaluate(
            """async () => { const began = performance.now(); document.querySelector('[data-action=step]').click();
               const note = document.querySelector('.mgpt-note');
               while (note.textContent !== "") await new Promise(go => setTimeout(go, 5));
               return Math.round(performance.now() - began); }""")
        measured[f"bytes, {kind}"] = transferred(guest)
    measured["a change once warm, ms"] = found.evaluate(
        """async () => { const input = document.querySelector('#decode_stepper-prompt'); const view = document.querySelector('.mgpt-view');
           const times = [];
           for (let value = 2; value < 32; value++) {
             const changed = new Promise(go => new MutationObserver((_, o) => { o.disconnect(); go(); }).observe(view, { childList: true }));
             const began = performance.now();
             input.value = value; input.dispatchEvent(new Event('input', { bubbles: true }));
             await changed; times.push(performance.now() - began);
           }
           return Math.round(times.sort((a, b) => a - b)[15] * 10) / 10; }""")
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    (ARTEFACTS / "live.json").write_text(json.dumps(measured, indent=1))
    assert measured["bytes, cold"] > 5_000_000


# ------------------------------------------------------------------ play
PLAY = '[data-control="decode_stepper"] [data-play]'


def sentence(page):
    return page.locator('[data-control="decode_stepper"] .mgpt-sentence').inner_text()


def wait_for_output(page, number):
    page.wait_for_function("n => document.querySelector('.mgpt-sentence').textContent.startsWith(`Output ${n} has`)",
                           arg=number, timeout=120_000)


def test_play_goes_on_by_itself_to_the_end_and_one_undo_takes_it_back(visit):
    guest = visit()
    page = guest.open("book/02_cache.html")
    play = page.locator(PLAY)
    play.focus()
    page.evaluate("""() => { window.spoken = []; new MutationObserver(() => spoken.push(document.querySelector('.mgpt-said').textContent))
                     .observe(document.querySelector('.mgpt-said'), { childList: true }); }""")
    settle(page, "decode_stepper", timeout=120_000)
    page.keyboard.press("Enter")
    wait_for_output(page, 2)
    assert play.get_attribute("aria-pressed") == "true"
    wait_for_address(page, "prompt=8&outputs=4&batch=1&passes=2")
    wait_for_output(page, 4)
    page.wait_for_selector(PLAY + '[aria-pressed="false"]', timeout=10_000)
    assert view(page, "decode_stepper") == as_browser_writes(page, respond("decode_stepper", {"passes": 4})["html"])
    assert play.evaluate("element => element === document.activeElement")
    spoken = [text for text in page.evaluate("spoken") if not text.startswith("Output 1 ")]
    assert len(spoken) == 1 and spoken[0].startswith("Output 4 has been chosen")  # no beat is read out before the last
    page.locator("[data-undo]").click()
    wait_for_output(page, 1)
    assert page.locator("[data-undo]").is_disabled() and guest.problems == []


@pytest.mark.parametrize("touch", ["input", "undo", "reset", "step", "pause"])
def test_a_play_stops_when_anything_is_touched(visit, touch):
    page = visit().open("book/02_cache.html#decode_stepper?outputs=40")
    settle(page, "decode_stepper", timeout=120_000)
    page.locator(PLAY).click()
    wait_for_output(page, 2)
    if touch == "input":
        page.locator("#decode_stepper-prompt").fill("9")
    else:
        page.locator({"undo": "[data-undo]", "reset": "[data-reset]", "pause": PLAY, "step": '[data-action="step"]'}[touch]).click()
    settle(page, "decode_stepper")
    assert page.locator(PLAY).get_attribute("aria-pressed") == "false"
    before = sentence(page)
    page.wait_for_timeout(1500)
    assert sentence(page) == before
    assert page.locator("[data-control] .mgpt-view").first.get_attribute("aria-busy") is None


def test_played_at_the_end_it_begins_again(visit):
    page = visit().open("book/02_cache.html#decode_stepper?outputs=3&passes=3")
    settle(page, "decode_stepper", timeout=120_000)
    page.locator(PLAY).click()
    wait_for_output(page, 1)
    wait_for_output(page, 2)


def test_who_wants_no_motion_gets_the_end_at_once(visit):
    page = visit(reduced_motion="reduce").open("book/02_cache.html#decode_stepper?outputs=40")
    settle(page, "decode_stepper", timeout=120_000)
    changes = page.evaluate("""async () => {
      let changes = 0;
      const view = document.querySelector('.mgpt-view');
      const seen = new MutationObserver(() => { changes += 1; });
      seen.observe(view, { childList: true, subtree: true, characterData: true });
      document.querySelector('[data-play]').click();
      while (!document.querySelector('.mgpt-sentence').textContent.startsWith('Output 40')) await new Promise(go => setTimeout(go, 20));
      return changes; }""")
    assert changes <= 1 and page.locator(PLAY).get_attribute("aria-pressed") == "false"
    assert page.locator(".mgpt-said").first.inner_text() == sentence(page)
