"""From an optimised kernel to a list of instructions: copies, lanes and accumulators (``lower``), then their order.

In:   a kernel SINK whose RANGEs are typed.
Out:  the linear program: a list of UOps in execution order.
Why:  order is the last thing to be decided, so no step before it has to keep one.
"""
