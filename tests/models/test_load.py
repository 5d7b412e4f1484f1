"""Loading a policy, and the messages about one that cannot be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastrl_cli.config.model import ModelConfig
from fastrl_cli.errors import DataError
from fastrl_cli.models.load import check_model_folder, load_policy_model, model_folder, model_path
from tests.tiny_models import KINDS, Kind, build_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model folder."""
    return build_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def load(folder: Path) -> object:
    return load_policy_model(ModelConfig(path=str(folder)), CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_in_float32_on_the_device_with_the_attention_asked_for(kind: Kind, tmp_path: Path) -> None:
    build_tiny(kind, tmp_path)
    for attention in ("sdpa", "eager"):
        model = load_policy_model(ModelConfig(path=str(tmp_path), attention=attention), CPU)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert model.config.get_text_config()._attn_implementation == attention
        assert hasattr(model.model, "visual") == (kind != "llama")


def test_weights_stored_in_bfloat16_come_in_float32(whole: Path, tmp_path: Path) -> None:
    model = load_policy_model(ModelConfig(path=str(whole)), CPU)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    again = load_policy_model(ModelConfig(path=str(tmp_path)), CPU)
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}


def test_builtin_is_a_folder_of_the_package_and_a_hub_id_is_none() -> None:
    assert model_folder("builtin") == Path(model_path("builtin"))
    assert model_folder("Qwen/Qwen2.5-VL-7B-Instruct") is None
    check_model_folder("Qwen/Qwen2.5-VL-7B-Instruct")


def test_a_folder_without_weights_is_named_with_the_remedy(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"no weights.*Copy them"):
        load(folder)


def test_a_folder_without_a_configuration_is_named(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"no config\.json"):
        load(folder)


@pytest.mark.parametrize("path", ["/nowhere/model", "./nowhere"])
def test_a_path_without_a_folder_is_named(path: str) -> None:
    with pytest.raises(DataError, match=f"model {path}: no such folder"):
        load(Path(path)) if path.startswith("/") else load_policy_model(ModelConfig(path=path), CPU)


def test_damaged_weights_are_an_error_of_the_model(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be loaded"):
        load(folder)


def test_weights_that_lack_a_tensor_are_refused_rather_than_filled_up_at_random(folder: Path) -> None:
    configuration = json.loads((folder / "config.json").read_text())
    configuration["num_hidden_layers"] += 1
    (folder / "config.json").write_text(json.dumps(configuration))
    with pytest.raises(DataError, match=r"lack \d+ of .*model\.layers\.2"):
        load(folder)


def test_tensors_without_a_place_are_told(folder: Path) -> None:
    configuration = json.loads((folder / "config.json").read_text())
    configuration["num_hidden_layers"] -= 1
    (folder / "config.json").write_text(json.dumps(configuration))
    said: list[str] = []
    load_policy_model(ModelConfig(path=str(folder)), CPU, said.append)
    assert len(said) == 1 and "model.layers.1" in said[0]


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "layers.0" in name)
    tensors[name][..., 0] = float("inf")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="not finite"):
        load(folder)


def test_an_unknown_architecture_is_an_error_of_the_model(folder: Path) -> None:
    configuration = json.loads((folder / "config.json").read_text()) | {"model_type": "nothing_known"}
    (folder / "config.json").write_text(json.dumps(configuration))
    with pytest.raises(DataError, match="cannot be loaded"):
        load(folder)


def test_a_model_that_the_cache_lacks_is_an_error_while_offline() -> None:
    with pytest.raises(DataError, match="cannot be loaded"):
        load_policy_model(ModelConfig(path="nobody/no-such-model"), CPU)
