"""What several device files share, or what would make one of them too long.

In:   nothing of the graph: source text, object files, addresses.
Out:  compilers, loaders, native helpers.
Why:  a device file shall read as a short list of answers.
"""
