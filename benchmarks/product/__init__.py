"""The product's side of the benchmarks. Each script is a process of its own: it reads a JSON file and writes another."""
