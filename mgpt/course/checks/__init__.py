"""One module a stem: the questions of an exercise notebook as data.  `mgpt.course.questions` loads them by name."""
