"""Writes tests/data/class, a small class with one member whose file is refused: `tests/data/make_class.py [FOLDER]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from submissions import WRONG, answer, blank, data, solved  # noqa: E402


def main(folder):
    members = {
        "ann.ipynb": data(solved()),
        "ben.ipynb": data(answer(solved(), q1=WRONG["q1"])),
        "cleo.ipynb": data(blank()),
        "dora.ipynb": data(answer(solved(), q2="import os\n\ndef cached_positions(prompt_len, outputs_chosen):\n"
                                               "    os._exit(0)")),
        "emil.ipynb": data(solved()).replace(b'"cells"', b'\n<<<<<<< HEAD\n"cells"', 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in members.items():
        (folder / name).write_bytes(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "class")
