"""How the layers of a configuration are merged, and what is said about a wrong one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from fastrl_cli.config.explain import example
from fastrl_cli.config.export import read_resolved, to_yaml
from fastrl_cli.config.load import load_config, load_resumed
from fastrl_cli.config.pruning import AdvantageOnlyConfig, ARSConfig, FixedRolloutsConfig, MDAPConfig, NoPruningConfig
from fastrl_cli.config.run import RunConfig
from fastrl_cli.config.schema import FieldPlace, field_places
from fastrl_cli.errors import UsageError


def yaml_file(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**arguments: object) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(**arguments)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_nothing_given_is_the_embedded_default() -> None:
    assert load_config() == RunConfig()


def test_later_layers_beat_earlier_ones(tmp_path: Path) -> None:
    first = yaml_file(tmp_path, "seed: 1\nbatch: {rollouts: 4, steps: 10}\neval: {every: 3}\n", "a.yaml")
    second = yaml_file(tmp_path, "seed: 2\nbatch: {steps: 20}\n", "b.yaml")
    config = load_config(
        files=[first, second], flags={"batch.steps": ("--steps 30", 30)}, overrides=["seed=3", "seed=4"]
    )
    assert (config.seed, config.batch.rollouts, config.batch.steps, config.eval.every) == (4, 4, 30, 3)
    assert load_config(files=[second, first]).batch.steps == 10


def test_a_section_of_another_type_starts_from_its_own_defaults(tmp_path: Path) -> None:
    tuned = yaml_file(tmp_path, "pruning: {type: mdap, tau: 0.5, group_by: adv_eps}\n")
    assert load_config(files=[tuned], overrides=["pruning.type=none"]).pruning == NoPruningConfig()
    assert load_config(files=[tuned], overrides=["pruning.type=advantage_only"]).pruning == AdvantageOnlyConfig()
    again = load_config(files=[tuned], overrides=["pruning.type=mdap", "pruning.ngram=2"])
    assert again.pruning == MDAPConfig(tau=0.5, group_by="adv_eps", ngram=2)


def test_a_field_without_a_type_refines_the_type_that_is_there(tmp_path: Path) -> None:
    assert load_config(files=[yaml_file(tmp_path, "pruning: {tau: 0.25}\n")]).pruning == MDAPConfig(tau=0.25)
    assert load_config(overrides=["engine.type=vllm", "engine.dtype=float32"]).engine.model_dump()["dtype"] == "float32"


def test_null_turns_an_optional_section_off() -> None:
    assert load_config(algorithm="dapo").algorithm.dynamic_sampling is not None
    assert (
        load_config(algorithm="dapo", overrides=["algorithm.dynamic_sampling=null"]).algorithm.dynamic_sampling is None
    )
    assert load_config(overrides=["pruning.fill=null"]).pruning == MDAPConfig(fill=None)


def test_an_algorithm_named_anywhere_brings_its_preset(tmp_path: Path) -> None:
    gspo = load_config(algorithm="gspo")
    assert load_config(overrides=["algorithm.name=gspo"]) == gspo
    assert load_config(files=[yaml_file(tmp_path, "algorithm: {name: gspo}\n")]) == gspo
    tuned = load_config(files=[yaml_file(tmp_path, "algorithm: {name: gspo, clip_high: 0.001}\n")]).algorithm
    assert tuned == gspo.algorithm.model_copy(update={"clip_high": 0.001})


def test_algo_refined_by_a_file_that_names_no_other(tmp_path: Path) -> None:
    warnings: list[str] = []
    tuned = yaml_file(tmp_path, "algorithm: {clip_high: 0.25}\n")
    config = load_config(files=[tuned], algorithm="dapo", warn=warnings.append)
    assert config.algorithm == load_config(algorithm="dapo").algorithm.model_copy(update={"clip_high": 0.25})
    assert warnings == []


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"algorithm": "dapo"}, "algorithm: {name: grpo, clip_high: 0.9}"),
        ({"preset": "release"}, "pruning: {type: mdap}"),
    ],
)
def test_the_command_line_beats_a_file_that_chooses_too(tmp_path: Path, chosen: dict[str, str], text: str) -> None:
    warnings: list[str] = []
    path = yaml_file(tmp_path, text)
    assert load_config(files=[path], warn=warnings.append, **chosen) == load_config(**chosen)  # type: ignore[arg-type]
    assert len(warnings) == 1 and "is left out" in warnings[0] and str(path) in warnings[0]


def test_flags_reach_the_plain_method() -> None:
    flags = {"pruning.type": ("--pruning none", "none"), "adaptive.type": ("--no-adaptive", "fixed")}
    config = load_config(preset="release", flags=flags)
    assert (config.pruning, config.adaptive) == (NoPruningConfig(), FixedRolloutsConfig())


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        load_config(
            algorithm="dapo", preset="release", overrides=["engine.type=vllm", "data.instruction='a: {b} \\\\n é'"]
        ),
        load_config(overrides=["optimizer.learning_rate=1e-6", "run_dir='2024-01-01'", "pruning.fill=null"]),
    ],
    ids=["default", "other types", "values that look like others"],
)
def test_yaml_and_back_is_equal(tmp_path: Path, config: RunConfig) -> None:
    path = yaml_file(tmp_path, to_yaml(config))
    assert read_resolved(path) == config == load_config(files=[path])


def test_a_resumed_run_has_its_own_configuration(tmp_path: Path) -> None:
    config = load_config(algorithm="dapo", overrides=["batch.rollouts=5", "pruning.tau=0.3"])
    path = yaml_file(tmp_path, to_yaml(config))
    assert load_resumed(path) == config
    longer = load_resumed(path, flags={"batch.steps": ("--steps 9", 9)}, overrides=["eval.every=2"])
    assert (longer.batch.steps, longer.eval.every, longer.pruning) == (9, 2, config.pruning)


@pytest.mark.parametrize("override", ["seed=2", "pruning.tau=0.5", "algorithm.name=gspo", "model.path=x", "run_dir=y"])
def test_a_resumed_run_keeps_what_makes_it_that_run(tmp_path: Path, override: str) -> None:
    path = yaml_file(tmp_path, to_yaml(RunConfig()))
    with pytest.raises(UsageError, match="cannot change in a run that goes on"):
        load_resumed(path, overrides=[override])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("prune.rato", "pruning.tau"),
        ("pruning.tua", "pruning.tau"),
        ("batch.rollout", "batch.rollouts"),
        ("algo.clip_high", "algorithm.clip_high"),
        ("learning_rate", "optimizer.learning_rate"),
        ("optimizer.lr", "optimizer.learning_rate"),
        ("modle.path", "model.path"),
        ("seeed", "seed"),
        ("num_generations", "batch.rollouts"),
    ],
)
def test_an_unknown_key_gets_the_nearest_one(wrong: str, right: str) -> None:
    assert f"unknown `{wrong}`; did you mean `{right}`?" in refusal(overrides=[f"{wrong}=1"])


def test_an_unknown_key_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "# first\nbatch:\n  steps: 3\n  rolouts: 4\n")
    assert refusal(files=[path]) == f"{path} line 4: unknown `batch.rolouts`; did you mean `batch.rollouts`?"


def test_a_field_of_another_type_says_where_it_belongs() -> None:
    message = refusal(overrides=["pruning.type=none", "pruning.tau=0.5"])
    assert message == "`pruning.tau` exists only where pruning.type is mdap; here it is none."


def test_one_rollout_is_refused_with_the_reason() -> None:
    message = refusal(overrides=["batch.rollouts=1"])
    assert "batch.rollouts is 1" in message and "at least 2" in message
    assert "an advantage compares rollouts of one question" in message and "batch.rollouts=8" in message


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("batch.rollouts=eight", "must be a whole number"),
        ("batch.rollouts=2.5", "must be a whole number"),
        ("batch.steps=true", "must not be true or false"),
        ("optimizer.learning_rate=-1", "must be at least 0"),
        ("optimizer.learning_rate=.nan", "must be a finite number"),
        ("optimizer.betas=[0.9]", "item 2 is missing"),
        ("pruning.tau=1.5", "must be at most 1"),
        ("pruning.type=mdpa", "must be one of 'none', 'advantage_only', 'mdap'"),
        ("pruning=none", "is a section"),
        ("algorithm.kl=null", "is a section"),
        ("algorithm.name=ppo", "must be 'grpo', 'dapo' or 'gspo'"),
        ("log.rollouts=perhaps", "must be true or false"),
        ("algorithm.dual_clip=1", "must be greater than 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule_and_an_example(override: str, rule: str) -> None:
    message = refusal(overrides=[override])
    name = override.partition("=")[0]
    assert f"{name} is " in message and f"(from `{override}`)" in message and rule in message
    assert f"For example: {name}" in message
    load_config(overrides=[message.partition("For example: ")[2].splitlines()[0]])


def test_every_wrong_value_is_reported_at_once() -> None:
    message = refusal(overrides=["batch.rollouts=1", "seeed=3", "pruning.tau=2"])
    assert all(part in message for part in ("batch.rollouts is 1", "`seeed`", "pruning.tau is 2"))


@pytest.mark.parametrize(
    "place",
    [place for place in field_places() if not place.path.endswith(".type")],
    ids=lambda place: f"{place.path}-{place.variant}",
)
def test_every_example_is_valid(place: FieldPlace) -> None:
    section = place.path.rpartition(".")[0]
    overrides = [f"{section}.type={place.variant}"] if place.variant else []
    if section == "algorithm.overlong_penalty":
        overrides += ["algorithm.overlong_penalty.max_length=2048", "algorithm.overlong_penalty.cache=512"]
    if place.variant == "replay":
        overrides += ["eval.at_start=false", "eval.at_end=false"]
    load_config(overrides=[*overrides, example(place.path, place.info)])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- 1\n", "holds a list"),
        ("seed: 1\nbatch: [1\n", "line 3"),
        ("seed: 1\nseed: 2\n", "line 2: `seed` is set a second time"),
        ("batch:\n  1: 2\n", "line 2: `1` is not a name"),
        ("seed: !!python/name:os.system\n", "line 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, part: str) -> None:
    path = yaml_file(tmp_path, text)
    message = refusal(files=[path])
    assert part in message and str(path) in message


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(files=[tmp_path / "none.yaml"])
    assert "cannot be read" in refusal(files=[tmp_path])
    (tmp_path / "latin.yaml").write_bytes(b"system: caf\xe9\n")
    assert "cannot be read" in refusal(files=[tmp_path / "latin.yaml"])


@pytest.mark.parametrize("text", ["rollouts", "=3", "1a=3", "a..b=1", "--x=1", "seed=", "seed=[1"])
def test_what_is_not_an_override_is_refused(text: str) -> None:
    assert text in refusal(overrides=[text])


def test_a_file_given_as_an_override_is_pointed_to_config(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "seed: 1\n")
    assert f"--config {path}" in refusal(overrides=[str(path)])


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["optimizer.mini_batch_rollouts=128"], "exactly one of the two"),
        (["optimizer.updates_per_batch=null"], "exactly one of the two"),
        (["optimizer.updates_per_batch=129"], "only 128 rollouts"),
        (["optimizer.betas=[0.9, 1.0]"], "item 2 must be at least 0 and less than 1"),
        (["adaptive.n_min=9"], "adaptive.n_min is 9"),
        (["algorithm.importance_correction={}", "sampling.top_p=0.9"], "renormalised"),
        (["algorithm.importance_correction={}", "sampling.top_k=5"], "renormalised"),
        (["algorithm.clip_high=2", "algorithm.dual_clip=2.5"], "algorithm.dual_clip is 2.5"),
        (["algorithm.overlong_penalty={max_length: 10, cache: 20}"], "algorithm.overlong_penalty.cache is 20"),
        (["engine.type=vllm", "engine.max_model_len=100"], "engine.max_model_len=2112"),
        (["engine={type: replay, run: r}"], "cannot answer new questions"),
        (
            ["engine={type: replay, run: r}", "eval.at_start=false", "eval.at_end=false", "run_dir=r"],
            "cannot replay itself",
        ),
        (["algorithm.name=dapo", "engine={type: replay, run: r}"], "cannot draw other questions"),
        (["data.min_pixels=100", "data.max_pixels=50"], "data.min_pixels is 100"),
        (["eval.temperature=0", "eval.rollouts=4"], "greedy"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(overrides: list[str], part: str) -> None:
    assert part in refusal(overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["pruning.type=none"], "adaptive.type is ars without pruning"),
        (["algorithm.ratio=sequence"], "will not clip"),
        (["algorithm.overlong_penalty={max_length: 2048, cache: 512}"], "no response is long enough"),
        (
            ["algorithm.overlong_penalty={max_length: 64, cache: 16}", "pruning.group_by=adv_round4"],
            "nearly nothing is pruned",
        ),
    ],
)
def test_what_hardly_is_as_meant_is_warned_about(overrides: list[str], part: str) -> None:
    warnings: list[str] = []
    load_config(overrides=overrides, warn=warnings.append)
    assert len(warnings) == 1 and part in warnings[0]


def test_the_defaults_and_presets_warn_about_nothing() -> None:
    warnings: list[str] = []
    for algorithm in (None, "grpo", "dapo", "gspo"):
        for preset in (None, "paper", "release"):
            load_config(algorithm=algorithm, preset=preset, warn=warnings.append)
    assert warnings == []


def test_ars_is_on_by_default() -> None:
    assert isinstance(RunConfig().adaptive, ARSConfig) and isinstance(RunConfig().pruning, MDAPConfig)


@pytest.mark.parametrize(
    "text", ["batch: &a\n  rollouts: *a\n", "batch: &a\n  <<: *a\n", "a: " + "[" * 3000, "a: \0"], ids=ascii
)
def test_a_file_that_refers_to_itself_or_is_damaged_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(str(path))):
        load_config(files=[path])


def numeric_fields() -> list[str]:
    """The dotted name of every number in the default configuration."""

    def leaves(values: dict[str, object], prefix: str = "") -> Iterator[str]:
        for name, value in values.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{prefix}{name}.")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield prefix + name

    return list(leaves(RunConfig().model_dump()))


@pytest.mark.parametrize("name", numeric_fields())
@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "-.inf", "99999999999999999999999999", "[1]", "x", "null"])
def test_a_number_is_taken_and_usable_or_refused_by_name(name: str, value: str) -> None:
    try:
        config = load_config(overrides=[f"{name}={value}"], warn=lambda text: None)
    except UsageError as error:
        assert name in str(error)
    else:
        number = reduce(getattr, name.split("."), config)
        assert number is None or isinstance(number, float) or abs(number) < 2**63


@pytest.mark.parametrize("name", ["data.instruction", "data.system"])
def test_a_prompt_text_with_a_picture_mark_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        load_config(overrides=[f"{name}='see <image>'"])
