"""Operators that Tensor and UOp share, in layers: movement, creation and dtypes, elementwise, reduce, composite ops, random.

In:   an object with the hooks ``shape dtype device ndim alu _mop _rop cast bitcast _uop _wrap_uop const const_like ufix``.
Out:  the methods of the public interface, built from those hooks alone.
"""
