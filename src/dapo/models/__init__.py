"""Where the policy comes from: a Hub id, a folder, or a GGUF file inside an installed package.

| module    | what is in it                                                       |
|-----------|---------------------------------------------------------------------|
| config    | the recipe's `[model]` section; no torch                            |
| source    | finds the files, converts a GGUF once into a cached folder          |
| load      | model and tokenizer from those files; device and precision          |
| render    | messages to token ids and back: the one place that knows templates  |
"""
