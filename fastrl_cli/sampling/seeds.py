"""The seed of each rollout, from what identifies it: the order and the batching of generation change nothing."""

from __future__ import annotations

import json
from hashlib import blake2b

from fastrl_cli.data.sample import Draw


def rollout_seed(run_seed: int, step: int, draw: Draw, index: int) -> int:
    """Seed of rollout `index` of a draw, in [0, 2^31); the same on every machine and in every process."""
    identity = json.dumps([run_seed, step, draw.question_id, draw.number, index]).encode()
    return int.from_bytes(blake2b(identity, digest_size=4).digest(), "big") >> 1
