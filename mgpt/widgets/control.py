"""What every live control is: inputs, and a pure function from their values to a picture, a table and a sentence.

One description serves three places: JupyterLab (ipywidgets), the page's first paint (static HTML), and the page's
script, which sends states to `respond` in the browser's Python.  No rule of the subject is written anywhere else.
"""

import html
from collections.abc import Callable
from dataclasses import dataclass, field

from mgpt.text import N_, _
from mgpt.widgets.svg import Figure, style

# Two actions of every control that plays: the first beat after Play is pressed, which begins again at the end; and
# all beats at once, for those who want no motion.
PLAY, PLAY_ALL = "play", "play-all"
PLAY_LABEL, MOST_BEATS = N_("Play"), 1000

@dataclass(frozen=True)
class Number:
    """A whole or decimal number within [low, high]; whole where `step` is."""

    name: str
    label: str
    default: float
    low: float
    high: float
    step: float = 1
    unit: str = ""

    def read(self, value):
        """The value as a number of this input.  ValueError says what is allowed."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not self.low <= number <= self.high:
            raise ValueError(_("{label}: a number from {low:g} to {high:g} is needed, not {value}").format(
                label=_(self.label), low=self.low, high=self.high, value=_given(value)))
        if isinstance(self.step, int) and number != int(number):
            raise ValueError(_("{label}: a whole number is needed, not {value}").format(label=_(self.label), value=value))
        return int(number) if isinstance(self.step, int) else number


@dataclass(frozen=True)
class Choice:
    """One of `options`, a dict from value to label."""

    name: str
    label: str
    default: str
    options: dict
    unit: str = ""

    def read(self, value):
        if str(value) not in self.options:
            raise ValueError(_("{label}: one of {options} is needed, not {value}").format(
                label=_(self.label), options=", ".join(self.options), value=_given(value)))
        return str(value)


@dataclass(frozen=True)
class Text:
    """A short line of text that the control's own view reads."""

    name: str
    label: str
    default: str
    unit: str = ""
    limit: int = 400

    def read(self, value):
        if not isinstance(value, str) or len(value) > self.limit:
            raise ValueError(_("{label}: at most {limit} characters").format(label=_(self.label), limit=self.limit))
        return value


@dataclass(frozen=True)
class Table:
    """Rows under a caption; show it as a cell's last value."""

    caption: str
    header: tuple
    rows: tuple

    def _repr_html_(self):
        return _table(self.caption, self.header, self.rows, self.caption)


