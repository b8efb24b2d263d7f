"""Which submissions there are: files and folders from the command line -> Members, in one order on every machine."""

import os
from pathlib import Path

from mgpt.course.grade.grading import Member, read_member
from mgpt.course.questions import stems

NOTEBOOKS = (".ipynb", ".ipynb.txt", ".ipynb.json")


def members(paths):
    """Members of all submissions, sorted by name.  ValueError where a path is not there or nothing is found.

    A folder's submissions are the notebooks below it; a file named like an exercise is its folder's.
    """
    found = {}  # name -> (learner, file)
    for given in map(Path, paths):
        if given.is_dir():
            for file in _below(given):
                name, learner = _names(file.relative_to(given))
                _enter(found, name, learner, file)
        elif os.path.lexists(given):
            name, learner = _names(Path(given.name))
            _enter(found, name, learner, given)
        else:
            raise ValueError(f"{given} is not there; give notebooks or folders of notebooks")
    if not found:
        raise ValueError(f"no notebook below {', '.join(map(str, paths))}")
    return [_member(name, *found[name]) for name in sorted(found)]


def common_exercise(all_members):
    """The exercise that most of the members are of, for notebooks in which nothing tells; None where none does."""
    told = [s.stem for s in (read_member(m.load()) for m in all_members) if s is not None and not isinstance(s, str)]
    told = told or (stems() if len(stems()) == 1 else [])
    return max(sorted(set(told)), key=told.count) if told else None


def tells_nothing(member):
    """Whether a loaded member is a notebook without any code in it, of no known exercise."""
    return b'"source"' not in member.data and b'"input"' not in member.data and read_member(member) is None


def _below(folder):
    """Notebook files below a folder; a folder of a learner without any stands for itself, to be refused."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        notebooks = [name for name in sorted(files) if _is_notebook(name)]
        yield from (Path(place) / name for name in notebooks)
        odd = [name for name in folders if _is_notebook(name)]
        yield from (Path(place) / name for name in odd)
        folders[:] = [name for name in folders if name not in odd]
        if not notebooks and not folders and Path(place) != folder:
            yield Path(place)


def _is_notebook(name):
    return not name.startswith(".") and name.lower().endswith(NOTEBOOKS)


def _names(relative):
    """(name, learner) of a submission from its path below the folder that was given."""
    last = relative.name
    ending = next((end for end in NOTEBOOKS if last.lower().endswith(end)), "")
    stem = last[:len(last) - len(ending)] if ending else last
    above = relative.parent.parts
    if not above:
        return stem, stem
    if stem in stems():
        folders = [part for part in above if part != stem]  # LEARNER/EXERCISE/EXERCISE.ipynb, as nbgrader has it
        return "/".join([*above, stem]), folders[0] if folders else stem
    return "/".join([*above, stem]), above[0]


def _enter(found, name, learner, file):
    unique, number = name, 1
    while unique in found and found[unique][1] != file:
        number += 1
        unique = f"{name} ({number})"
    found[unique] = (learner, file)


def _member(name, learner, file):
    name, learner = (text.encode("utf-8", "replace").decode() for text in (name, learner))
    shown = file.name.encode("utf-8", "replace").decode()
    return Member(name, learner, shown, path=file)
