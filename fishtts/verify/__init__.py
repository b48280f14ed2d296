"""Whether a model keeps what it promises in FP8: the same tokens, near values, the frozen speed.

``command.py`` is the command ``fishtts verify``, ``comparison.py`` compares two models, and
``prompts.py`` holds what they say, committed before anything was measured with it.
"""
