"""Continuous batching over any causal model whose attention can be planned.

| module   | what is in it                                                                        |
|----------|--------------------------------------------------------------------------------------|
| cache    | keys and values in static buffers: one for prompts, shared by a group, one for replies |
| plans    | how tokens attend: a prompt that is read in, a step of all replies                    |
| rows     | the replies that are being written, dense, with their random streams                  |
| runner   | reads prompts in and makes steps: the model and nothing asynchronous                  |
| engine   | requests in, groups out                                                               |
"""
