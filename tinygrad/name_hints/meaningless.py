"""Names of PyTorch that stand for something that does not exist here, or is said in another way for a whole family.

In:   nothing.
Out:  ``METHODS`` and ``PACKAGE``: (reason, names), of ``torch.Tensor`` and of ``torch``. A ``*`` stands for anything.
Why:  most of these names come in families, and one sentence answers all of a family.
"""

from __future__ import annotations

from typing import Final

_COMPLEX: Final = "it has no meaning here, because there are no complex numbers"
_STRIDES: Final = "it has no meaning here, because views are part of the graph and have no strides or memory formats"
_SPARSE: Final = "it has no meaning here, because there are no sparse or ragged tensors"
_QUANTIZED: Final = (
    "it has no meaning here, because there are no quantized dtypes: t.cast(dtypes.int8) and a scale of your own, or fp8"
)
_LINEAR: Final = (
    "qr(), svd() and inverse() are here; numpy and scipy have the rest: Tensor(their function of t.numpy())"
)
_SPECIAL: Final = "it is a special function of scipy: Tensor(scipy.special function of t.numpy())"
_NO_MODE: Final = "it has no meaning here, because backward() differentiates when it is called; detach() cuts a graph"
_ONE_ORDER: Final = "it has no meaning here, because sums have one order: results are deterministic"
_OWN_DTYPE: Final = "it has no meaning here, because floats are computed in their own dtype, subnormals included"
_SPECTRUM: Final = "there are no complex numbers, so no Fourier transforms; numpy has them"

METHODS: Final = (
    (
        _COMPLEX,
        "angle cdouble cfloat chalf conj_physical conj_physical_ is_conj is_neg isreal resolve_conj resolve_neg",
    ),
    (_STRIDES, "as_strided as_strided_ dim_order layout new_empty_strided storage_offset storage_type const_data_ptr"),
    (
        _SPARSE,
        "ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced is_nested is_sparse "
        "is_sparse_csr resize_as_sparse_ row_indices smm sparse_dim sparse_mask sparse_resize_ "
        "sparse_resize_and_clear_ sspaddmm to_dense to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo "
        "to_sparse_csc to_sparse_csr values",
    ),
    (
        _QUANTIZED,
        "dequantize int_repr is_quantized q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
        "q_zero_point qscheme",
    ),
    (
        _LINEAR,
        "cholesky_inverse cholesky_solve geqrf lu lu_solve orgqr ormqr symeig triangular_solve cholesky_ex eigh "
        "eigvals eigvalsh householder_product ldl_factor ldl_factor_ex ldl_solve lu_factor lu_factor_ex solve_ex "
        "solve_triangular tensorinv tensorsolve",
    ),
    (
        _SPECIAL,
        "digamma_ erfc_ erfinv_ i0 i0_ igamma igamma_ igammac igammac_ lgamma_ mvlgamma mvlgamma_ polygamma polygamma_ "
        "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u "
        "chebyshev_polynomial_v chebyshev_polynomial_w erfcx gammainc gammaincc gammaln hermite_polynomial_h "
        "hermite_polynomial_he i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0 "
        "modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln ndtri psi scaled_modified_bessel_k0 "
        "scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
        "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w spherical_bessel_j0 zeta",
    ),
    (_SPECTRUM, "istft stft"),
    (
        "ask t.device, and move with t.to(device)",
        "ipu is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_vulkan is_xla is_xpu mtia record_stream to_mkldnn xpu",
    ),
    (
        "it has no meaning here, because a Tensor has no subclasses, names, shared memory or modes",
        "as_subclass is_distributed is_inference is_pinned is_shared module_load name output_nr reinforce "
        "slice_inverse",
    ),
    (
        "backward fills t.grad, in the dtype of t; Tensor.gradient gives the gradient of any tensor without it",
        "grad_dtype register_post_accumulate_grad_hook retains_grad volatile",
    ),
    (
        "it has no meaning here, because it is a part of torch's own machinery, not a function of tensors",
        "BroadcastingList1 BroadcastingList2 BroadcastingList3 Callable DType GRID_SAMPLE_INTERPOLATION_MODES "
        "GRID_SAMPLE_PADDING_MODES Optional ScalingType SwizzleType TYPE_CHECKING Tensor assert_int_or_pair "
        "boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary "
        "has_torch_function_variadic native_channel_shuffle reproducibility_notes sparse_support_notes tf32_notes",
    ),
)

