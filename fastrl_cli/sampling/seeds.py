"""The seed of each group of rollouts, from what identifies it: order and batching of generation change nothing."""

from __future__ import annotations

import json
from hashlib import blake2b

from fastrl_cli.data.sample import Draw


def group_seed(run_seed: int, step: int, draw: Draw) -> int:
    """Seed of a draw's rollouts, in [0, 2^31), the same on every machine and in every process. Rollout k is drawn with
    this plus k."""
    identity = json.dumps([run_seed, step, draw.question_id, draw.number]).encode()
    return int.from_bytes(blake2b(identity, digest_size=4).digest(), "big") >> 1
