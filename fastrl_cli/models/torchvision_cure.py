"""Makes torchvision importable beside a CPU build of torch.

The package index holds CUDA builds of torchvision. Beside a CPU build of torch their compiled operators do not load,
and `import torchvision` fails with `operator torchvision::nms does not exist`, and with it the vision models of
transformers and vLLM. Nothing here calls those operators: declaring them is enough."""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.util import find_spec
from typing import Any

from fastrl_cli.errors import MissingError, first_line

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
SYMPTOM = "torchvision::nms does not exist"

_declared: list[Any] = []
"""Declarations last as long as the object that made them."""


@functools.cache
def cure() -> None:
    """Import torchvision, declaring its missing operators where that is what it fails for. Does nothing where
    torchvision is not installed. Call it before the first import of a model of transformers, of qwen-vl-utils or of
    vLLM.

    Raises MissingError when torchaudio is installed and does not load, since transformers imports it too.
    """
    check_torchaudio()
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if SYMPTOM not in str(error):
            raise
        _declare_operators()
        importlib.import_module("torchvision")


def check_torchaudio() -> None:
    """Raise MissingError when torchaudio is installed and does not load beside this torch."""
    if find_spec("torchaudio") is None:
        return
    try:
        importlib.import_module("torchaudio")
    except (OSError, ImportError, RuntimeError) as error:
        raise MissingError(
            f"torchaudio is installed but does not load beside this torch ({first_line(error)}), and every model of "
            "transformers fails with it. Nothing here needs audio: run `pip uninstall -y torchaudio torchcodec`."
        ) from error


def _declare_operators() -> None:
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _declared.append(library)
