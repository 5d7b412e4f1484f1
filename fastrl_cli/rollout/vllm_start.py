"""Starting vLLM inside the trainer's process, without what its start would change there."""

from __future__ import annotations

import json
import logging
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastrl_cli.models.torchvision_cure import cure

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process, so weights need no socket
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def import_vllm() -> Any:
    """The module `vllm`, set up for running in this process. Raises ImportError or MissingError where it does not
    load."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
    cure()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm
    return vllm


def register_architecture(vllm: Any, folder: str) -> None:
    """Inspect the model's class in this process. vLLM does it in a new one, which takes seconds and, beside a CPU build
    of torch, fails on torchvision, which is cured in this process only."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        return
    for name in json.loads(path.read_text(encoding="utf-8")).get("architectures") or []:
        known = vllm.ModelRegistry.models.get(name)
        if known is not None:
            vllm.ModelRegistry.register_model(name, known.load_model_cls())


@contextmanager
def process_unchanged() -> Iterator[None]:
    """Within, vLLM starts; afterwards torch's thread setter, the random generators and the environment are as before.

    On a CPU vLLM replaces `torch.set_num_threads` by a stub for good, and it preloads libraries, sets LOCAL_WORLD_SIZE
    and seeds the generators, all of which a trainer and its subprocesses would notice.
    """
    set_num_threads = torch.set_num_threads
    environment = dict(os.environ)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gpu_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = set_num_threads
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.cuda.set_rng_state_all(gpu_states)
        for name in [name for name in os.environ if name not in environment and not name.startswith("VLLM_")]:
            del os.environ[name]
        os.environ.update(environment)
