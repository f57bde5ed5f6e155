"""Write docs/api: one page per group of operations, from the docstrings.

In:   the docstrings and signatures of Tensor's methods, of the layers, optimisers and file functions.
Out:  docs/api/*.md; ``--write`` changes the files, without it the names of those that are not current are printed.
Why:  the text beside the code is the one that is kept right. A test compares the pages, runs the examples, and fails
      for a public name that stands on no page or has no example.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "api"
sys.path.insert(0, str(ROOT))

from tinygrad import Tensor, dtypes, nn  # noqa: E402  (the package beside this file, installed or not)
from tinygrad.in_place import ASSIGNED, REPLACED, InPlaceNames  # noqa: E402
from tinygrad.torch_names import GROUPS  # noqa: E402


@dataclass(frozen=True)
class Page:
    """A page: the file, its title, a paragraph, and what it documents.

    ``owner`` is what the names are attributes of; ``shown`` is put before names of things that are called on it.
    """

    file: str
    title: str
    intro: str
    owner: Any
    names: str
    shown: str = ""


PAGES: Final = (
    Page(
        "creation",
        "Creation",
        "Filled tensors own storage. Constants and ranges own none and live on no device, until `clone()` gives them "
        "both. Sizes are given separately or as one tuple.",
        Tensor,
        """
        empty zeros ones full invalids zeros_like ones_like full_like empty_like arange linspace eye const const_like
        from_blob from_url
        """,
    ),
    Page(
        "random",
        "Random numbers",
        "Numbers come from Threefry-2x32-20 and a counter per device: the same for a seed on every device. What is "
        "drawn is fixed when the tensor is made, whatever is computed first; a draw depends on its size.",
        Tensor,
        """
        manual_seed rand rand_like randn randn_like randint normal uniform scaled_uniform glorot_uniform
        kaiming_uniform kaiming_normal randperm multinomial random_bits
        """,
    ),
    Page(
        "movement",
        "Shapes and views",
        "Most of these change only how coordinates read: they cost nothing and copy nothing. Negative dims count from "
        "the end; a dim that is out of range raises `IndexError`.",
        Tensor,
        """
        reshape view expand permute transpose T flip shrink shrink_to pad pad_to squeeze unsqueeze flatten unflatten
        rearrange split chunk stack cat meshgrid repeat repeat_interleave roll diag diagonal unfold triu tril
        """,
    ),
    Page(
        "elementwise",
        "Element by element: operators, functions, activations",
        "Operands broadcast as in numpy, and their dtypes are promoted. Python numbers are weak: they take the dtype "
        "of the tensor. Integers become floats where the function needs that. Errors are the largest over all float32 "
        "inputs, in units in the last place; narrower floats are computed in float32 and rounded once more.",
        Tensor,
        """
        add sub mul div mod fmod pow maximum minimum eq ne bitwise_and bitwise_or bitwise_xor bitwise_not lshift rshift
        where clamp clip masked_fill lerp copysign logaddexp isclose allclose usum uprod threefry
        neg abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
        cosh tanh asinh acosh atanh erf trunc floor ceil round isnan isinf isfinite logical_not
        relu relu6 leaky_relu elu celu selu gelu quick_gelu swish silu mish softplus softsign sigmoid logsigmoid
        hardswish hardsigmoid hardtanh ufix alu
        """,
    ),
    Page(
        "reductions",
        "Reductions, scans and sorting",
        "`axis` (or `dim`) is one axis, several, or None for all; `keepdim` keeps reduced axes with size 1.",
        Tensor,
        """
        sum prod mean var std var_mean std_mean max min any all argmax argmin logsumexp softmax log_softmax softmin
        normalize cumsum cumprod cummax cummin logcumsumexp sort argsort topk
        """,
    ),
    Page(
        "contractions",
        "Matrix products, convolution, pooling and normalisation",
        "float16 and bfloat16 accumulate in float32. Convolution and pooling take any number of spatial dims.",
        Tensor,
        """
        dot matmul einsum linear sequential conv2d conv_transpose2d avg_pool2d max_pool2d max_unpool2d interpolate
        layernorm batchnorm image_dot image_conv2d
        """,
    ),
    Page(
        "losses",
        "Attention, dropout and losses",
        "Dropout acts only in training: `with Context(TRAINING=1)` or `with Tensor.train()`.",
        Tensor,
        """
        scaled_dot_product_attention dropout cross_entropy sparse_categorical_crossentropy nll_loss
        binary_crossentropy binary_crossentropy_logits
        """,
    ),
    Page(
        "indexing",
        "Indexing and assignment",
        "`t[...]` takes ints, slices with any step, None, `...`, lists, integer tensors, bool masks and bound "
        "Variables, as numpy does; `t[...] = value` takes the same and writes in place.",
        Tensor,
        """
        __getitem__ __setitem__ assign replace gather scatter scatter_reduce masked_select nonzero one_hot
        """,
    ),
    Page("linalg", "Linear algebra", "Leading dims are a batch.", Tensor, "inverse qr svd newton_schulz"),
    Page("hashing", "Hashing", "Of bytes, on any device.", Tensor, "keccak hash"),
    Page(
        "tensor",
        "Properties, values, gradients and devices",
        "A call only builds a graph. Work happens in `realize` and where values are read.",
        Tensor,
        """
        shape dtype device ndim numel size nbytes element_size max_shape max_numel is_floating_point
        realize numpy tolist item data contiguous contiguous_backward clone detach
        backward gradient is_param_ requires_grad requires_grad_ train no_grad
        to to_ shard shard_ shard_like
        custom_kernel call as_param callify linear_with_vars schedule_linear decode_hevc_frame
        """,
    ),
    Page(
        "dtypes",
        "Dtypes",
        "`from tinygrad import dtypes`. A dtype is given as an object or by its name, in any case.",
        Tensor,
        "cast bitcast float half bfloat16 double int long short bool",
    ),
    Page(
        "layers",
        "Layers",
        "`from tinygrad import nn`. A layer is an object with tensors in it, called with a tensor; there is no base "
        "class. Parameters are drawn from the uniform distribution on [-b, b], written U(b).",
        nn,
        """
        Linear Conv1d Conv2d ConvTranspose1d ConvTranspose2d BatchNorm GroupNorm InstanceNorm LayerNorm LayerNorm2d
        RMSNorm Embedding LSTMCell
        """,
        "nn.",
    ),
    Page(
        "optimizers",
        "Optimizers",
        "`from tinygrad.nn import optim`. A step needs `TRAINING`, and a gradient for every parameter.",
        nn.optim,
        "Optimizer OptimizerGroup SGD LARS Muon Adam AdamW LAMB Adagrad Adadelta RMSprop Adamax NAdam RAdam",
        "nn.optim.",
    ),
    Page(
        "state",
        "State and files",
        "`from tinygrad.nn import state`. Tensors that are read from a file stay in the file until they are used. "
        "Where a file is read, a path or a tensor with its bytes is taken.",
        nn.state,
        """
        get_state_dict get_parameters load_state_dict safe_load safe_save safe_load_metadata torch_load zip_extract
        tar_extract TensorIO accept_filename fs_store fs_load
        """,
        "nn.state.",
    ),
    Page(
        "datasets",
        "Data sets",
        "`from tinygrad.nn import datasets`.",
        nn.datasets,
        "mnist cifar",
        "nn.datasets.",
    ),
)

OTHER_NAMES: Final = """# Names from PyTorch and numpy

