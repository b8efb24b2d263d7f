"""The course around the engine: exercises from solutions, checks as data, what a notebook calls.

In a notebook: `from mgpt.course import agrees, check, hint, progress`.
"""

from mgpt.course.notebook import check, hint, progress
from mgpt.course.plain import agrees

__all__ = ["agrees", "check", "hint", "progress"]
