"""The way from an optimised kernel to a list of instructions: ``lower`` (copies, lanes, accumulators), ``linearizer`` (order)."""
