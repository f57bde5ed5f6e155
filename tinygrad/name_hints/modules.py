"""What to write instead of names of ``torch``, ``torch.nn`` and ``torch.optim``.

In:   nothing.
Out:  ``PACKAGE``, ``LAYERS`` and ``OPTIMIZERS``: (what to write, names). A ``*`` stands for anything.
Why:  see ``name_hints``. Functions are methods of Tensor, and layers without parameters are those functions.
"""

from __future__ import annotations

from typing import Final

PACKAGE: Final = (
    ("write t.assign(t.dropout(p))", "*dropout_"),
    ("layers are in nn",
     "Linear Conv?d ConvTranspose?d BatchNorm* LayerNorm* GroupNorm InstanceNorm RMSNorm Embedding nn optim"),
    ("write math.pi, math.e, math.inf or math.nan", "pi e inf nan"),
    ("write None: t[None] or t.unsqueeze(0)", "newaxis"),
    ("write @TinyJit", "compile compiler"),
    ("write a batch dim: every operation broadcasts", "vmap func"),
    ("functions of torch.nn.functional are methods of Tensor", "functional"),
    ("write t.shape, a tuple", "Size"),
    ("write isinstance(x, Tensor)", "is_tensor"),
    ("write a dict, a list, or attributes: nn.state.get_state_dict finds tensors in them",
     "ModuleDict ParameterDict BufferDict"),
    ("write nn.state.safe_save(nn.state.get_state_dict(model), path)", "save"),
    ("write nn.state.torch_load(path), or nn.state.safe_load(path)", "load"),
    ("write Tensor(array): numpy arrays, buffers and bytes", "from_dlpack to_dlpack from_file frombuffer"),
    ("write dtype.min, dtype.max, or dtypes.finfo(dtype) for (exponent, mantissa) bits", "finfo iinfo"),
    ("write least_upper_dtype of tinygrad.dtype", "promote_types result_type can_cast"),
    ("write dtypes.default_float, which can be set", "get_default_dtype set_default_dtype set_default_tensor_type"),
    ("write a list of tensors: devices are a tuple, Tensor.shard splits over them", "distributed multiprocessing"),
    ("write Tensor.rand, randn, uniform, normal, randint, bernoulli or multinomial", "distributions"),
    ("DEBUG=2 prints each kernel with its time, VIZ=1 draws the graphs", "profiler"),
    ("nn.datasets, nn.state and helpers have some of it; a data loader is a loop over t[indices]", "utils"),
)  # fmt: skip

LAYERS: Final = (
    ("functions of torch.nn.functional are methods of Tensor", "functional grad"),
    ("write the method: a list of layers takes functions, such as Tensor.relu",
     "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU "
     "ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold"),
    ("write t.dropout(p)", "*Dropout Dropout?d"),
    ("write lambda x: x", "Identity"),
    ("write t.flatten(1) or t.unflatten(dim, sizes)", "Flatten Unflatten"),
    ("write a list of layers and t.sequential(layers)", "Sequential ModuleList Container"),
    ("a model is any object with tensors in it: no base class", "Module modules"),
    ("a parameter is a float Tensor that is an attribute; nn.state.get_parameters finds them",
     "Parameter Parameter* Buffer Uninitialized* parameter"),
    ("write a dict: nn.state.get_state_dict finds tensors in it", "ModuleDict"),
    ("write the loss as a method: t.cross_entropy(y), t.nll_loss(y), t.mse_loss(y), t.binary_crossentropy(y) ...",
     "*Loss *Loss2d LinearCrossEntropyOptions AdaptiveLogSoftmaxWithLoss"),
    ("write the method of Tensor: max_pool2d, avg_pool2d, adaptive_avg_pool2d, max_unpool2d",
     "*Pool?d MaxUnpool?d"),
    ("write t.pad(padding, mode, value)", "*Pad?d"),
    ("write nn.BatchNorm, which takes any number of dims", "BatchNorm1d SyncBatchNorm"),
    ("write nn.InstanceNorm, which takes any number of dims", "InstanceNorm?d"),
    ("write nn.Conv2d or nn.ConvTranspose2d with a kernel of three sizes", "Conv3d ConvTranspose3d"),
    ("write the layer with its sizes: nothing is inferred at the first call", "Lazy*"),
    ("write a loop over the steps with nn.LSTMCell, or with nn.Linear; TinyJit makes it one program",
     "RNN RNNBase RNNCell RNNCellBase GRU GRUCell LSTM"),
    ("write scaled_dot_product_attention between nn.Linear layers", "MultiheadAttention Transformer* attention"),
    ("write the method of Tensor: cosine_similarity, pairwise_distance", "CosineSimilarity PairwiseDistance"),
    ("write the method of Tensor: pixel_shuffle, pixel_unshuffle, channel_shuffle", "Pixel* ChannelShuffle"),
    ("write t.interpolate(size, mode)", "Upsampl*"),
    ("write t.fold(output_size, kernel_size) and t.im2col(kernel_size)", "Fold Unfold"),
    ("write Tensor.einsum('bi,oij,bj->bo', a, weight, b) + bias", "Bilinear"),
    ("write ids.embedding_bag(weight)", "EmbeddingBag"),
    ("write t / (k + alpha * (t * t) averaged over the channels beside).pow(beta)", "LocalResponseNorm CrossMapLRN2d"),
    ("write t.shard(devices, axis=0), which splits the batch", "DataParallel parallel"),
    ("write Tensor.kaiming_uniform(*shape), glorot_uniform, normal, uniform ..., and assign it", "init"),
    ("write t.norm() and scale: grads are tensors", "utils"),
    ("there are no quantized dtypes", "intrinsic qat quantizable quantized"),
    ("it is a part of torch's own machinery", "factory_kwargs common_types"),
)  # fmt: skip

OPTIMIZERS: Final = (
    ("nn.optim has SGD, Adam, AdamW, Adagrad, Adadelta, Adamax, NAdam, RAdam, RMSprop, LAMB, LARS and Muon; another is "
     "a subclass of Optimizer with _step", "ASGD Adafactor LBFGS Rprop SparseAdam"),
    ("extra/lr_scheduler.py of the repository has schedules; opt.lr is a tensor: opt.lr.assign([rate])",
     "lr_scheduler *LR *Scheduler *Restarts ReduceLROnPlateau"),
    ("average the parameters: p_mean.assign(p_mean.lerp(p, 1 - decay))", "swa_utils swap_in_optimizer*"),
)  # fmt: skip
