"""Prints how long a change of each live figure takes once it is warm: `python tests/browser/measure_live.py [NAME …]`.

From the input event to the new view in the page, and to the frame that shows it; medians and 95th percentiles over
50 changes that the figure has not shown before.  It asserts nothing: times belong to a machine and its load.
"jump": one input gets any value.  "next": a number goes up or down by one step, another choice is made, or a step
button is pressed, half a second after the change before, as a person does it.
"""

import os
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import functools  # noqa: E402
import threading  # noqa: E402

from playwright.sync_api import sync_playwright  # noqa: E402

from conftest import HTML, PAGES, ROOT, Handler, Server, Visit, find_chromium  # noqa: E402
from mgpt.widgets import load, respond  # noqa: E402
from mgpt.widgets.control import Choice, Number  # noqa: E402

CHANGES = int(os.environ.get("CHANGES", 50))
MEASURE = """async ([name, changes, pause]) => {
  const section = document.querySelector(`section[data-control="${name}"]`);
  const view = section.querySelector(".mgpt-view");
  const idle = (ms) => new Promise((go) => setTimeout(go, ms));
  const times = [];
  for (const [field, value] of changes) {
    await idle(pause);
    const began = performance.now();
    let placed = 0;
    const done = new Promise((go) => {
      const seen = new MutationObserver(() => { seen.disconnect(); placed = performance.now() - began; go(); });
      seen.observe(view, { childList: true, subtree: true, characterData: true, attributes: true });
    });
    if (field) {
      const input = section.querySelector(`[name="${field}"]`);
      input.value = value;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    } else section.querySelector(`[data-action="${value}"]`).click();
    await Promise.race([done, idle(3000)]);
    if (!placed) continue;
    await new Promise((go) => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = go; c.port2.postMessage(0); }));
    times.push([placed, performance.now() - began]);
  }
  return times;
}"""


def changed(item, value, rng):
    """Another value of an input, or None where there is none."""
    if isinstance(item, Choice):
        return rng.choice([key for key in item.options if key != value] or [None])
    if isinstance(item, Number):
        steps = round((item.high - item.low) / item.step)
        return item.read(item.low + rng.randint(0, steps) * item.step)
    places = [index for index, letter in enumerate(value) if letter.isdigit()]
    if not places:
        return None
    place = rng.choice(places)
    return value[:place] + rng.choice("123456789") + value[place + 1 :]


def neighbour(item, value, rng):
    if isinstance(item, Choice):
        return changed(item, value, rng)
    return value + rng.choice((-item.step, item.step)) if isinstance(item, Number) else None


def new_states(control, kind):
    """Changes [field or None, value], each to a valid state whose view was not shown before."""
    rng, state, changes = random.Random(0), control.start(), []
    shown = {control.view_html(state)}
    for _try in range(40 * CHANGES):
        if kind == "next" and control.actions and rng.random() < 0.5:
            change = (None, rng.choice(list(control.actions)))
            after = respond(control.name, state, change[1])["state"]
        else:
            item = rng.choice(control.inputs)
            value = (changed if kind == "jump" else neighbour)(item, state[item.name], rng)
            change, after = (item.name, value), state | {item.name: value}
        if change[1] is None:
            continue
        answer = respond(control.name, after)
        if 'role="alert"' in answer["html"] or answer["html"] in shown:
            continue
        shown.add(answer["html"])
        state = answer["state"]
        changes.append(change if not isinstance(change[1], float) else (change[0], f"{change[1]:g}"))
        if len(changes) == CHANGES:
            break
    return changes


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main(names):
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}/course/"
    print(f"{'control':22}{'kind':6}{'n':>4}{'in place, ms':>16}{'p95':>8}{'painted, ms':>14}{'p95':>8}")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        for path in sorted((ROOT / "mgpt/widgets").glob("*.py")):
            name = path.stem
            page = next((page for page in PAGES if f'data-control="{name}"' in (HTML / page).read_text()), None)
            if page is None or (names and name not in names):
                continue
            for kind, pause in (("jump", 60), ("next", 500)):
                changes = new_states(load(name), kind)
                guest = Visit(browser, site)
                found = guest.open(page)
                found.locator(f'section[data-control="{name}"] [data-reset]').click()
                found.wait_for_function(
                    "name => document.querySelector(`section[data-control='${name}'] .mgpt-note`).textContent === ''",
                    arg=name, timeout=120_000)
                times = found.evaluate(MEASURE, [name, changes, pause])
                guest.context.close()
                if times:
                    placed, painted = zip(*times)
                    print(f"{name:22}{kind:6}{len(times):4}{at(placed, .5):16.1f}{at(placed, .95):8.1f}"
                          f"{at(painted, .5):14.1f}{at(painted, .95):8.1f}", flush=True)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
