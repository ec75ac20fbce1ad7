"""Seeds without state: each random stream is named by what it is for, not by what ran before it.

A reply's seed follows from the run's seed, the step, the group and the reply's place in it. Nothing has to
be saved to resume a stream, and a reply does not depend on what else is generated beside it.
"""

from __future__ import annotations

import hashlib

_BITS = 63  # torch.Generator.manual_seed takes a signed 64-bit integer


def derive_seed(seed: int, *path: str | int) -> int:
    """Return a 63-bit seed for the stream named by `path`.

    >>> derive_seed(7, "rollout", 12, 3) == derive_seed(7, "rollout", 12, 3)
    True
    >>> derive_seed(7, "rollout", 12, 3) == derive_seed(7, "rollout", 1, 23)
    False
    """
    name = "/".join([str(seed), *(str(part) for part in path)])
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _BITS)