@dataclass(frozen=True)
class View:
    """What a state looks like: one or more figures, the same as a table, and what to see in a sentence.

    note: a rule that the figures follow.  more: further tables, which stand before the table.
    """

    pictures: tuple[Figure, ...]
    header: tuple[str, ...]
    rows: tuple[tuple, ...]
    sentence: str
    more: tuple[Table, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Control:
    """name: a word for addresses and ids.  view(state): a View of a state whose inputs are all valid (a ValueError
    it raises is shown to the person).  actions: name -> (label, state -> state), shown as buttons; hidden: further
    state that only actions change, with its start value.

    play: the action that a Play button repeats, about once a second, until it changes nothing; "" for no such button.
    rewind: the action that begins again where Play is pressed at the end; "" for the start values of `hidden`.
    """

    name: str
    title: str
    inputs: tuple
    view: Callable[[dict], View]
    actions: dict = field(default_factory=dict)
    hidden: dict = field(default_factory=dict)
    play: str = ""
    rewind: str = ""

    def start(self):
        """The state that the control begins with."""
        return {item.name: item.default for item in self.inputs} | dict(self.hidden)

    def read(self, state):
        """A whole valid state from any dict of values.  ValueError says which input is wrong."""
        state = self.start() | {key: value for key, value in dict(state).items() if key in self.start()}
        return state | {item.name: item.read(state[item.name]) for item in self.inputs}

    def act(self, action, state):
        """The state after one of `actions`, or after PLAY or PLAY_ALL where the control plays."""
        state = self.read(state)
        if action == PLAY and self.play:
            after = self.act(self.play, state)
            return self._rewound(state) if self.view_html(after) == self.view_html(state) else after
        if action == PLAY_ALL and self.play:
            for _beat in range(MOST_BEATS):
                before, state = state, self.act(self.play, state)
                if state == before:
                    break
            return state
        return self.actions[action][1](state)

    def _rewound(self, state):
        return self.act(self.rewind, state) if self.rewind else state | self.hidden

    def view_html(self, state):
        """Picture, table and sentence as HTML; for a wrong input, the sentence that says so."""
        try:
            view = self.view(self.read(state))
        except ValueError as error:
            return f'<p class="mgpt-sentence" role="alert">{html.escape(str(error))}</p>'
        pictures = "".join(f'<div class="mgpt-picture">{picture.svg(styled=False)}</div>' for picture in view.pictures)
        title = _("{title}: the same as a table").format(title=_(self.title))
        tables = "".join(table._repr_html_() for table in view.more)
        note = f'<p class="mgpt-rule">{html.escape(view.note)}</p>' if view.note else ""
        return (f'{pictures}<p class="mgpt-sentence" role="status">{html.escape(view.sentence)}</p>'
                f"{note}{tables}{_table(title, view.header, view.rows)}")

    def html(self, state=None):
        """The whole control as static HTML: a form, and the view of `state` (or of the start)."""
        state = self.start() if state is None else self.read(state)
        fields = "".join(self._field(item, state[item.name]) for item in self.inputs)
        buttons = "".join(f'<button type="button" data-action="{name}" disabled>{html.escape(_(label))}</button>'
                          for name, (label, _change) in self.actions.items())
        if self.play:
            buttons += (f'<button type="button" data-play="{self.play}" aria-pressed="false" disabled>'
                        f"{html.escape(_(PLAY_LABEL))}</button>")
        for name, label in (("undo", N_("Undo")), ("reset", N_("Reset"))):
            buttons += f'<button type="button" data-{name} disabled>{html.escape(_(label))}</button>'
        return (f'<section class="mgpt-control" data-control="{self.name}" aria-label="{html.escape(_(self.title))}">'
                f'<form class="mgpt-form">{fields}<div class="mgpt-buttons">{buttons}</div></form>'
                f'{style()}<div class="mgpt-view">{self.view_html(state)}</div></section>')

    def _field(self, item, value):
        ident = f"{self.name}-{item.name}"
        unit = f' <span class="mgpt-unit">{html.escape(_(item.unit))}</span>' if item.unit else ""
        label = f'<label for="{ident}">{html.escape(_(item.label))}{unit}</label>'
        common = f'id="{ident}" name="{item.name}"'
        if isinstance(item, Choice):
            options = "".join(f'<option value="{html.escape(key)}"{" selected" if key == value else ""}>'
                              f"{html.escape(_(words))}</option>" for key, words in item.options.items())
            return f"<div>{label}<select {common}>{options}</select></div>"
        if isinstance(item, Number):
            return (f'<div>{label}<input type="number" {common} value="{value:g}" min="{item.low:g}" max="{item.high:g}" '
                    f'step="{item.step:g}" inputmode="decimal"></div>')
        return f'<div>{label}<input type="text" {common} value="{html.escape(value)}" maxlength="{item.limit}"></div>'

    def _repr_mimebundle_(self, include=None, exclude=None):
        """Both faces: the live one, where a front end knows ipywidgets, and the static one everywhere else."""
        bundle = {"text/plain": f"<control: {self.title}>", "text/html": self.html()}
        try:
            from mgpt.widgets.lab import lab_view
        except ImportError:
            return bundle
        return bundle | lab_view(self)


def _table(label, header, rows, caption=None):
    """A table in a region that scrolls by itself, and by the keyboard."""
    # A corner without words heads nothing; and gettext's answer to "" is the catalogue's own header.
    head = "".join(f'<th scope="col">{html.escape(_(str(cell)))}</th>' if cell else "<td></td>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(_shown(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    named = f"<caption>{html.escape(_(caption))}</caption>" if caption else ""
    return (f'<div class="mgpt-table" tabindex="0" role="region" aria-label="{html.escape(_(label))}">'
            f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def walk(name, count):
    """Maker of actions on how far something has gone, state[name]: move -> the action that sets it to
    move(done, last), where last = count(state) says how far it can go."""
    def to(move):
        def change(state):
            try:
                last = count(state)
            except ValueError:  # a wrong input is said by the view
                return state
            return state | {name: move(min(state[name], last), last)}

        return change

    return to


def _given(value):
    return _("an empty field") if value in (None, "") else value


def _shown(cell):
    return "–" if cell is None else f"{cell:g}" if isinstance(cell, float) else _(str(cell)) if cell != "" else ""
