"""The scheduler panel with a small chat: short requests that share a prefix, and a long prompt among them."""

from mgpt.text import N_
from mgpt.widgets.scheduler_panel import panel

SMALL_CHAT = "A: 0 12 8 8; B: 2 12 7 8; C: 3 44 3 8; D: 5 11 5 8"
CONTROL = panel("choosing_panel", N_("A small chat, tick by tick"), {
    "requests": SMALL_CHAT, "sharing": "dynamic", "max_active": 3})
