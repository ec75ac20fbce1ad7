"""A reward that costs nothing and gives nearly every group right and wrong replies."""

from __future__ import annotations

import zlib

from dapo.types import Problem


def coin(problem: Problem, reply: str) -> bool:
    """A coin that the text itself tosses, so that both sides of a comparison can toss the same one."""
    return zlib.crc32(reply.encode()) % 2 == 0
