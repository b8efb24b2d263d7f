"""A Control in JupyterLab: ipywidgets around the same `read`, `act` and `view_html` that the page uses."""

import ipywidgets

from mgpt.text import _
from mgpt.widgets.control import PLAY, PLAY_LABEL, Choice, Number
from mgpt.widgets.svg import style

BEAT = 1000  # ms


def lab_view(control):
    """The mime bundle of a live widget for a control."""
    return panel(control)._repr_mimebundle_()


def panel(control):
    """The live widget: inputs, action buttons with undo and reset, and the view below them."""
    boxes = {item.name: _box(item) for item in control.inputs}
    view = ipywidgets.HTML(control.view_html(control.start()))
    past, now, under_way = [], [control.start()], [False]
    player = control.play and ipywidgets.Play(interval=BEAT, max=10**9, show_repeat=False, tooltip=_(PLAY_LABEL))

    def show(state, remember=True, of_play=False):
        if player and not of_play:
            player.playing = False  # whoever touches anything takes over
        if remember:
            past.append(now[0])
        now[0] = state
        for name, box in boxes.items():
            if box.value != state[name]:
                box.unobserve_all("value")
                box.value = state[name]
                box.observe(changed, "value")
        view.value = control.view_html(state)

    def changed(_change):
        show(now[0] | {name: box.value for name, box in boxes.items()})

    def beat(change):
        """The front end counts the beats, so that nothing runs on in the kernel when the cell is gone."""
        if change["name"] == "playing" or not player.playing:
            under_way[0] = under_way[0] and player.playing
            return
        state = control.act(control.play if under_way[0] else PLAY, now[0])
        if state == now[0]:
            player.playing = False
        else:
            show(state, remember=not under_way[0], of_play=True)  # one undo takes the whole play back
            under_way[0] = True

    def button(words, pressed):
        result = ipywidgets.Button(description=words)
        result.on_click(lambda _button: pressed())
        return result

    for box in boxes.values():
        box.observe(changed, "value")
    buttons = [button(_(label), lambda name=name: show(control.act(name, now[0])))
               for name, (label, _change) in control.actions.items()]
    if player:
        player.observe(beat, ["value", "playing"])
        buttons.append(player)
    buttons.append(button(_("Undo"), lambda: show(past.pop(), remember=False) if past else None))
    buttons.append(button(_("Reset"), lambda: show(control.start())))
    return ipywidgets.VBox([*boxes.values(), ipywidgets.HTML(style()), ipywidgets.HBox(buttons), view])


def _box(item):
    words = f"{_(item.label)} ({_(item.unit).removeprefix('(').removesuffix(')')})" if item.unit else _(item.label)
    common = {"description": words, "style": {"description_width": "initial"}, "layout": {"width": "28em"}}
    if isinstance(item, Choice):
        return ipywidgets.Dropdown(options=[(_(label), key) for key, label in item.options.items()], value=item.default,
                                   **common)
    if isinstance(item, Number):
        kind = ipywidgets.BoundedIntText if isinstance(item.step, int) else ipywidgets.BoundedFloatText
        return kind(value=item.default, min=item.low, max=item.high, step=item.step, **common)
    common["layout"] = {"width": "auto", "max_width": "60em"}  # a line of its own: what is typed may be long
    return ipywidgets.Text(value=item.default, continuous_update=False, **common)
