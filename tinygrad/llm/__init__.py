"""Large language models: reading GGUF files, running transformers, and serving them."""
