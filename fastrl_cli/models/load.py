"""Loading a policy: where it lies, and what makes a folder usable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastrl_cli.config.model import BUILTIN, ModelConfig
from fastrl_cli.errors import DataError
from fastrl_cli.models.torchvision_cure import cure

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ASSETS = Path(__file__).parent / "builtin" / "assets"


def model_path(path: str) -> str:
    """`builtin` as the folder in this package; anything else as it is."""
    return str(ASSETS) if path == BUILTIN else path


def model_folder(path: str) -> Path | None:
    """The folder of a local model; None for a hub id."""
    folder = Path(model_path(path))
    return folder if folder.is_dir() else None


def load_policy_model(config: ModelConfig, device: torch.device) -> PreTrainedModel:
    """The model in float32. Raises DataError where it cannot be loaded."""
    cure()
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    path = model_path(config.path)
    try:
        architecture = AutoConfig.from_pretrained(path)
        multimodal = getattr(architecture, "vision_config", None) is not None
        loader: Any = AutoModelForImageTextToText if multimodal else AutoModelForCausalLM
        model: PreTrainedModel = loader.from_pretrained(path, dtype=config.dtype, attn_implementation=config.attention)
    except (OSError, ValueError) as error:
        raise DataError(f"model {config.path}: cannot be loaded: {str(error).splitlines()[0]}") from error
    return model.to(device)
