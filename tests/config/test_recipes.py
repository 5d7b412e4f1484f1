"""The presets and the shipped recipes against the paper's numbers (METHOD a.2, a.3, c.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastrl_cli.config.algorithm import AlgorithmConfig
from fastrl_cli.config.load import load_config
from fastrl_cli.config.presets import ALGORITHMS, METHODS
from fastrl_cli.config.pruning import ARSConfig, FillConfig, FixedRolloutsConfig, MDAPConfig
from fastrl_cli.config.run import RunConfig

RECIPES = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
PAPER_RECIPES = [path for path in RECIPES if path.stem != "demo"]

CLIPPING = {"grpo": (0.2, 0.3), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
AVERAGING = {"grpo": "token_mean", "dapo": "token_mean", "gspo": "seq_mean"}
RATIO = {"grpo": "token", "dapo": "token", "gspo": "sequence"}
KL = {"grpo": 0.01, "dapo": 0.0, "gspo": 0.0}
MODELS = {
    "qwen2_5_vl_7b": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwen3_vl_8b": "Qwen/Qwen3-VL-8B-Instruct",
    "llama3_1_8b": "meta-llama/Llama-3.1-8B-Instruct",
}
DATA = {"geometry3k": "hiyouga/geometry3k", "geoqa8k": "leonardPKU/GEOQA_R1V_Train_8K"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_preset_has_the_papers_numbers(name: str) -> None:
    check_algorithm(load_config(algorithm=name).algorithm, name)


def check_algorithm(algorithm: AlgorithmConfig, name: str) -> None:
    assert algorithm.name == name
    assert (algorithm.clip_low, algorithm.clip_high) == CLIPPING[name]
    assert (algorithm.ratio, algorithm.aggregation) == (RATIO[name], AVERAGING[name])
    assert (algorithm.kl.coefficient, algorithm.kl.estimator) == (KL[name], "k3")
    assert (algorithm.kl.log_ratio_clamp, algorithm.kl.value_clamp, algorithm.log_ratio_clamp) == (20, 10, 20)
    assert (algorithm.dual_clip, algorithm.advantage_eps, algorithm.denominator) == (3.0, 1e-6, "kept")
    assert (algorithm.dynamic_sampling is not None) == (name == "dapo")
    assert algorithm.overlong_penalty is None and algorithm.importance_correction is None


def test_a_preset_leaves_no_field_of_the_algorithm_to_chance() -> None:
    for preset in ALGORITHMS.values():
        assert set(preset) == set(AlgorithmConfig.model_fields)


def test_the_default_is_grpo_with_fastrl_as_in_the_paper() -> None:
    assert RunConfig() == load_config(algorithm="grpo", preset="paper")


def test_the_paper_preset() -> None:
    config = load_config(preset="paper")
    assert config.pruning == MDAPConfig(
        tau=0.8, ngram=1, compare="retained", boundary="keep", group_by="reward", fill=FillConfig(start="rotate")
    )
    assert config.adaptive == ARSConfig(n_min=2, max_stat="step_mean")


def test_the_release_preset() -> None:
    config = load_config(preset="release")
    assert config.pruning == MDAPConfig(
        tau=0.8, ngram=1, compare="seed", boundary="prune", group_by="adv_round4", fill=FillConfig(start="id")
    )
    assert config.adaptive == FixedRolloutsConfig()
    assert set(METHODS) == {"paper", "release"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(path: Path) -> None:
    warnings: list[str] = []
    load_config(files=[path], warn=warnings.append)
    assert warnings == []


def test_there_is_a_recipe_for_each_of_the_papers_runs() -> None:
    vision = {f"{data}_{model}_{name}" for data in DATA for model in list(MODELS)[:2] for name in ALGORITHMS}
    assert {path.stem for path in PAPER_RECIPES} == vision | {"math_llama3_1_8b_grpo"}


@pytest.mark.parametrize("path", PAPER_RECIPES, ids=lambda path: path.stem)
def test_a_recipe_has_the_papers_numbers(path: Path) -> None:
    config = load_config(files=[path])
    data, _, model = path.stem.rpartition("_")[0].partition("_")
    geoqa = data == "geoqa8k"
    check_algorithm(config.algorithm, path.stem.rpartition("_")[2])
    assert config.model.path == MODELS[model]
    assert config.data.path == DATA.get(data, config.data.path)
    assert (config.batch.questions_per_step, config.batch.rollouts) == (256, 8)
    assert (config.batch.epochs, config.batch.steps) == (15 if geoqa else 25, None)
    assert (config.data.max_prompt_tokens, config.sampling.max_tokens) == (2048, 4096 if geoqa else 2048)
    assert (config.sampling.temperature, config.sampling.top_p, config.sampling.top_k) == (1.0, 1.0, 0)
    assert (config.eval.temperature, config.eval.top_p, config.eval.rollouts) == (0.6, 0.95, 1)
    assert config.eval.every == (15 if geoqa else 5)
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.betas) == (1e-6, 1e-2, (0.9, 0.999))
    assert (optimizer.max_grad_norm, optimizer.warmup_steps) == (1.0, 0)
    assert optimizer.updates_per_batch == 256 * 8 // (64 * 8) and optimizer.mini_batch_rollouts is None
    pixels = (None, None) if data == "math" else (262144, 4194304)
    assert (config.data.min_pixels, config.data.max_pixels) == pixels
    assert config.reward.format_weight == 0.5 and config.seed == 1
    assert config.engine.model_dump()["tensor_parallel_size"] == (2 if geoqa else 1)
    assert (config.pruning, config.adaptive) == (load_config().pruning, load_config().adaptive)


@pytest.mark.parametrize("path", PAPER_RECIPES, ids=lambda path: path.stem)
def test_a_recipes_own_command_names_it(path: Path) -> None:
    assert f"fastrl_cli train --config configs/{path.name}\n" in path.read_text()


def test_the_demo_recipe_is_the_embedded_default() -> None:
    assert load_config(files=[next(path for path in RECIPES if path.stem == "demo")]) == RunConfig()
