"""Every error a person may meet, and the exit code that each stands for.

    DapoError
    ├── RequestError        what was asked cannot be done; nothing has started      exit code 2
    │   ├── ConfigError     the recipe or an override is wrong
    │   ├── ModelError      the model, its tokenizer or its template cannot serve
    │   └── DataError       a data file or one of its rows cannot serve
    └── RunError            the work had begun and cannot go on                     exit code 1
        ├── NoSignalError   dynamic sampling found nothing to learn from
        ├── EngineError     generation failed
        └── RewardError     a task's own scoring code misbehaved

Every message says what was asked, why it cannot be, and what to do.
"""

from __future__ import annotations


class DapoError(Exception):
    """Base of all errors of this package; `exit_code` is what the command line returns."""

    exit_code: int = 1


class RequestError(DapoError):
    """The request is wrong; found before any work started."""

    exit_code = 2


class ConfigError(RequestError, ValueError):
    """A recipe, an override or a combination of settings is wrong."""


class ModelError(RequestError, ValueError):
    """A model folder, its tokenizer or its chat template cannot be used."""


class DataError(RequestError, ValueError):
    """A data file is missing, or one of its rows cannot be used."""


class RunError(DapoError, RuntimeError):
    """A run that had started cannot go on."""


class NoSignalError(RunError):
    """No generated group had both right and wrong replies, so there is nothing to learn from.

    `accuracy` is the share of right replies among all that were generated.
    """

    def __init__(self, message: str, *, accuracy: float) -> None:
        super().__init__(message)
        self.accuracy = accuracy


class EngineError(RunError):
    """The engine could not generate."""


class RewardError(RunError):
    """A task's scoring code returned something that is not a score."""
