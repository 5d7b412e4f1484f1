"""Named settings. The numbers are the paper's (FastRL, its training scripts' hyper-parameters)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHARED_ALGORITHM: Mapping[str, Any] = {
    "advantage_eps": 1e-6,
    "dual_clip": 3.0,
    "log_ratio_clamp": 20.0,
    "old_logprobs": "auto",
    "denominator": "kept",
    "overlong_penalty": None,
    "importance_correction": None,
}

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {
        **_SHARED_ALGORITHM,
        "name": "grpo",
        "ratio": "token",
        "clip_low": 0.2,
        "clip_high": 0.3,
        "aggregation": "token_mean",
        "kl": {"coefficient": 0.01, "estimator": "k3", "log_ratio_clamp": 20.0, "value_clamp": 10.0},
        "dynamic_sampling": None,
    },
    "dapo": {
        **_SHARED_ALGORITHM,
        "name": "dapo",
        "ratio": "token",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregation": "token_mean",
        "kl": {"coefficient": 0.0},
        "dynamic_sampling": {"max_rounds": 10},
    },
    "gspo": {
        **_SHARED_ALGORITHM,
        "name": "gspo",
        "ratio": "sequence",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "aggregation": "seq_mean",
        "kl": {"coefficient": 0.0},
        "dynamic_sampling": None,
    },
}
"""GRPO (Shao et al. 2402.03300) with the clip range of the paper's scripts, DAPO (Yu et al. 2503.14476) with its clip
range and dynamic sampling, GSPO (Zheng et al. 2507.18071) with the sequence ratio and a true sequence mean."""

METHODS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "pruning": {
            "type": "mdap",
            "tau": 0.8,
            "ngram": 1,
            "compare": "retained",
            "boundary": "keep",
            "group_by": "reward",
            "fill": {"start": "rotate"},
            "degenerate": "keep",
        },
        "adaptive": {"type": "ars", "n_min": 2, "max_stat": "step_mean"},
    },
    "release": {
        "pruning": {
            "type": "mdap",
            "tau": 0.8,
            "ngram": 1,
            "compare": "seed",
            "boundary": "prune",
            "group_by": "adv_round4",
            "fill": {"start": "id"},
            "degenerate": "keep",
        },
        "adaptive": {"type": "fixed"},
    },
}
"""FastRL as the paper words it, and as its authors' code does it. Neither: `--pruning none --no-adaptive`."""
