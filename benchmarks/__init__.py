"""Benchmarks: the product against its peers and against what the processor can do. `python -m benchmarks --help`."""
