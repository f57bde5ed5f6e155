"""The public interface by name and signature: members of Tensor and UOp, functions, names that programs import."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import pytest

from tinygrad import Tensor, UOp, dtypes

# One member per line: parameters with their defaults, and how it is called. Comments name the section.
MEMBERS = """
# 1. Construction
__init__(data, device=None, dtype=None)
const(b, dtype=None) staticmethod
const_like(b, dtype=None)
empty(*shape, device=None, dtype=None) classmethod
empty_like(dtype=None, device=None)
full(shape, fill_value, dtype=None, device=None, buffer=True) classmethod
full_like(fill_value, dtype=None, device=None, buffer=True)
zeros(*shape, **kwargs) classmethod
zeros_like(**kwargs)
ones(*shape, **kwargs) classmethod
ones_like(**kwargs)
invalids(*shape, device=None, dtype=None) classmethod
arange(start, stop=None, step=1, dtype=None) classmethod
linspace(start, stop, steps, dtype=None) classmethod
eye(n, m=None, dtype=None) classmethod
from_blob(ptr, shape, **kwargs) staticmethod
from_url(url, gunzip=False, **kwargs) staticmethod
# 2. Properties and metadata
is_param_(is_param=True)
device property
dtype property
shape property
ndim property
numel()
max_shape property
max_numel()
size(dim=None)
element_size()
nbytes()
is_floating_point()
T property
__repr__()
__len__()
__bool__()
__hash__()
# 3. Realization, data access, in-place
realize(*lst, do_update_stats=True)
numpy()
data()
item()
tolist()
contiguous(**kwargs)
contiguous_backward()
clone(device=None)
detach()
replace(x)
assign(x)
__iadd__(x)
__isub__(x)
__imul__(x)
__itruediv__(x)
__ifloordiv__(x)
__ipow__(x)
__iand__(x)
__ior__(x)
__ixor__(x)
__ilshift__(x)
__irshift__(x)
__imatmul__(x)
callify(*lst)
linear_with_vars(*lst)
schedule_linear(*lst)
as_param(slot)
call(*lst, fxn, grad_fxn=None)
custom_kernel(*lst, fxn, grad_fxn=None)
decode_hevc_frame(frame_pos, shape, state, ref_frames=None)
# 4. Movement / views
reshape(shape, *args)
view(shape, *args)
expand(shape, *args)
permute(order, *args)
transpose(dim0=1, dim1=0)
flip(axis, *args)
shrink(arg)
shrink_to(shape, *args)
pad(padding, mode='constant', value=0.0)
pad_to(shape, *args, value=0)
squeeze(dim=None)
unsqueeze(dim)
flatten(start_dim=0, end_dim=-1)
unflatten(dim, sizes)
rearrange(formula, **sizes)
split(sizes, dim=0)
chunk(chunks, dim=0)
stack(*args, dim=0)
cat(*args, dim=0)
meshgrid(*args, indexing='ij')
repeat(repeats, *args)
repeat_interleave(repeats, dim=None)
roll(shifts, dims=None)
diag()
diagonal(offset=0, dim1=0, dim2=1)
unfold(dim, size, step)
triu(diagonal=0)
tril(diagonal=0)
# 5. Binary, comparison, selection
add(x, reverse=False)
sub(x, reverse=False)
mul(x, reverse=False)
div(x, reverse=False, rounding_mode=None)
__floordiv__(x)
mod(x, reverse=False)
fmod(x)
pow(x, reverse=False)
maximum(x)
minimum(x)
bitwise_and(x, reverse=False)
bitwise_or(x, reverse=False)
bitwise_xor(x, reverse=False)
bitwise_not()
lshift(x, reverse=False)
rshift(x, reverse=False)
eq(x)
ne(x)
__lt__(x)
__gt__(x)
__le__(x)
__ge__(x)
isclose(other, rtol=1e-05, atol=1e-08, equal_nan=False)
allclose(other, rtol=1e-05, atol=1e-08, equal_nan=False)
copysign(other)
logaddexp(other)
lerp(end, weight)
clamp(min_=None, max_=None)
clip(min_=None, max_=None)
where(x, y)
masked_fill(mask, value)
threefry(seed)
usum(*uops)
uprod(*uops)
ufix(x)
alu(op, *src)
# 6. Unary math
neg()
abs()
sign()
square()
sqrt()
rsqrt()
reciprocal()
exp()
exp2()
log()
log2()
log10()
sin()
cos()
tan()
asin()
acos()
atan()
sinh()
cosh()
asinh()
acosh()
atanh()
erf()
trunc()
ceil()
floor()
round()
isnan()
isinf(detect_positive=True, detect_negative=True)
isfinite()
logical_not()
# 7. Activations
relu()
relu6()
sigmoid()
tanh()
leaky_relu(neg_slope=0.01)
elu(alpha=1.0)
celu(alpha=1.0)
selu(alpha=1.67326, gamma=1.0507)
gelu(approximate='tanh')
quick_gelu()
swish()
silu()
hardswish()
hardsigmoid(alpha=0.16666666666666666, beta=0.5)
hardtanh(min_val=-1, max_val=1)
softplus(beta=1.0)
mish()
logsigmoid()
softsign()
softmax(axis=-1, dtype=None)
log_softmax(axis=-1, dtype=None)
softmin(axis=-1, dtype=None)
# 8. Reductions, scans, ordering
sum(axis=None, keepdim=False, dtype=None)
prod(axis=None, keepdim=False, dtype=None)
max(axis=None, keepdim=False)
min(axis=None, keepdim=False)
mean(axis=None, keepdim=False)
var(axis=None, keepdim=False, correction=1)
std(axis=None, keepdim=False, correction=1)
var_mean(axis=None, keepdim=False, correction=1)
std_mean(axis=None, keepdim=False, correction=1)
any(axis=None, keepdim=False)
all(axis=None, keepdim=False)
logsumexp(axis=None, keepdim=False)
normalize(p=2.0, dim=1, eps=1e-12)
argmax(axis=None, keepdim=False)
argmin(axis=None, keepdim=False)
cumsum(axis=0)
cumprod(axis)
cummax(axis=0)
cummin(axis=0)
logcumsumexp(axis=0)
sort(dim=-1, descending=False)
argsort(dim=-1, descending=False)
topk(k, dim=-1, largest=True, sorted_=True)
# 9. Matmul, convolution, pooling, normalisation, attention
dot(w, dtype=None)
matmul(x, reverse=False, dtype=None)
einsum(formula, *operands, dtype=None) classmethod
linear(weight, bias=None, dtype=None)
sequential(ll)
conv2d(weight, bias=None, groups=1, stride=1, dilation=1, padding=0, dtype=None)
conv_transpose2d(weight, bias=None, groups=1, stride=1, dilation=1, padding=0, output_padding=0)
image_conv2d(weight, bias=None, groups=1, stride=1, dilation=1, padding=0, dtype=None)
image_dot(w, dtype=None)
avg_pool2d(kernel_size=(2, 2), stride=None, dilation=1, padding=0, ceil_mode=False, count_include_pad=True)
max_pool2d(kernel_size=(2, 2), stride=None, dilation=1, padding=0, ceil_mode=False, return_indices=False)
max_unpool2d(indices, kernel_size=(2, 2), stride=None, dilation=1, padding=0, output_size=None)
interpolate(size, mode='linear', align_corners=False)
layernorm(axis=-1, eps=1e-05)
batchnorm(weight, bias, mean, invstd, axis=1)
dropout(p=0.5)
scaled_dot_product_attention(key, value, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False)
# 10. Indexing, scatter/gather
__getitem__(indices)
__setitem__(indices, v)
__delitem__(indices)
gather(dim, index)
scatter(dim, index, src, reduce=None)
scatter_reduce(dim, index, src, reduce, include_self=True)
masked_select(mask, size=None, fill_value=0)
nonzero(size=None, fill_value=0)
one_hot(num_classes)
# 11. Random
manual_seed(seed=0) staticmethod
rand(*shape, device=None, dtype=None, contiguous=True) classmethod
rand_like(**kwargs)
randn(*shape, dtype=None, **kwargs) classmethod
randn_like(dtype=None, **kwargs)
randint(*shape, low=0, high=10, dtype=dtypes.int32, **kwargs) classmethod
normal(*shape, mean=0.0, std=1.0, **kwargs) classmethod
uniform(*shape, low=0.0, high=1.0, dtype=None, **kwargs) classmethod
scaled_uniform(*shape, **kwargs) classmethod
glorot_uniform(*shape, **kwargs) classmethod
kaiming_uniform(*shape, a=0.01, **kwargs) classmethod
kaiming_normal(*shape, a=0.01, **kwargs) classmethod
randperm(n, device=None, dtype=dtypes.int32, **kwargs) classmethod
multinomial(num_samples=1, replacement=False)
random_bits(key, counter, num) classmethod
# 12. Autograd
backward(gradient=None)
gradient(*targets, gradient=None)
# 13. Device and sharding
to(device)
to_(device)
shard(devices, axis=None)
shard_(devices, axis=None)
shard_like(y)
# 14. dtype casts
cast(dtype)
bitcast(dtype)
float()
half()
bfloat16()
double()
int()
long()
short()
bool()
# 15. Losses
cross_entropy(Y, reduction='mean', label_smoothing=0.0)
sparse_categorical_crossentropy(Y, ignore_index=-1, label_smoothing=0.0, reduction='mean')
nll_loss(Y, weight=None, ignore_index=None, reduction='mean')
binary_crossentropy(Y, reduction='mean')
binary_crossentropy_logits(Y, reduction='mean', pos_weight=None)
# 16. Linear algebra
qr()
svd(full_matrices=True)
newton_schulz(steps, params, eps=1e-07)
# 17. Hashing
keccak(cfg='sha3_256')
hash()
# 18. Operators to members
# 19. RNG facts (needed for identical numbers)
# 20. Gradient conventions
# 21. Layers and module-level names of the Tensor module
"""

# Members of a Tensor that a node does not have: they need storage, state or devices.
ONLY_TENSOR = {"__delitem__", "backward"}
NODE_SECTIONS = {
    "Movement / views",
    "Binary, comparison, selection",
    "Unary math",
    "Activations",
    "Reductions, scans, ordering",
    "Matmul, convolution, pooling, normalisation, attention",
    "Indexing, scatter/gather",
    "dtype casts",
    "Losses",
    "Linear algebra",
    "Hashing",
}

NODE_MEMBERS = """
const(value, dtype=None) staticmethod
cconst(value, dtype) staticmethod
invalid() staticmethod
variable(name, min_val, max_val, dtype=dtypes.weakint, multiple_of=1, param=False) staticmethod
range(end, axis_id) staticmethod
special(end, name, dtype=dtypes.weakint) staticmethod
placeholder(shape, dtype, slot=None) staticmethod
placeholder_like(slot)
param(slot, dtype, shape=None, device=None, vmin_vmax=None) staticmethod
param_like(slot)
new_buffer(device, size, dtype, num=None) staticmethod
from_buffer(buffer, device=None) staticmethod
empty(*shape, device=None, dtype=None) classmethod
empty_like(dtype=None, device=None)
clone(device=None)
wmma(a, b, acc, dims, device, threads, tc_upcast_axes=None) staticmethod
index(*idx)
load(*src)
store(value, gate=None)
set(value, end=())
end(*ranges)
after(*deps)
barrier(*src)
call(*args, grad_fxn=None, name=None, precompile=False, precompile_backward=False, aux=None)
gettuple(i)
rtag(tag=True)
f(op, **kwargs)
alu(op, *src)
ins(arg, **kwargs)
cast(dtype)
bitcast(dtype)
const_like(value, dtype=None)
vconst_like(v)
broadcast(n)
ufix(x)
reduce(*ranges, arg)
copy_to_device(device, arg=None)
shape property
max_shape property
marg property
device property
addrspace property
base property
buf_uop property
without_after property
buffer property
realized property
is_realized property
is_virtual property
has_buffer_identity(after_ok=False)
contiguous_view()
contiguous_view_offset()
val property
is_invalid property
expr property
is_variable property
is_bound_var property
bind(value)
unbind()
unbind_all()
variables()
valid(cond)
get_valid()
get_idx()
ranges property
ended_ranges property
toposort(gate=None, enter_calls=True)
topovisit(visitor, cache)
backward_slice property
backward_slice_with_self property
op_in_backward_slice_with_self(*ops)
substitute(dvars, name=None)
simplify(tracked=False)
ssimplify()
vmin property
vmax property
overflows(dtype)
const_factor()
divides(v)
divide_exact(v)
pop_const(op=Ops.ADD)
split_uop(op)
sym_infer(var_vals)
render(simplify=True, pm=None)
pyrender()
argstr()
tagstr()
key property
"""

# Joined as functions of the class and as methods alike.
NODE_JOINS = ("sink", "group", "maketuple", "stack", "custom_kernel", "custom_function", "gcd", "usum", "uprod")

# Module -> names that users import from it.
NAMES = {
    "tinygrad": "Context Device GlobalCounters Tensor TinyJit UOp Variable dtypes fetch function getenv nn",
    "tinygrad.tensor": """
        Buffer Device Ops Tensor UOp Variable _from_np_dtype _fromnp _to_np_dtype _apply_map_to_tensors
        _METADATA all_tensors cast dtypes is_numpy_ndarray
    """,
    "tinygrad.dtype": """
        AddrSpace ConstFloat ConstType DType DTypeLike DTYPES_DICT INVERSE_DTYPES_DICT Invalid InvalidType
        _from_np_dtype _from_torch_dtype _to_np_dtype _to_torch_dtype bitcast can_lossless_cast dtypes
        float_to_bf16 float_to_fp16 float_to_fp8 fp8_to_float from_storage_scalar least_upper_dtype
        least_upper_float storage_fmt_for_dtype strong_dtype sum_acc_dtype to_dtype to_storage_scalar
        truncate weak_dtype
    """,
    "tinygrad.device": """
        Allocator Buffer BufferSpec CompileError Compiled Compiler Device LRUAllocator MultiBuffer TinyELF
        ProfileDeviceEvent ProfileGraphEntry ProfileGraphEvent ProfileProgramEvent canonicalize_device
        enumerate_devices_str
    """,
    "tinygrad.helpers": """
        ALLOW_TF32 BEAM CAPTURING CCACHE CHUNK_SIZE Context ContextVar DEBUG DEV EMULATED_DTYPES FUSE_OPTIM
        GlobalCounters IMAGE JIT Metadata NOOPT NUM_CPU_THREADS OSX PARALLEL PROFILE ProfileEvent
        ProfilePointEvent ProfileRangeEvent Profiling SPLIT_REDUCEOP T TRACEMETA TRAINING Target Timing
        TracingKey USE_TC VERSION VIZ WIN WINO all_int all_same ansilen ansipad ansistrip argfix argsort
        canonicalize_strides cdiv ceildiv cmod colored colorize_float count cpu_events cpu_objdump
        cpu_profile data64 data64_le db_connection dedup disable_gc diskcache diskcache_clear diskcache_get
        diskcache_put fetch fetch_fw flat_mv flat_to_grouped flatten floordiv floormod from_mv fromimport
        fully_flatten get_child get_shape get_single_element getbits getenv hi32 i2u lo32 make_tuple
        merge_dicts mv_address next_power2 pad_bytes panic partition perf_counter_us pluralize polyN prod
        profile_marker resolve_pool_pads round_down round_up select_by_name select_first_inited size_to_str
        stderr_log strides_for_shape strip_parens suppress_finalizing system temp time_to_str to_be32
        to_be64 to_char_p_p to_function_name to_mv to_tuple tqdm trange unwrap wait_cond word_wrap
    """,
    "tinygrad.uop": "GroupOp Ops",
    "tinygrad.uop.ops": """
        AddrSpace AxisType BottomUpGate CallInfo GroupOp KernelInfo Ops ParamArg PatternMatcher ProgramInfo
        RewriteTrace TrackedGraphRewrite active_group active_rewrites all_metadata gate_kernel_sink
        remove_all_tags tracked_ctxs tracked_keys uop_fields
        TrackedPatternMatcher UOp UPat Variable _broadcast_shape broadcast_axes buffers
        consumer_map_from_toposort dtype_from_uop dtypes exec_alu graph_rewrite identity_element
        multirange_str python_alu range_str resolve rewrite_group sint sint_to_uop smax smin srender
        ssimplify sym_infer to_max_shape
    """,
    "tinygrad.uop.render": "print_uops pyrender",
    "tinygrad.uop.spec": "eval_pyrender spec_full spec_program spec_shared spec_tensor type_verify",
    "tinygrad.uop.symbolic": """
        commutative pm_move_where_on_load pm_remove_invalid pm_simplify_valid sym symbolic symbolic_simple
    """,
    "tinygrad.uop.validate": "uops_to_z3",
    "tinygrad.mixin.movement": "MovementMixin",
    "tinygrad.mixin.creation": "CreationMixin",
    "tinygrad.mixin.dtype": "DTypeMixin",
    "tinygrad.mixin.elementwise": "ElementwiseMixin",
    "tinygrad.mixin.reduce": "ReduceMixin",
    "tinygrad.mixin.op": "OpMixin",
    "tinygrad.mixin.rand": "RandMixin",
    "tinygrad.mixin.gradient": "_deepwalk call_gradient compute_gradient pm_gradient reduce_gradient",
    "tinygrad.codegen": "do_to_program full_rewrite_to_sink linearize to_program to_program_cache",
    "tinygrad.codegen.opt": "KernelOptError Opt OptOps",
    "tinygrad.engine.jit": "GraphException JitError TinyJit",
    "tinygrad.engine.realize": """
        capturing compile_linear estimate_uop get_call_arg_uops get_call_name get_call_outs_ins get_runtime
        resolve_params run_linear time_call
    """,
    "tinygrad.renderer": "Estimates Renderer",
    "tinygrad.renderer.cstyle": "CStyleLanguage ClangRenderer",
    "tinygrad.schedule": "schedule_cache",
    "tinygrad.schedule.indexing": "apply_movement_op",
    "tinygrad.schedule.memory": "memory_plan_rewrite",
    "tinygrad.nn": """
        BatchNorm BatchNorm2d Conv1d Conv2d ConvTranspose1d ConvTranspose2d Embedding GroupNorm InstanceNorm
        LSTMCell LayerNorm LayerNorm2d Linear RMSNorm datasets optim state
    """,
    "tinygrad.nn.datasets": "cifar mnist",
    "tinygrad.nn.optim": "Adam AdamW LAMB LARS Muon Optimizer OptimizerGroup SGD",
    "tinygrad.nn.state": """
        TensorIO get_parameters get_state_dict load_state_dict safe_load safe_load_metadata safe_save
        torch_load fs_load fs_store
    """,
}

FUNCTIONS = {
    "tinygrad.helpers": """
