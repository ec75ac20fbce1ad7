"""Standard output and standard error that may be gone: a closed terminal, a broken pipe, a full disk."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GONE = (errno.EPIPE, errno.EIO)
"""What the system says where nobody reads any more: a pipe without a reader, a terminal that was closed."""


class _Output(io.RawIOBase):
    """Writes to a file descriptor, and drops what the system does not take; `error` is the first that it gave.

    Where `raises` is set, that first error is raised: the command has nobody to print for and ends.
    """

    def __init__(self, descriptor: int, *, raises: bool) -> None:
        self._descriptor = descriptor
        self.raises = raises
        self.error: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError as error:
            if self.error is None:
                self.error = error
                if self.raises:
                    raise
            return memoryview(data).nbytes

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True


def take_streams() -> None:
    """From here on a message that standard error does not take fails nothing, and a stream that was closed before the
    process began takes anything. Streams that somebody else has put in place stay."""
    if sys.stderr is sys.__stderr__:
        sys.stderr = _taken(sys.stderr, raises=False)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _taken(sys.stdout, raises=True)


def spare_standard_output() -> None:
    """Let standard output fail too: for a command whose work counts for more than what it prints."""
    output = _output()
    if output is not None:
        output.raises = False


def output_has_failed() -> bool:
    """Whether standard output did not take something."""
    output = _output()
    return output is not None and output.error is not None


def finish_output() -> bool:
    """Bring out what was printed; return whether it could be, or was to be spared.

    Where nobody reads any more nothing is said; of a full disk it is.
    """
    output = _output()
    try:
        sys.stdout.flush()
    except OSError:
        if output is None:
            raise
    error = output.error if output is not None else None
    if error is not None and error.errno not in _GONE:
        print(f"dapo: What was to be printed could not be written: {error.strerror}.", file=sys.stderr)
    return output is None or error is None or not output.raises


def _output() -> _Output | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Output) else None


def _taken(stream: TextIO | None, *, raises: bool) -> TextIO:
    if stream is None:  # it was closed when the process began
        return open(os.devnull, "w", encoding="utf-8")
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), raises=raises)),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=bool(getattr(stream, "line_buffering", False)),
        write_through=bool(getattr(stream, "write_through", False)),
    )
