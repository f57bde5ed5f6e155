"""Operators that Tensor and UOp share, in layers: movement, creation, dtypes, elementwise, reduce, composite, random.

In:   an object with the hooks ``shape dtype device ndim alu _mop _rop cast bitcast const const_like ufix contiguous
      detach _uop _wrap_uop``.
Out:  the methods of the public interface, built from those hooks alone.
Why:  a method that is written once works on both, so rules and kernels read like user code.
"""
