"""The cure of torchvision, in processes of their own, since an import happens once a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter, with folders of packages in front of the installed ones."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT]))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder to put packages in."""
    return tmp_path


def stub(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)


def test_after_the_cure_the_installed_torchvision_and_the_vision_models_import() -> None:
    result = run(
        "from fastrl_cli.models.torchvision_cure import cure; cure(); cure()\n"
        "import torchvision.transforms.v2; from transformers import Qwen2_5_VLForConditionalGeneration"
    )
    assert result.returncode == 0, result.stderr


def test_importing_the_cure_imports_nothing_heavy() -> None:
    result = run("import sys, fastrl_cli.models.torchvision_cure; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_missing_operators_are_declared_only_where_the_import_fails_for_them(package: Path) -> None:
    stub(package, "torchvision", "import torch\ntorch.library.register_fake('torchvision::nms')(lambda *a: a[0])")
    declared = (
        "from fastrl_cli.models.torchvision_cure import cure; cure(); import torch; torch.ops.torchvision.{}.default"
    )
    assert "does not exist" in run("import torchvision", package).stderr
    assert run(declared.format("nms"), package).returncode == 0
    assert run(declared.format("qnms"), package).returncode == 0
    (package / "torchvision" / "__init__.py").write_text("")
    assert run(declared.format("qnms"), package).returncode != 0


def test_another_failure_of_torchvision_is_not_hidden(package: Path) -> None:
    stub(package, "torchvision", "raise RuntimeError('something else')")
    result = run("from fastrl_cli.models.torchvision_cure import cure; cure()", package)
    assert "something else" in result.stderr


def test_an_audio_package_that_does_not_load_is_named_with_the_remedy(package: Path) -> None:
    stub(package, "torchaudio", "raise OSError('libcudart.so.13: cannot open shared object file')")
    result = run(
        "from fastrl_cli.errors import MissingError\nfrom fastrl_cli.models.torchvision_cure import cure\n"
        "try: cure()\nexcept MissingError as error: print(error)",
        package,
    )
    assert "libcudart.so.13" in result.stdout and "pip uninstall -y torchaudio torchcodec" in result.stdout
