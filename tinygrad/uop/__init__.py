"""Names of the graph's operations and of the kinds of loop axes.

In:   nothing.
Out:  ``Ops`` (what a node does), ``GroupOp`` (sets of Ops that rules talk about), ``AxisType`` (how a RANGE is run).
Why:  imports next to nothing, so every layer, the mixins included, may import it.
"""

from enum import auto

from tinygrad.enums import FastEnum, with_plain_members


@with_plain_members
class Ops(FastEnum):
    """What a node does. The order is significant: it is the tie-break order of canonical forms."""

    # storage and structure of calls
    SPECIAL = auto()
    BUFFER = auto()
    NOOP = auto()
    REWRITE_ERROR = auto()
    PARAM = auto()
    FUNCTION = auto()
    CALL = auto()
    PROGRAM = auto()
    LINEAR = auto()
    SOURCE = auto()
    BINARY = auto()
    SINK = auto()
    AFTER = auto()
    GROUP = auto()
    STACK = auto()
    TUPLE = auto()
    GETTUPLE = auto()
    GETADDR = auto()
    # memory
    INDEX = auto()
    SHRINK = auto()
    LOAD = auto()
    STORE = auto()
    WMMA = auto()
    # elementwise: conversions, unary, binary, ternary
    CAST = auto()
    BITCAST = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    SQRT = auto()
    RECIPROCAL = auto()
    NEG = auto()
    TRUNC = auto()
    ADD = auto()
    MUL = auto()
    SHL = auto()
    SHR = auto()
    CDIV = auto()
    MAX = auto()
    CMOD = auto()
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    XOR = auto()
    OR = auto()
    AND = auto()
    THREEFRY = auto()
    SUB = auto()
    FDIV = auto()
    POW = auto()
    FLOORDIV = auto()
    FLOORMOD = auto()
    WHERE = auto()
    MULACC = auto()
    # control
    BARRIER = auto()
    RANGE = auto()
    IF = auto()
    END = auto()
    ENDIF = auto()
    # constants and escapes
    CONST = auto()
    CUSTOM = auto()
    CUSTOMI = auto()
    INS = auto()
    # tensor graph only
    CONTIGUOUS = auto()
    CONTIGUOUS_BACKWARD = auto()
    DETACH = auto()
    STAGE = auto()
    COPY = auto()
    MSELECT = auto()
    MSTACK = auto()
    CUSTOM_FUNCTION = auto()
    RESHAPE = auto()
    PERMUTE = auto()
    EXPAND = auto()
    PAD = auto()
    FLIP = auto()
    UNSHARD = auto()
    REDUCE = auto()
    ALLREDUCE = auto()
    PYLITERAL = auto()


class GroupOp:
    """Sets of operations that rules are written for."""

    Unary = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.NEG, Ops.TRUNC})
    Binary = frozenset({
        Ops.ADD, Ops.MUL, Ops.CDIV, Ops.MAX, Ops.CMOD, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.XOR, Ops.SHL, Ops.SHR,
        Ops.OR, Ops.AND, Ops.THREEFRY, Ops.SUB, Ops.FDIV, Ops.POW, Ops.FLOORDIV, Ops.FLOORMOD,
    })  # fmt: skip
    Ternary = frozenset({Ops.WHERE, Ops.MULACC})
    ALU = Unary | Binary | Ternary
    Broadcastable = Binary | Ternary
    Elementwise = ALU | {Ops.CAST, Ops.BITCAST}
    Defines = frozenset({Ops.PARAM, Ops.BUFFER})
    Irreducible = frozenset({Ops.CONST, Ops.SPECIAL, Ops.RANGE, Ops.PARAM, Ops.GETADDR})
    Movement = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP})
    Commutative = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPNE, Ops.CMPEQ, Ops.XOR, Ops.AND, Ops.OR})
    Associative = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.MAX})
    Idempotent = frozenset({Ops.OR, Ops.AND, Ops.MAX})
    Reduce = frozenset({Ops.ADD, Ops.MUL, Ops.MAX})
    Comparison = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
    All = frozenset(Ops)


@with_plain_members
class AxisType(FastEnum):
    """How the iterations of a RANGE are run."""

    DEVICE = auto()
    GLOBAL = auto()  # GPU grid
    WARP = auto()
    LOCAL = auto()  # GPU work-group
    WEAK = auto()  # not decided yet
    GROUP_REDUCE = auto()  # reduce shared by a work-group
    REDUCE = auto()
    UPCAST = auto()  # output copies in registers
    UNROLL = auto()  # reduce copies
    VECTOR = auto()  # lanes of a vector
    THREAD = auto()  # the outermost parallel loop of a CPU kernel
    PLACEHOLDER = auto()
    LOOP = auto()
