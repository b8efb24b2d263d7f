"""A random generator whose uniform numbers are given, for tests of what a draw does with them."""

import numpy as np


class Scripted(np.random.Generator):
    """A Generator whose `random()` gives the values in turn."""

    def __init__(self, *values):
        super().__init__(np.random.PCG64(0))
        self.values = list(values)

    def random(self):
        return self.values.pop(0)
