"""DAPO, GRPO and PPO on one code path, from a laptop to a cluster. Importing this package does not import torch."""

__version__ = "0.1.0"
