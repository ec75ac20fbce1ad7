"""`python -m dapo` is `dapo`."""

from dapo.cli.main import run

run()
