"""Loading a policy: where it lies, and what makes a folder usable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastrl_cli.config.model import BUILTIN, ModelConfig
from fastrl_cli.errors import DataError, first_sentence
from fastrl_cli.models.torchvision_cure import cure

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ASSETS = Path(__file__).parent / "builtin" / "assets"
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")


def model_path(path: str) -> str:
    """`builtin` as the folder in this package; anything else as it is."""
    return str(ASSETS) if path == BUILTIN else path


def model_folder(path: str) -> Path | None:
    """The folder of a local model; None for a hub id."""
    folder = Path(model_path(path))
    return folder if folder.is_dir() else None


def check_model_folder(path: str) -> None:
    """Raise DataError where `path` is a folder without a configuration or weights, or looks like a folder and is none.
    A hub id passes. Nothing is loaded."""
    folder = model_folder(path)
    if folder is None:
        if Path(path).is_absolute() or path.startswith((".", "~")) or Path(path).exists():
            raise DataError(f"model {path}: no such folder. Give a folder with config.json and weights, or a hub id.")
        return
    if not (folder / "config.json").is_file():
        raise DataError(f"model {path}: the folder has no config.json. Give one that `save_pretrained` wrote.")
    if not any(any(folder.glob(pattern)) for pattern in WEIGHT_FILES):
        raise DataError(
            f"model {path}: the folder has no weights ({' or '.join(WEIGHT_FILES)}). Copy them there, or give another "
            "folder."
        )


def is_multimodal(architecture: Any) -> bool:
    """True where a transformers configuration is of a model that takes pictures."""
    return getattr(architecture, "vision_config", None) is not None


def load_policy_model(
    config: ModelConfig, device: torch.device, warn: Callable[[str], None] = lambda _: None
) -> PreTrainedModel:
    """The model with float32 weights. `warn` is told of tensors that the model has no place for. Raises DataError where
    the folder or hub id holds no usable one."""
    check_model_folder(config.path)
    cure()
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()
    path = model_path(config.path)
    try:
        architecture = AutoConfig.from_pretrained(path)
        loader: Any = AutoModelForImageTextToText if is_multimodal(architecture) else AutoModelForCausalLM
        model, report = loader.from_pretrained(
            path, dtype=config.dtype, attn_implementation=config.attention, output_loading_info=True
        )
    except Exception as error:
        raise DataError(
            f"model {config.path}: cannot be loaded: {first_sentence(error)} Give a folder that `save_pretrained` "
            "wrote, or the id of a model that the hub or its cache has."
        ) from error
    if report["missing_keys"]:
        names = sorted(report["missing_keys"])
        raise DataError(
            f"model {config.path}: its weights lack {len(names)} of the {type(model).__name__}'s tensors, {names[0]} "
            "among them, which would be random. Give the folder of a whole model."
        )
    if report["unexpected_keys"]:
        names = sorted(report["unexpected_keys"])
        warn(
            f"model {config.path}: its folder holds {len(names)} tensors that a {type(model).__name__} of its "
            f"config.json has no place for, {names[0]} among them; they are left out"
        )
    broken = next((name for name, tensor in model.named_parameters() if not tensor.isfinite().all()), None)
    if broken is not None:
        raise DataError(
            f"model {config.path}: {broken} has values that are not finite. Give the folder of a sound model."
        )
    loaded: PreTrainedModel = model.to(device)
    return loaded
