"""The real samples: each data set loads, and each row gives a prompt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image, ImageFile

from fastrl_cli.config.data import BuiltinProblemsConfig, DataConfig
from fastrl_cli.data.load import QuestionSets, load_questions
from fastrl_cli.models.processing import Processing
from tests.tiny_models import build_tiny

SETS = {
    "geometry3k": ("train", 22, 5),
    "geometry3k_large": ("train", 1745, 232),
    "geoqa_r1v": ("train", 22, None),
    "mathvista": ("testmini", 26, None),
    "mathverse": ("testmini", 32, None),
    "mathvision": ("testmini", 22, None),
    "wemath": ("testmini", 30, None),
    "gsm8k": ("train", 24, None),
}


@pytest.fixture(scope="module")
def processing(tmp_path_factory: pytest.TempPathFactory) -> Processing:
    limits = DataConfig(min_pixels=262_144, max_pixels=4_194_304, max_prompt_tokens=4096)
    return Processing.load(build_tiny("qwen2_5_vl", tmp_path_factory.mktemp("tiny")), limits)


def load(shared_data: Path, name: str) -> QuestionSets:
    split = SETS[name][0]
    return load_questions(DataConfig(path=str(shared_data / name), train_split=split), BuiltinProblemsConfig(), 0)


@pytest.mark.parametrize("name", SETS)
def test_every_row_loads(shared_data: Path, name: str) -> None:
    _, train, validation = SETS[name]
    sets = load(shared_data, name)
    assert len(sets.train) == train
    assert (len(sets.validation) if sets.validation is not None else None) == validation
    assert sets.report.train.preset == name.removesuffix("_large")
    assert len({sample.id for sample in sets.train}) == train
    assert not any(re.search("<answer>|####", sample.answer) for sample in sets.train)
    assert all(sample.answer for sample in sets.train)


@pytest.mark.parametrize("name", [name for name in SETS if name != "geometry3k_large"])
def test_every_row_gives_a_prompt_whose_placeholders_equal_its_features(
    shared_data: Path, name: str, processing: Processing
) -> None:
    for sample in load(shared_data, name).train:
        prompt = processing.prompt(sample)
        features = processing.features(sample)
        tokens = 0 if features is None else int(features.grid_thw.prod(dim=1).sum()) // 4
        assert int((prompt.token_ids == processing.processor.image_token_id).sum()) == tokens
        assert (tokens > 0) == bool(sample.images)


def test_prompts_of_the_large_set_decode_no_picture(
    shared_data: Path, processing: Processing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    monkeypatch.setattr(Image.Image, "resize", refuse)
    train = load(shared_data, "geometry3k_large").train
    lengths = [len(processing.prompt(sample).token_ids) for sample in train]
    assert len(lengths) == 1745
    assert min(lengths) > 262_144 / 28**2


def test_geoqa_answers_are_bare(shared_data: Path) -> None:
    answers = [sample.answer for sample in load(shared_data, "geoqa_r1v").train]
    assert answers[0] == "55°"
    assert not any(set("<>") & set(answer) for answer in answers)


def test_mathverse_text_only_rows_have_no_picture(shared_data: Path) -> None:
    samples = load(shared_data, "mathverse").train
    without = [sample for sample in samples if not sample.images]
    assert {sample.columns["problem_version"] for sample in without} == {"Text Only"}
    assert len(without) == 5
