"""What every test shares: no network, one thread, caches of its own, and the real samples beside the checkout."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

_caches = tempfile.TemporaryDirectory(prefix="fastrl-tests-", ignore_cleanup_errors=True)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = _caches.name
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The samples of public data sets, which are not part of the project."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no samples of public data sets at {folder}")
    return folder
