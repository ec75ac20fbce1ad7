"""Algorithms as values: what each needs, keeps, labels, weighs and loses. The loop and the trainer know no names.

| module   | what is in it                                                    |
|----------|------------------------------------------------------------------|
| config   | the recipe's `[algorithm]` section, one class an algorithm; no torch |
| value    | `Algorithm`, the value that the loop and the trainer are handed  |
| policy   | the pure pieces from which the values are put together           |
"""
