"""Algorithms as values: what each needs, keeps, labels, weighs and loses. The loop and the trainer know no names.

| module       | what is in it                                                          |
|--------------|------------------------------------------------------------------------|
| config       | the recipe's `[algorithm]` section: all configs, told apart by `type`  |
| dapo, grpo, ppo, relatives, custom | one config an algorithm, with its `build`        |
| parts        | what several configs have in common                                    |
| value        | `Algorithm`, the value that the loop and the trainer are handed        |
| policy       | the pure pieces of DAPO and GRPO: judge, penalise, label, clipped loss |
| objectives   | the other losses                                                       |
| token_labels | labels from a critic, rewards to go, and chosen tokens                 |
"""