getenv(key, default=0)
fetch(url, name=None, subdir=None, gunzip=False)
tqdm(iterable=None, desc='', disable=False, unit='it', unit_scale=False, total=None, rate=100)
trange(n, **kw)
colored(st, color, background=False)
word_wrap(x, wrap=80)
time_to_str(t, w=8)
getbits(value, start, end)
wait_cond(cb, *args, value=True, timeout_ms=10000, msg='')
diskcache_get(table, key)
diskcache_put(table, key, val, prepickled=False)
cpu_profile(name, device='TINY', display=True)
Timing(prefix='', on_exit=None, enabled=True)
Profiling(enabled=True, sort='cumtime', frac=0.2, fn=None, ts=1)
Metadata(name, backward=False)
Target(device='', renderer='', arch='', interface='', indices='')
""",
    "tinygrad.engine.jit": "TinyJit(fxn=None, *, prune=False)",
    "tinygrad": """
function(fxn=None, *, precompile=False, precompile_backward=False, allow_implicit=False, grad_fxn=None)
""",
    "tinygrad.uop.ops": """
graph_rewrite(sink, pm, ctx=None, bottom_up=False, name=None, bpm=None, walk=False, enter_calls=False)
resolve(cond, default=True)
exec_alu(op, dtype, operands, truncate_output=True)
UPat(op=None, dtype=None, src=None, arg=None, name=None, allow_any_len=False)
""",
    "tinygrad.engine.realize": """
