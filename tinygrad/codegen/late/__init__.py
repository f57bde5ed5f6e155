"""From an optimised kernel to a list of instructions: copies, lanes and accumulators (``lower``), then their order."""
