"""Speed, compile time and memory, measured side by side with other libraries.

In:   the command lines of ``run``, ``scaling``, ``compile`` and ``memory``; README.md lists them.
Out:  tables of ratios.
Why:  a claim of speed without a measurement beside it is worth nothing.
"""
