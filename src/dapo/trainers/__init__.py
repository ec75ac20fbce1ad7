"""Trainers own the policy that is trained.

| module    | what is in it                                                          |
|-----------|------------------------------------------------------------------------|
| config    | the recipe's `[trainer]` section; no torch                             |
| forward   | log-probabilities and entropy of replies under a model                 |
| core      | the local trainer: optimizer, micro-batches, the only `backward()`     |
| packing   | flat rows without padding, prompts shared                              |
| precision | float32 weights with a bfloat16 copy to compute with                   |
| critic    | values, for algorithms that ask for them                               |
| reference | the frozen reference, for algorithms that ask for it                   |
| state     | optimizer state to safetensors and back                                |
"""
