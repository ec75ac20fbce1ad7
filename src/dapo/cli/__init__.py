"""The command line: one module a command. Torch is imported only once a request has been found to make sense."""
