"""Engines draw replies from a version of the policy.

| module | what is in it                                                                |
|--------|------------------------------------------------------------------------------|
| config | the recipe's `[engine]` section; no torch                                    |
| native | continuous batching, shared prompts; the default                             |
| hf     | transformers' own generation, with exact log-probabilities                   |
| fake   | scripted replies; public, for this project's tests and for your own          |
"""
