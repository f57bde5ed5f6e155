"""Settings of every test run: each graph is verified at each border between stages."""

import os

os.environ.setdefault("SPEC", "2")
