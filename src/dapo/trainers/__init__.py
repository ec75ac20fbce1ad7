"""Trainers own the policy that is trained.

| module    | what is in it                                                          |
|-----------|------------------------------------------------------------------------|
| config    | the recipe's `[trainer]` section; no torch                             |
| forward   | log-probabilities and entropy of replies under a model                 |
| core      | the local trainer: optimizer, micro-batches, the only `backward()`     |
| state     | optimizer state to safetensors and back                                |
"""
