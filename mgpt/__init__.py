"""Mini GPT: a small float64 engine that shows how a language model is run.

`from mgpt import quantize` is the module; the package root exports no name of its own.
"""
