"""Every live control: one pure function behind three faces, and a sentence for every wrong input."""

import re
from pathlib import Path

import ipywidgets
import pytest

from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.model import init_params
from mgpt.widgets import load, respond
from mgpt.widgets.control import PLAY, PLAY_ALL, Choice, Control, Number, Table, Text, View
from mgpt.widgets.lab import panel
from mgpt.widgets.svg import COLOURS, Figure

FOLDER = Path(__file__).parents[1] / "mgpt" / "widgets"
CONTROLS = sorted(path.stem for path in FOLDER.glob("*.py") if re.search(r"^CONTROL = ", path.read_text(), flags=re.M))


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_named_like_its_file_and_starts_in_a_valid_state(name):
    control = load(name)
    assert control.name == name and control.read({}) == control.start()
    assert respond(name, {})["state"] == control.start()
    assert 'role="alert"' not in respond(name, {})["html"]


@pytest.mark.parametrize("name", CONTROLS)
def test_the_static_face_has_a_label_for_every_input_and_reset_and_undo(name):
    control = load(name)
    page = control.html()
    for item in control.inputs:
        assert re.search(rf'<label for="{name}-{item.name}">[^<]+', page) and f'id="{name}-{item.name}"' in page
        assert not isinstance(item, Number) or item.low <= item.default <= item.high
    assert "data-undo" in page and "data-reset" in page
    assert page.count("data-action=") == len(control.actions)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_view_has_named_pictures_a_table_and_a_sentence(name):
    control = load(name)
    view = control.view(control.start())
    assert view.pictures and view.rows and view.sentence.endswith(".")
    assert all(len(row) == len(view.header) for row in view.rows)
    for picture in view.pictures:
        assert picture.title and picture.description and picture.width <= 480
        assert "<title" in picture.svg() and 'role="img"' in picture.svg()


@pytest.mark.parametrize("name", CONTROLS)
def test_every_input_at_its_limits_gives_a_view_and_beyond_them_a_sentence(name):
    control = load(name)
    for item in control.inputs:
        if isinstance(item, Number):
            good, bad = (item.low, item.high), (item.low - 1, item.high + 1, "many", "", None, float("nan"), float("inf"))
        elif isinstance(item, Choice):
            good, bad = item.options, ("no such option", None, 3)
        else:
            good, bad = (item.default,), ("x" * (item.limit + 1), None, 3)
        for value in good:
            assert 'role="status"' in respond(name, {item.name: value})["html"]
        for value in bad:
            answer = respond(name, {item.name: value})
            assert 'role="alert"' in answer["html"] and item.label.split()[0] in answer["html"]


def test_an_empty_field_is_called_so():
    assert "is needed, not an empty field" in respond("decode_stepper", {"prompt": ""})["html"]


@pytest.mark.parametrize("name", CONTROLS)
def test_text_that_means_nothing_gives_a_sentence_and_is_shown_as_text(name):
    for item in load(name).inputs:
        if isinstance(item, Text):
            page = respond(name, {item.name: "<script>alert(1)</script>"})["html"]
            assert "<script" not in page and 'role="alert"' in page


@pytest.mark.parametrize("name", CONTROLS)
def test_actions_keep_a_state_valid_and_unknown_keys_are_dropped(name):
    control = load(name)
    state = control.start()
    for action in control.actions:
        for _ in range(5):
            state = respond(name, state, action)["state"]
            assert control.read(state) == state
    assert set(respond(name, {"nonsense": 1})["state"]) == set(control.start())


@pytest.mark.parametrize("name", CONTROLS)
def test_the_live_face_in_jupyterlab_shows_the_same_view(name):
    control = load(name)
    box = panel(control)
    assert box.children[-1].value == control.view_html(control.start())
    number = next((i for i, item in enumerate(control.inputs) if isinstance(item, Number)), None)
    if number is not None:
        item = control.inputs[number]
        box.children[number].value = item.high
        assert box.children[-1].value == control.view_html({item.name: item.high})
        undo, reset = box.children[-2].children[-2:]
        undo.click()
        assert box.children[-1].value == control.view_html({}) and box.children[number].value == item.default
        box.children[number].value = item.low
        reset.click()
        assert box.children[-1].value == control.view_html({})
    assert {"text/html", "application/vnd.jupyter.widget-view+json"} <= set(control._repr_mimebundle_())
    assert isinstance(box, ipywidgets.VBox)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_text_in_jupyterlab_has_room_and_a_unit_stands_in_one_pair_of_parentheses(name):
    control = load(name)
    for item, box in zip(control.inputs, panel(control).children):
        assert "((" not in box.description and "))" not in box.description
        assert box.description == item.label or box.description.endswith(")")
        if isinstance(item, Text):
            assert box.layout.width == "auto" and box.layout.max_width == "60em"


def test_a_table_s_corner_without_words_is_no_header_and_no_word_of_a_catalogue(monkeypatch):
    monkeypatch.setattr("mgpt.widgets.control._", lambda words: words or "Project-Id-Version: mgpt")
    page = Table("caption", ("", "a"), (("", 2.5),))._repr_html_()
    assert '<thead><tr><td></td><th scope="col">a</th></tr></thead><tbody><tr><td></td><td>2.5</td></tr>' in page


# ------------------------------------------------------------------ play
PLAYING = [name for name in CONTROLS if load(name).play]


def test_the_stepper_and_the_scheduler_can_be_played():
    assert {"decode_stepper", "scheduler_panel"} <= set(PLAYING)


