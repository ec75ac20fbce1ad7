"""The formulas, and nothing else: tensors in, tensors out. No config, no logger, no ranks.

| module       | what is in it                                                      |
|--------------|--------------------------------------------------------------------|
| advantages   | from rewards to advantages                                         |
| losses       | from log-probabilities and advantages to a loss per token          |
| weights      | from a mask to the weight of each token: every mean there is       |
| logprobs     | from logits to log-probabilities and entropy                       |
| overlong     | the soft punishment of replies that near the limit                 |
| statistics   | intervals for measured accuracies                                  |
"""