What other packages call otherwise. A keyword argument has several names too: `axis` and `dim`, `keepdim` and
`keepdims`, `other` and `x`. A name of PyTorch that has no counterpart here raises an AttributeError that says what to
write.

| name | the same as |
| --- | --- |
"""

SAME: Final = {"BatchNorm2d": "BatchNorm", "BatchNorm3d": "BatchNorm"}

OPERATORS: Final = """
| operator | method | operator | method |
| --- | --- | --- | --- |
| `a + b`, `a - b` | `add`, `sub` | `a & b`, `a \\| b`, `a ^ b` | `bitwise_and`, `bitwise_or`, `bitwise_xor` |
| `a * b`, `a / b` | `mul`, `div` | `~a` | `bitwise_not` |
| `a // b` | `div` with `rounding_mode="floor"` | `a << b`, `a >> b` | `lshift`, `rshift` |
| `a % b` | `mod` | `a == b`, `a != b` | `eq`, `ne` |
| `a ** b` | `pow` | `a < b`, `a <= b`, `a > b`, `a >= b` | comparisons as in IEEE 754 |
| `a @ b` | `matmul` | `-a`, `abs(a)` | `neg`, `abs` |

Every operator has an in-place form, such as `a += b`, which assigns the result to the storage of `a`.
"""


# ---- one entry -------------------------------------------------------------------------------------------------------


def members(page: Page) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, function or class, how users write it before its parameters) of what a page documents."""
    for name in page.names.split():
        getattr(page.owner, name)  # a module may fetch it from another one when it is asked for first
        raw = inspect.getattr_static(page.owner, name)
        if page.owner is not Tensor:
            yield name, raw, page.shown + name
        elif isinstance(raw, property):
            yield name, raw.fget, f"t.{name}"
        elif isinstance(raw, (classmethod, staticmethod)):
            yield name, raw.__func__, f"Tensor.{name}"
        else:
            yield name, raw, f"t.{name}"


