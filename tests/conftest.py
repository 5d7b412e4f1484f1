"""What every test shares: no network, one thread, caches of its own, and the real samples beside the checkout."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_models import Kind, build_tiny

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


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    """The folder of a random tiny model, built once."""
    root, built = tmp_path_factory.mktemp("models"), dict[Kind, Path]()

    def folder(kind: Kind) -> Path:
        if kind not in built:
            built[kind] = build_tiny(kind, root / kind)
        return built[kind]

    return folder