@pytest.mark.parametrize("name", CONTROLS)
def test_play_repeats_one_of_the_actions_and_only_then_has_a_button(name):
    control = load(name)
    assert (control.play in control.actions) == bool(control.play) and not {PLAY, PLAY_ALL} & set(control.actions)
    assert control.rewind in ("", *control.actions)
    button = f'<button type="button" data-play="{control.play}" aria-pressed="false" disabled>Play</button>'
    assert control.html().count("data-play") == control.html().count(button) == bool(control.play)
    if not control.play:
        with pytest.raises(KeyError):
            control.act(PLAY, {})


def beats(control, state):
    """The states that a play from `state` goes through, in pages and in JupyterLab alike."""
    seen, action = [state], PLAY
    while (after := control.act(action, seen[-1])) != seen[-1]:
        seen.append(after)
        action = control.play
        assert len(seen) < 1000
    return seen


@pytest.mark.parametrize("name", PLAYING)
def test_a_play_ends_by_itself_and_pressed_at_the_end_it_begins_again(name):
    control = load(name)
    first = beats(control, control.start())
    assert len(first) >= 3
    shown = [control.view_html(state) for state in first]
    assert all(before != after for before, after in zip(shown, shown[1:]))  # no beat in which nothing moves
    again = beats(control, first[-1])
    assert again[-1] == first[-1] and len(again) >= 3
    assert again[1] == (control.act(control.rewind, first[-1]) if control.rewind else first[-1] | control.hidden)
    for state in (first[1], first[-1]):
        assert control.act(PLAY_ALL, state) == first[-1]
    assert respond(name, first[1], PLAY_ALL) == {"state": first[-1], "html": shown[-1]}


@pytest.mark.parametrize("name", PLAYING)
def test_a_wrong_input_is_said_and_does_not_play(name):
    item = next(item for item in load(name).inputs if isinstance(item, Number))
    for action in (PLAY, PLAY_ALL):
        answer = respond(name, {item.name: item.high + 1}, action)
        assert answer["state"] == {item.name: item.high + 1} and 'role="alert"' in answer["html"]


def test_an_action_without_an_end_is_not_played_for_ever():
    picture = Figure("figure-endless", 10, 10, "title", "description")
    endless = Control("endless", "Endless", (), lambda state: View((picture,), ("n",), ((state["n"],),), "n."),
                      actions={"more": ("More", lambda state: {"n": state["n"] + 1})}, hidden={"n": 0}, play="more")
    assert endless.act(PLAY_ALL, {}) == {"n": 1000} and endless.act(PLAY, {"n": 7}) == {"n": 8}


@pytest.mark.parametrize("name", PLAYING)
def test_play_in_jupyterlab_goes_beat_by_beat_and_stops_when_anything_is_touched(name):
    control = load(name)
    box = panel(control)
    view, (*_actions, player, undo, reset) = box.children[-1], box.children[-2].children
    expected = beats(control, control.start())

    def beat():
        """What the front end sends while it plays."""
        player.set_state({"playing": True, "value": player.value + 1})

    for state in expected[1:]:
        beat()
        assert player.playing and view.value == control.view_html(state)
    beat()
    assert not player.playing and view.value == control.view_html(expected[-1])
    undo.click()  # one undo for all beats
    assert view.value == control.view_html(control.start())
    beat()
    reset.click()
    assert not player.playing and view.value == control.view_html(control.start())
    beat()
    number = next(i for i, item in enumerate(control.inputs) if isinstance(item, Number))
    box.children[number].value = control.inputs[number].high
    assert not player.playing
    player.set_state({"value": 0})  # its stop button
    assert view.value == control.view_html(expected[1] | {control.inputs[number].name: control.inputs[number].high})


def test_an_unknown_control_is_named():
    with pytest.raises(ValueError, match="no control 'nonsense'"):
        load("nonsense")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_marks_stand_out_from_light_and_dark_pages():
    """3 to 1 for marks (WCAG 1.4.11); V is the pale half of a cell whose outline has the text's own colour."""
    for name, (light, dark) in COLOURS.items():
        if name != "v":
            assert contrast(light, "#ffffff") >= 3 and contrast(dark, "#121212") >= 3, name


# ------------------------------------------------------------------ the decode stepper
@pytest.mark.parametrize("prompt, outputs", [(8, 4), (1, 1), (1, 40), (40, 40), (13, 2)])
def test_the_stepper_shows_what_a_real_generator_counts(prompt, outputs):
    config = GPTConfig(vocab_size=3, max_seq_len=100, n_layer=1, n_head=2, n_kv_head=1, head_dim=2, n_embd=4, n_inner=4)
    import numpy as np

    control = load("decode_stepper")
    rows = control.view({"prompt": prompt, "outputs": outputs, "batch": 3, "passes": outputs}).rows
    params = init_params(config, np.random.default_rng(1))
    for output in range(1, outputs + 1):
        generation = generate_cached(params, config, [1] * prompt, output)
        assert generation.tokens and rows[output - 1][2:] == (generation.cache_len, 3 * generation.cache_len, output)
    assert sum(row[1] for row in rows) == generation.positions_processed


def test_the_stepper_goes_forward_pass_by_pass_and_stops_at_the_last():
    state = load("decode_stepper").start()
    counts = []
    for _ in range(6):
        counts.append(state["passes"])
        state = respond("decode_stepper", state, "step")["state"]
    assert counts == [1, 2, 3, 4, 4, 4]
    page = respond("decode_stepper", {"passes": 4})["html"]
    assert "Output 4 has been chosen; the cache holds 11 positions" in page and "not 12" in page