PACKAGE: Final = (
    (_COMPLEX, "complex polar view_as_*_copy Complex*"),
    (_STRIDES, "strided channels_last* *_format memory_format empty_strided empty_permuted as_strided*"),
    (
        _SPARSE,
        "sparse* hsmm hspmm smm spmm sspaddmm saddmm dsmm *indices_copy values_copy jagged nested resize_as_sparse_",
    ),
    (
        _QUANTIZED,
        "quantiz* fake_quantize* q_* per_* choose_qparams* fused_moving_avg* quantized_* empty_quantized QInt* QUInt* "
        "ao masked",
    ),
    (_LINEAR, "linalg lobpcg lu_unpack matrix_rank svd_lowrank pca_lowrank has_lapack"),
    (
        "dtypes has bool, integers of 8 to 64 bits, float16, bfloat16, float32, float64 and four kinds of fp8",
        "bit bits* complex32 complex64 complex128 float4_* float8_* int? uint? qint* quint*",
    ),
    (_SPECIAL, "special"),
    (_SPECTRUM, "fft has_spectral signal"),
    (
        "it has no meaning here, because kernels are generated, none is taken from a library of a vendor",
        "backends cudnn_* miopen_* mkldnn_* fbgemm_* has_mkl has_openmp convolution native_* *_backward_* "
        "batch_norm_* affine_grid_generator grid_sampler* embedding_renorm_ is_vulkan_available max_pool*_indices",
    ),
    (
        "it has no meaning here, because there is no TorchScript: @TinyJit captures a function, and t.uop is its graph",
        "AVG AggregationType AliasDb Argument ArgumentSpec Block CallStack Capsule Code CompilationUnit "
        "CompleteArgumentSpec Concrete* DeepCopyMemoTable *Type *TypeBuilder ErrorReport ExecutionPlan FileCheck "
        "FunctionSchema Future Gradient Graph* IODescriptor JITException LiteScriptModule Locking* Logger* Noop* Node "
        "OperatorInfo PyTorchFile* SUM Script* Serialization* Deserialization* StaticModule TracingState Type Use "
        "Value classes cond export fork fx import_ir_module* jit library merge_type_* ops parse_* unify_type_list wait "
        "while_loop PRIVATE_OPS cpp",
    ),
    (
        "it has no meaning here, because it is a part of torch's own machinery, not a function of tensors",
        "Benchmark* Dispatch* DisableTorchFunction* Exclude* FatalError Tag ThroughputBenchmark USE_* classproperty "
        "compiled_with* get_file_path is_storage is_warn_always_enabled overrides package "
        "prepare_multiprocessing_environment profiler_allow* return_types set_warn_always serialization "
        "torch_version typename version hub monitor futures onnx quasirandom testing windows torch builtins ctypes "
        "functools glob importlib inspect math os platform sys textwrap threading types warnings",
    ),
    ("sizes that vary are Variables: Variable(name, min, max).bind(n)", "Sym* sym_*"),
    ("write Tensor(data, dtype=...): the dtype is an argument", "*Tensor"),
    ("realize() computes and t.uop.buffer is the memory", "*Storage StorageBase storage"),
    (
        "write the cast: t.half(), t.bfloat16(), or parameters of such a dtype; gradients need no scaling in bfloat16",
        "*autocast* GradScaler amp",
    ),
    (
        _NO_MODE,
        "enable_grad inference_mode set_grad_enabled is_grad_enabled is_inference* *anomaly* autograd",
    ),
    (_ONE_ORDER, "*deterministic*"),
    ("the environment variable NUM_CPU_THREADS sets it", "*num_threads *num_interop_threads"),
    ("name the device: Tensor(data, device=...), t.to(device), Device.DEFAULT; DEV=... chooses the default",
     "*device* Device* Stream* Event accelerator Accelerator* mps mtia xpu OutOfMemoryError"),
    ("write the name without _copy: every method gives a new value", "*_copy"),
    ("write Tensor.manual_seed(n): the state of random numbers is a seed and counters on each device",
     "seed initial_seed *rng_state default_generator Generator thread_safe_generator random"),
    ("print t.numpy(); numpy.set_printoptions sets its form", "set_printoptions"),
    (_OWN_DTYPE, "set_flush_denormal *float32_matmul_precision"),
    ("write a loop over the steps, with nn.LSTMCell or matmuls; TinyJit makes it one program",
     "lstm* gru* rnn_* quantized_lstm*"),
)  # fmt: skip
