"""The scheduler panel of chapter 10: requests as text, a policy, a budget; every tick, every block, every wait.

`panel` makes the same control under another name and with other start values, for other chapters.
"""

import functools
import re
from dataclasses import replace

from mgpt.scheduler import CLOCK_RULE, Request
from mgpt.text import N_, _
from mgpt.widgets.control import Choice, Control, Number, Table, Text, View, walk
from mgpt.widgets.tick_chart import Watched, block_map, cell, tick_chart, tick_table

MOST_REQUESTS, MOST_TICKS, MOST_POSITIONS, ALL = 6, 60, 64, 999
ABC = "A: 0 8 4 4; B: 1 8 3 4; C: 2 4 2"


def read_requests(text):
    """[Request] of "id: arrival prompt outputs [shared]; …".  ValueError says which cannot be read.

    shared: how many of its first positions are the common prefix; none where it is left out.
    """
    parts = [part for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MOST_REQUESTS:
        raise ValueError(_("Requests: 1 to {most} are shown, not {n}").format(most=MOST_REQUESTS, n=len(parts)))
    requests = []
    for part in parts:
        try:
            name, colon, numbers = part.partition(":")
            numbers = numbers.split()
            whole = all(re.fullmatch("-?[0-9]+", number) for number in numbers)
            if not (colon and whole and len(numbers) in (3, 4) and 1 <= len(name.strip()) <= 3):
                raise ValueError(_("a name of 1 to 3 letters, a colon, and three or four whole numbers are needed"))
            arrival, prompt_len, output_len, *shared = map(int, numbers)
            if prompt_len + output_len > MOST_POSITIONS or arrival > MOST_TICKS:
                raise ValueError(_("at most {most} positions are shown, and arrivals to tick {tick}").format(
                    most=MOST_POSITIONS, tick=MOST_TICKS))
            prefix = {"prefix_key": "x", "prefix_len": shared[0]} if shared else {}
            requests.append(Request(name.strip(), arrival, prompt_len, output_len, **prefix))
        except ValueError as error:
            raise ValueError(_("Request {part}: {error}").format(part=repr(part.strip()), error=error)) from None
    return requests


@functools.lru_cache(maxsize=16)
def run(text, policy, sharing, budget, chunked, pool, reserve, max_active, block_size):
    """(Timeline, shared keys of every tick) of a whole run; ValueError where it is refused or too long to show."""
    scheduler = Watched(read_requests(text), policy=policy, max_active=max_active, block_size=block_size,
                        token_budget=budget or None, chunked=chunked == "yes", pool_blocks=pool or None,
                        sharing=None if sharing == "none" else sharing, reserve=reserve)
    while not scheduler.done:
        if len(scheduler.shared) == MOST_TICKS:
            raise ValueError(_("These requests take more than the {most} ticks that are shown").format(most=MOST_TICKS))
        scheduler.step()
    return scheduler.timeline(), scheduler.shared


def run_of(state):
    return run(state["requests"], *(state[name] for name in (
        "policy", "sharing", "budget", "chunked", "pool", "reserve", "max_active", "block_size")))


def view(state, name="scheduler_panel"):
    """The View of a state: settings, and how many ticks are done.  name: the control's, which its figures carry."""
    figure = f"figure-{name}".replace("_", "-")
    timeline, shared = run_of(state)
    done = min(state["ticks"], len(timeline.ticks))
    ticks = timeline.ticks[:done]
    chart = tick_chart(figure, [(_(POLICIES[state["policy"]]), timeline)], done)
    table = tick_table("", timeline, done)
    pictures = (chart,)
    if ticks:
        pictures += (block_map(f"{figure}-blocks", ticks[-1], shared[done - 1], state["block_size"]),)
    return View(pictures, table.header, table.rows, sentence(ticks, timeline), more=(waits(timeline, done),),
                note=_(CLOCK_RULE))


def waits(timeline, done):
    """The table of the requests, as far as the ticks shown have stamped it."""
    def known(time, arrival=0):
        return None if time is None or time + arrival > done else time

    rows = tuple((str(served.id), served.arrival, " ".join(str(t) for t in served.output_ticks if t < done) or None,
                  known(served.ttft, served.arrival), known(served.completion),
                  known(served.latency, served.arrival)) for served in timeline.requests.values())
    header = (_("request"), _("arrival"), _("output ticks"), _("TTFT: wait for output 1"), _("completion"), _("latency"))
    return Table(_("Every request, in ticks"), header, rows)


def sentence(ticks, timeline):
    if not ticks:
        return _("No tick has run: nothing is computed, and every wait is still open.")
    row = ticks[-1]
    served = ", ".join(f"{key} {cell(entry)}" for key, entry in row.requests.items() if entry.inputs) or _("nobody")
    lost = _(" Preempted: {names}, whose positions are computed again.").format(
        names=", ".join(map(str, row.preempted))) if row.preempted else ""
    words = _("Tick {tick} of {n} serves {served}.{lost} {computed} positions computed so far, {reused} reused; "
              "blocks: {use} in use, {resident} resident, {reserved} reserved; peaks so far {peak} resident and "
              "{peak_reserved} reserved.")
    return words.format(
        tick=row.tick, n=f"0–{len(timeline.ticks) - 1}", served=served, lost=lost, computed=row.positions_computed,
        reused=row.positions_reused, use=row.blocks_in_use, resident=row.blocks_resident, reserved=row.blocks_reserved,
        peak=max(tick.blocks_resident for tick in ticks),
        peak_reserved=max(tick.blocks_reserved for tick in ticks))


to_tick = walk("ticks", lambda state: len(run_of(state)[0].ticks))
POLICIES = {"continuous": N_("continuous"), "static": N_("static waves")}
INPUTS = (
    Text("requests", N_("Requests"), ABC, unit=N_("(name: arrival prompt outputs shared; …)")),
    Choice("policy", N_("Policy"), "continuous", POLICIES),
    Choice("sharing", N_("Shared prefix"), "none", {
        "none": N_("computed by each"), "prewarmed": N_("computed beforehand"), "dynamic": N_("found when computed")}),
    Number("budget", N_("Token budget"), 0, 0, 64, unit=N_("(positions a tick; 0: no limit)")),
    Choice("chunked", N_("Prompts beyond the budget"), "yes", {
        "yes": N_("cut into chunks"), "no": N_("wait until whole")}),
    Number("pool", N_("Pool"), 0, 0, 64, unit=N_("(KV blocks; 0: no limit)")),
    Choice("reserve", N_("Reserved at admission"), "full", {
        "full": N_("prompt and outputs"), "prompt": N_("the prompt alone")}),
    Number("max_active", N_("Active at once"), 2, 1, 6, unit=N_("(requests)")),
    Number("block_size", N_("Block size"), 4, 1, 16, unit=N_("(positions)")),
)
ACTIONS = {
    "first": (N_("Before tick 0"), to_tick(lambda done, last: 0)),
    "back": (N_("Tick back"), to_tick(lambda done, last: max(done - 1, 0))),
    "step": (N_("Next tick"), to_tick(lambda done, last: min(done + 1, last))),
    "last": (N_("To the end"), to_tick(lambda done, last: ALL)),
}


def panel(name, title, defaults=None):
    """The panel as a Control of another file: CONTROL = panel(<its name>, N_("its title"), {"sharing": "dynamic"}).

    defaults: start values by name: of the inputs above, and "ticks", how many ticks are done (ALL: the whole run).
    A value that an input does not allow is a ValueError, and so is a name that there is not.
    """
    defaults = dict(defaults or {})
    hidden = {"ticks": defaults.pop("ticks", ALL)}
    inputs = tuple(replace(item, default=item.read(defaults.pop(item.name, item.default))) for item in INPUTS)
    if defaults:
        raise ValueError(f"defaults must be named like the panel's inputs, not {sorted(defaults)}")
    return Control(name, title, inputs, functools.partial(view, name=name), ACTIONS, hidden,
                   play="step", rewind="first")


CONTROL = panel("scheduler_panel", N_("The scheduler, tick by tick"))