def signature(function: Callable[..., Any], written: str, is_property: bool) -> str:
    """Return a call with names, types and defaults as the source has them; in several lines if one is too long."""
    found = inspect.signature(function)
    result = _type(found.return_annotation)
    arrow = f" -> {result}" if result and not inspect.isclass(function) else ""
    if is_property:
        return f"{written}{arrow}"
    parameters = list(found.parameters.values())
    if parameters and parameters[0].name in {"self", "cls"}:
        parameters = parameters[1:]
    shown, stars = [], {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    only_by_name = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not only_by_name:
            only_by_name = True
            if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
                shown.append("*")
        kind = _type(parameter.annotation)
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        text = f"{stars.get(parameter.kind.name, '')}{parameter.name}{f': {kind}' if kind else ''}"
        shown.append(text + (f" = {default}" if default else ""))
    line = f"{written}({', '.join(shown)}){arrow}"
    return line if len(line) <= 110 else f"{written}(\n" + "".join(f"    {p},\n" for p in shown) + f"){arrow}"


def _type(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\bSelf\b", "Tensor", text.replace("builtins.", ""))


SECTION: Final = re.compile(
    r"^(Args|Attributes|Returns|Raises|Example|Source):[ ]?(.*\n(?:(?:[ ]+.*)?\n)*)", re.MULTILINE
)


def sections(text: str) -> dict[str, str]:
    """Return the parts of a docstring by heading, without indentation; the text before all of them under ''."""
    text = f"{inspect.cleandoc(text)}\n"
    found = {match[1]: inspect.cleandoc(match[2]) for match in SECTION.finditer(text)}
    return {"": SECTION.sub("", text).strip(), **found}


def items(text: str) -> list[tuple[str, str]]:
    """Return (name, what is said of it) of the entries of a section such as Args."""
    entries = re.findall(r"^(\S[^:\n]*): (.*(?:\n[ ]+.*)*)", text, re.MULTILINE)
    return [(name, re.sub(r"\s*\n\s*", " ", said)) for name, said in entries]


def prose(text: str) -> str:
    """Return the text of a docstring as Markdown: code in single backticks, stars literal, blocks after ``::``."""
    text = re.sub(r"::(?=\n\n    )", ":", text)
    lines = []
    for line in text.split("\n"):
        if line.startswith("    "):
            lines.append(line)
            continue
        parts = re.split(r"(``[^`]+``)", line)
        lines.append("".join(p[1:-1] if p.startswith("``") else re.sub(r"([*<\[])", r"\\\1", p) for p in parts))
    return "\n".join(lines)


def entry(name: str, function: Any, written: str, is_property: bool) -> str:
    """Return the Markdown of one function, method, property or class."""
    parts = sections(inspect.getdoc(function) or "")
    text = [f"## {name}", f"```py\n{signature(function, written, is_property)}\n```", prose(parts[""])]
    for heading in ("Args", "Attributes", "Raises"):
        if heading in parts:
            listed = "\n".join(f"- `{key}`: {prose(said)}" for key, said in items(parts[heading]))
            text.append(f"{'Arguments' if heading == 'Args' else heading}:\n\n{listed}")
    if "Returns" in parts:
        text.insert(-1 if "Raises" in parts else len(text), f"Returns: {prose(parts['Returns'])}")
    if inspect.isclass(function):
        text += methods(function)
    if "Example" in parts:
        text.append(f"```pycon\n{parts['Example']}\n```")
    if "Source" in parts:
        text.append(f"Source: {prose(parts['Source'])}")
    return "\n\n".join(text)


def methods(cls: type) -> list[str]:
    """Return a list of the public methods of a class and of those that it inherits here, by their first lines."""
    lines = []
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if (not name.startswith("_") or name == "__call__") and method.__module__.startswith("tinygrad"):
            written = "layer" if name == "__call__" else f".{name}"
            first = sections(inspect.getdoc(method) or "")[""].split("\n")[0]
            lines.append(f"- `{signature(method, written, False)}`: {prose(first)}".replace("\n    ", " "))
    return ["Methods:\n\n" + "\n".join(lines)] if lines else []


# ---- pages -----------------------------------------------------------------------------------------------------------


def render(page: Page) -> str:
    """Return a page as Markdown."""
    found = list(members(page))
    contents = " · ".join(f"[{name}](#{name.lower()})" for name, _, _ in found)
    extra = {"elementwise": OPERATORS, "dtypes": dtype_table(), "layers": aliases()}.get(page.file, "")
    head = [f"# {page.title}", page.intro, extra.strip(), contents]
    body = [
        entry(name, function, written, isinstance(inspect.getattr_static(page.owner, name), property))
        for name, function, written in found
    ]
    return "\n\n".join([part for part in head if part] + body).rstrip() + "\n"


def other_names() -> dict[str, str]:
    """Return, for every name that Tensor has from other packages, the call in the names of this one."""
    found = {}
    for cls in (*GROUPS, InPlaceNames):
        found |= {name: _meaning(name, member) for name, member in vars(cls).items() if not name.startswith("_")}
    for name in (*ASSIGNED, *REPLACED):
        found[f"{name}_"] = _meaning(f"{name}_", inspect.getattr_static(Tensor, f"{name}_"))
    return dict(sorted(found.items()))


def _meaning(name: str, member: Any) -> str:
    function = member.fget if isinstance(member, property) else member
    if function.__name__ != name and not isinstance(member, property):
        return f"`t.{function.__name__}(...)`"
    return prose(inspect.getdoc(function) or "").split("\n")[0].removesuffix(".")


def names_page() -> str:
    """Return the page of names from other packages."""
    rows = [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in other_names().items()]
    return OTHER_NAMES + "\n".join(rows) + "\n"


def aliases() -> str:
    """Return a sentence about the layers that are known by several names."""
    return "; ".join(f"`{alias}` is `{name}`" for alias, name in SAME.items()) + "."


def dtype_table() -> str:
    """Return a table of the dtypes."""
    from tinygrad.dtype import DTYPES_DICT

    rows = ["| dtype | other names | bytes | smallest | largest |", "| --- | --- | --- | --- | --- |"]
    kinds = [dtypes.bool, *dtypes.ints, *dtypes.floats]
    for kind in kinds:
        names = [name for name, named in DTYPES_DICT.items() if named is kind]
        low, high = ("", "") if dtypes.is_float(kind) else (str(kind.min), str(kind.max))
        others = ", ".join(f"`{name}`" for name in names if name != kind.full_name)
        rows.append(f"| `{kind.full_name}` | {others} | {kind.itemsize} | {low} | {high} |")
    weak = (
        "`weakint` and `weakfloat` are the dtypes of Python numbers: they give way to any dtype that they meet, and "
        "become `dtypes.default_int` and `dtypes.default_float` where storage is needed."
    )
    return "\n".join(rows) + "\n\n" + weak


def index() -> str:
    """Return the first page: what there is, and how to read the others."""
    rows = [f"| [{page.title}]({page.file}.md) | {', '.join(page.names.split()[:6])} … |" for page in PAGES]
    rows.append("| [Names from PyTorch and numpy](names.md) | mm, view_as, index_add, add_, astype … |")
    return (
        "# Every operation\n\n"
        "Made from the docstrings by `docs/make_api.py`; a test runs the examples.\n\n"
        "| page | such as |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"
        "How to read them: `t.name(...)` is a method, `Tensor.name(...)` is called on the class. `Tensor` in a result "
        "is a new lazy tensor of the device of `t`. `Axis` is an int, several, or None for all; `Sizes` an int or one "
        "per dim; `DTypeLike` a dtype or its name; `Sint` an int or a bound Variable. Errors are subclasses of the "
        "types that they name: `ShapeError` is a `ValueError` and an `IndexError`, `DTypeError` and `DeviceError` are "
        "`RuntimeError`. The examples assume\n\n"
        "```py\nimport math\n\nimport numpy as np\n\n"
        "from tinygrad import Context, Device, Tensor, UOp, Variable, dtypes, nn\n```\n"
    )


def pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    return {FOLDER / "index.md": index(), FOLDER / "names.md": names_page()} | {
        FOLDER / f"{page.file}.md": render(page) for page in PAGES
    }


def main() -> None:
    """Write the pages, or name those that are not current."""
    made = pages()
    if "--write" in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        return
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    sys.stdout.writelines(f"{path.relative_to(ROOT)} is not current\n" for path in stale)
    sys.exit(bool(stale))


if __name__ == "__main__":
    main()