run_linear(linear, var_vals=None, input_uops=(), update_stats=True, jit=False, wait=False)
compile_linear(linear, beam=None, validate=False, input_uops=None, profile=None)
get_runtime(device, program, cache=True)
time_call(call, var_vals=None, timeout=None, clear_l2=False)
""",
    "tinygrad.codegen": """
to_program(ast, renderer)
full_rewrite_to_sink(ast, renderer, optimize=True)
""",
    "tinygrad.codegen.opt": "Opt(op, axis=None, arg=None)",
    "tinygrad.device": """
BufferSpec(uncached=False, cpu_access=False, host=False, nolru=False, zero=False, external_ptr=None)
""",
}


def members(table: str) -> list[tuple[str, str]]:
    """Return (section, line) of a table."""
    found, section = [], ""
    for line in table.strip().splitlines():
        if line.startswith("#"):
            section = line.split(". ", 1)[1]
        else:
            found.append((section, line))
    return found


def parse(line: str) -> tuple[str, list[tuple[str, str, Any]], str]:
    """Return name, parameters as (name, kind, default or inspect.Parameter.empty), and how the member is called."""
    text, _, how = line.partition(") ")
    text = text if text.endswith(")") else f"{text})"
    tree = ast.parse(f"def {text}: ...").body[0]
    assert isinstance(tree, ast.FunctionDef)
    given, empty = tree.args, inspect.Parameter.empty
    defaults = [empty] * (len(given.args) - len(given.defaults)) + [_value(d) for d in given.defaults]
    parameters = [(a.arg, "positional", d) for a, d in zip(given.args, defaults, strict=True)]
    parameters += [(given.vararg.arg, "*", empty)] if given.vararg else []
    keyword = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    parameters += [(a.arg, "keyword", empty if d is None else _value(d)) for a, d in keyword]
    parameters += [(given.kwarg.arg, "**", empty)] if given.kwarg else []
    return tree.name, parameters, how


def _value(node: ast.expr) -> Any:
    from tinygrad.uop.ops import Ops

    return eval(ast.unparse(node), {"dtypes": dtypes, "Ops": Ops, "int32": dtypes.int32})


def assert_takes(function: Any, line: str, bound: bool) -> None:
    """Check that a function can be called as the line says: names, order, defaults."""
    name, wanted, _ = parse(line)
    found = list(inspect.signature(function).parameters.values())
    found = found[1:] if bound else found
    has_kwargs = any(p.kind is p.VAR_KEYWORD for p in found)
    positional = [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for i, (parameter, kind, default) in enumerate(wanted):
        if kind == "*":
            assert any(p.kind is p.VAR_POSITIONAL for p in found), f"{name}: *{parameter} is missing"
            continue
        if kind == "**":
            continue  # the documented keywords may be written out
        same = next((p for p in found if p.name == parameter and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)), None)
        if same is None:
            absorbed = kind == "keyword" and has_kwargs
            assert absorbed, f"{name}: parameter {parameter} is missing, there are {[p.name for p in found]}"
            continue
        if kind == "positional":
            assert positional.index(same) == i, f"{name}: parameter {parameter} is in another place"
        assert default is inspect.Parameter.empty or same.default == default, (
            f"{name}: {parameter}={same.default!r}, not {default!r}"
        )
    # What is added must be optional.
    names = {parameter for parameter, _, _ in wanted}
    extra = [
        p.name
        for p in found
        if p.name not in names and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    documented_kwargs = any(kind == "**" for _, kind, _ in wanted)
    assert not extra or documented_kwargs, f"{name}: parameters {extra} are required"


def assert_member(owner: type, line: str) -> None:
    name, how = line.partition(" ")[0].partition("(")[0], line.rpartition(" ")[2]
    found = inspect.getattr_static(owner, name, None)
    assert found is not None, f"{owner.__name__} has no {name}"
    if how == "property":
        assert isinstance(found, property) or not callable(found), f"{owner.__name__}.{name} is no property"
        return
    if isinstance(found, (staticmethod, classmethod)):
        assert_takes(found.__func__, line, bound=isinstance(found, classmethod))
        return
    assert how not in ("staticmethod", "classmethod"), f"{owner.__name__}.{name} is no {how}"
    if name != "__hash__":
        assert_takes(found, line, bound=True)


@pytest.mark.parametrize("line", [line for _, line in members(MEMBERS)], ids=lambda line: line.partition("(")[0])
def test_tensor_member(line: str) -> None:
    assert_member(Tensor, line)


@pytest.mark.parametrize(
    "line",
    [m for s, m in members(MEMBERS) if s in NODE_SECTIONS and m.partition("(")[0] not in ONLY_TENSOR],
    ids=lambda m: m.partition("(")[0],
)
def test_tensor_member_of_nodes(line: str) -> None:
    assert inspect.getattr_static(UOp, line.partition("(")[0].partition(" ")[0], None) is not None, f"UOp has no {line}"


@pytest.mark.parametrize("line", [line for _, line in members(NODE_MEMBERS)], ids=lambda line: line.partition("(")[0])
def test_node_member(line: str) -> None:
    assert_member(UOp, line)


@pytest.mark.parametrize("name", NODE_JOINS)
def test_node_joins(name: str) -> None:
    assert callable(getattr(UOp, name))


def test_joins_are_functions_and_methods() -> None:
    a, b = UOp.const(1), UOp.const(2)
    assert a.sink(b) is UOp.sink(a, b)
    assert a.group(b) is UOp.group(a, b)
    assert a.maketuple(b) is UOp.maketuple(a, b)


def test_nodes_have_no_data() -> None:
    with pytest.raises(NotImplementedError, match="no data of its own"):
        UOp.const(1).data()
    with pytest.raises(NotImplementedError, match="random state"):
        UOp.rand(2)


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in NAMES.items() for n in names.split()])
def test_name(module: str, name: str) -> None:
    owner = importlib.import_module(module)
    if not hasattr(owner, name):  # a module inside of the package
        importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize(
    ("module", "line"), [(m, line) for m, lines in FUNCTIONS.items() for line in lines.strip().splitlines()]
)
def test_function(module: str, line: str) -> None:
    name = line.partition("(")[0]
    function = getattr(importlib.import_module(module), name)
    if name == "TinyJit":
        assert_takes(function.__new__, line, bound=True)
    else:
        assert_takes(function, line, bound=False)


@pytest.mark.parametrize(
    "name",
    [
        "__add__",
        "__radd__",
        "__sub__",
        "__rsub__",
        "__mul__",
        "__rmul__",
        "__truediv__",
        "__rtruediv__",
        "__floordiv__",
        "__rfloordiv__",
        "__mod__",
        "__rmod__",
        "__pow__",
        "__rpow__",
        "__matmul__",
        "__rmatmul__",
        "__and__",
        "__rand__",
        "__or__",
        "__ror__",
        "__xor__",
        "__rxor__",
        "__lshift__",
        "__rlshift__",
        "__rshift__",
        "__rrshift__",
        "__invert__",
        "__neg__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__eq__",
        "__ne__",
    ],
)
def test_operator(name: str) -> None:
    assert callable(getattr(Tensor, name))
    assert name in ("__eq__",) or callable(getattr(UOp, name))


@pytest.mark.parametrize("name", ["__int__", "__float__", "__bool__"])
def test_conversions_are_refused(name: str) -> None:
    with pytest.raises(TypeError):
        {"__int__": int, "__float__": float, "__bool__": bool}[name](Tensor([1.0]))


def test_decoding_video_needs_a_decoder() -> None:
    from tinygrad import Variable

    frame = Variable("frame", 0, 3)
    with pytest.raises(AssertionError, match="bound Variable"):
        Tensor([0]).decode_hevc_frame(frame, (4, 4), Tensor([0]))
    with pytest.raises(NotImplementedError, match=r"no video decoder\n(.*\n)*.*no device here has one: decode"):
        Tensor([0]).decode_hevc_frame(frame.bind(1), (4, 4), Tensor([0]))
