"""The scheduler panel of chapter 12: four questions about one policy, with sharing on."""

from mgpt.text import N_
from mgpt.widgets.scheduler_panel import panel

CONTROL = panel("prefix_panel", N_("A shared prefix, tick by tick"), {
    "requests": "A: 0 20 3 18; B: 1 20 3 18; C: 1 20 3 18; D: 2 20 3 18", "sharing": "dynamic", "budget": 20,
    "max_active": 4, "block_size": 4, "ticks": 3})
