"""Large language models: reading GGUF files, running transformers, and serving them.

In:   model files.
Out:  tensors and metadata (``gguf``).
Why:  they are built from the public interface alone, and show what it can do.
"""
