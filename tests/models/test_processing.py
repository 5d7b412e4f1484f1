from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastrl_cli.config.data import DataConfig
from fastrl_cli.data.problems import BadImageError, BadQuestionError, OverlongPromptError
from fastrl_cli.data.sample import EncodedImage, Sample
from fastrl_cli.errors import DataError, UsageError
from fastrl_cli.models import processing as module
from fastrl_cli.models.load import model_path
from fastrl_cli.models.processing import Processing
from tests.tiny_models import KINDS, SPECIAL_TOKENS, TOKEN_ID, build_tiny

VISION = ("qwen2_5_vl", "qwen3_vl", "builtin")
PAD = "<|image_pad|>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: build_tiny(kind, root / kind) for kind in KINDS} | {"builtin": Path(model_path("builtin"))}


@pytest.fixture
def qwen(folders: dict[str, Path]) -> Processing:
    return Processing.load(folders["qwen2_5_vl"], DataConfig())


def picture(width: int, height: int, seed: int = 0) -> EncodedImage:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    return EncodedImage(buffer.getvalue(), f"{width}x{height}.png")


def sample(question: str = "Find x.", *sizes: tuple[int, int], seed: int = 0) -> Sample:
    images = tuple(picture(*size, seed=seed + k) for k, size in enumerate(sizes))
    return Sample(id="set/train:7", source="set/train", row=7, question=question, answer="3", images=images)


CASES = [
    sample("How much is 2 + 3?"),
    sample("Find x.", (100, 60)),
    sample("See <image> and find x, ∠A = 30°.", (300, 90)),
    sample("<image>A <image> and B<image>", (56, 56), (200, 31), (30, 400)),
    sample("Two pictures, one mark: <image>", (90, 90), (120, 60)),
]


@pytest.mark.parametrize("kind", VISION)
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_tokens_and_pixels_equal_those_of_the_models_processor(
    folders: dict[str, Path], kind: str, case: Sample
) -> None:
    processing = Processing.load(folders[kind], DataConfig())
    prompt = processing.prompt(case)
    images = processing.images(case)
    theirs = processing.processor(text=[prompt.text], images=images or None, return_tensors="pt")
    assert prompt.token_ids.dtype == np.int32
    assert prompt.token_ids.tolist() == theirs["input_ids"][0].tolist()
    assert prompt.text.count(PAD) == len(case.images)
    features = processing.features(case)
    if features is None:
        assert not case.images
        return
    assert features.grid_thw.tolist() == theirs["image_grid_thw"].tolist()
    assert np.array_equal(features.pixel_values.numpy(), theirs["pixel_values"].numpy())
    assert int(features.grid_thw.prod(dim=1).sum()) == len(features.pixel_values)


@pytest.mark.parametrize("kind", VISION)
def test_the_grid_equals_that_of_the_picture_as_it_came(folders: dict[str, Path], kind: str) -> None:
    processing = Processing.load(folders[kind], DataConfig())
    for size in [(100, 60), (333, 97), (30, 31), (1000, 700), (5, 12)]:
        case = sample("Find x.", size)
        original = Image.open(io.BytesIO(case.images[0].data))
        theirs = processing.processor.image_processor(images=[original], return_tensors="pt")
        features = processing.features(case)
        assert features is not None
        assert features.grid_thw.tolist() == theirs["image_grid_thw"].tolist()


def test_pictures_stand_where_their_marks_are(qwen: Processing) -> None:
    text = qwen.prompt(sample("A <image> B <image>", (60, 60), (60, 60))).text
    holder = f"<|vision_start|>{PAD}<|vision_end|>"
    assert f"user\nA {holder} B {holder}\nFirst think" in text
    assert text.endswith("<|im_start|>assistant\n")
    assert f"user\n{holder}{holder}C" in qwen.prompt(sample("C", (60, 60), (60, 60))).text


def test_instruction_and_system_prompt(folders: dict[str, Path]) -> None:
    for kind in KINDS:
        plain = Processing.load(folders[kind], DataConfig(instruction="", system="You solve geometry."))
        text = plain.prompt(sample("How much?")).text
        assert text == (
            "<|im_start|>system\nYou solve geometry.<|im_end|>\n<|im_start|>user\nHow much?<|im_end|>\n"
            "<|im_start|>assistant\n"
        )


def test_limits_of_pixels_decide_the_number_of_tokens(folders: dict[str, Path]) -> None:
    case = sample("Find x.", (300, 300))
    small = Processing.load(folders["qwen2_5_vl"], DataConfig(max_pixels=28 * 28 * 4))
    large = Processing.load(folders["qwen2_5_vl"], DataConfig(min_pixels=28 * 28 * 400, max_pixels=28 * 28 * 500))
    counts = [int((p.prompt(case).token_ids == TOKEN_ID[PAD]).sum()) for p in (small, large)]
    assert counts[0] == 4
    assert 400 <= counts[1] <= 500
    assert [p.images(case)[0].size for p in (small, large)] == [(56, 56), (560, 560)]


def test_a_minimum_above_the_maximum_is_a_usage_error(folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match=r"data\.min_pixels is 4000, more than data.max_pixels, 3000"):
        Processing.load(folders["qwen2_5_vl"], DataConfig(min_pixels=4000, max_pixels=3000))


def test_a_long_prompt_is_refused_and_the_hint_cures_it(folders: dict[str, Path]) -> None:
    case = sample("Find x.", (400, 400), (400, 200))
    limited = DataConfig(max_prompt_tokens=250)
    with pytest.raises(
        OverlongPromptError, match=r"set/train:7: its prompt has \d+ tokens, over the limit of 250"
    ) as error:
        Processing.load(folders["qwen2_5_vl"], limited).prompt(case)
    assert error.value.exit_code == 4 and error.value.sample_id == "set/train:7"
    pixels = int(str(error.value).rpartition("data.max_pixels=")[2].rstrip("."))
    cured = Processing.load(folders["qwen2_5_vl"], limited.model_copy(update={"max_pixels": pixels}))
    assert len(cured.prompt(case).token_ids) <= 250


def test_the_limit_itself_fits_and_text_alone_gets_no_hint_of_pixels(
    folders: dict[str, Path], qwen: Processing
) -> None:
    case = sample("Find x.")
    tokens = len(qwen.prompt(case).token_ids)
    assert (
        len(Processing.load(folders["qwen2_5_vl"], DataConfig(max_prompt_tokens=tokens)).prompt(case).token_ids)
        == tokens
    )
    with pytest.raises(OverlongPromptError, match="max_prompt_tokens") as error:
        Processing.load(folders["qwen2_5_vl"], DataConfig(max_prompt_tokens=tokens - 1)).prompt(case)
    assert "max_pixels" not in str(error.value)


def test_more_marks_than_pictures_are_refused(qwen: Processing) -> None:
    with pytest.raises(BadQuestionError, match=r"set/train:7: .*2 <image> marks, but there are 1 pictures"):
        qwen.prompt(sample("<image> and <image>", (60, 60)))
    with pytest.raises(BadQuestionError, match="1 <image> marks, but there are 0 pictures"):
        qwen.prompt(sample("<image> is lost"))


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_special_tokens_typed_in_a_question_are_refused(qwen: Processing, token: str) -> None:
    with pytest.raises(BadQuestionError, match="set/train:7") as error:
        qwen.prompt(sample(f"What does {token} mean?"))
    assert token in str(error.value)
    qwen.prompt(sample(f"What does {token[1:]} mean?"))


def test_pictures_for_a_model_of_text_name_the_sample(folders: dict[str, Path]) -> None:
    llama = Processing.load(folders["llama"], DataConfig())
    with pytest.raises(DataError, match=r"sample set/train:7 has 1 picture.*--model"):
        llama.prompt(sample("Find x.", (60, 60)))
    assert llama.features(sample()) is None
    assert llama.images(sample()) == []
    assert not llama.is_multimodal
    assert llama.prompt(sample()).token_ids.tolist() == llama.tokenizer(llama.prompt(sample()).text)["input_ids"]


def test_a_bad_picture_names_the_sample(qwen: Processing) -> None:
    for data in (b"", b"no picture"):
        broken = Sample("set/train:9", "set/train", 9, "<image>?", "1", (EncodedImage(data, "gone.png"),))
        for use in (qwen.prompt, qwen.images, qwen.features):
            with pytest.raises(BadImageError, match=r"set/train:9: the picture 'gone\.png'"):
                use(broken)


@pytest.mark.parametrize("kind", KINDS)
def test_vision_tokens_are_suppressed_and_end_tokens_stop(folders: dict[str, Path], kind: str) -> None:
    processing = Processing.load(folders[kind], DataConfig())
    vision = {TOKEN_ID[token] for token in SPECIAL_TOKENS if "vision" in token or "_pad" in token}
    assert set(processing.suppressed_tokens) == (set() if kind == "llama" else vision)
    assert processing.stop_tokens == (TOKEN_ID["<|endoftext|>"], TOKEN_ID["<|im_end|>"])
    assert processing.pad_token_id == TOKEN_ID["<|endoftext|>"]


def test_end_tokens_without_a_generation_config(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["llama"], tmp_path / "llama")
    (folder / "generation_config.json").unlink()
    assert Processing.load(folder, DataConfig()).stop_tokens == (TOKEN_ID["<|im_end|>"],)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda text: "<" not in text))
def test_decoding_gives_the_text_without_special_tokens(qwen: Processing, text: str) -> None:
    ids = [*qwen.tokenizer(text)["input_ids"], TOKEN_ID["<|im_end|>"], TOKEN_ID["<|endoftext|>"]]
    assert qwen.decode(ids) == text
    assert qwen.decode(np.asarray(ids, dtype=np.int32)) == text


def test_rollouts_share_one_decoded_picture(qwen: Processing, monkeypatch: pytest.MonkeyPatch) -> None:
    case, again = sample("Find x.", (60, 60), (90, 60)), sample("Find x.", (60, 60), (90, 60))
    opened = []
    original = Image.open
    monkeypatch.setattr(Image, "open", lambda *args: opened.append(args) or original(*args))
    first, second = qwen.images(case), qwen.images(again)
    assert all(a is b for a, b in zip(first, second, strict=True))
    features = qwen.features(case)
    assert qwen.features(again) is features
    assert len(opened) == 2 * len(case.images), "once for the header and once for the pixels of each picture"


def test_the_same_text_with_another_picture_has_other_features(qwen: Processing) -> None:
    one, two = (qwen.features(sample("Find x.", (60, 60), seed=seed)) for seed in (1, 2))
    assert one is not None and two is not None
    assert not np.array_equal(one.pixel_values.numpy(), two.pixel_values.numpy())


def test_decoded_pictures_are_bounded(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 200_000)
    processing = Processing.load(folders["qwen2_5_vl"], DataConfig())
    for seed in range(40):
        processing.features(sample("Find x.", (84, 84), seed=seed))
    assert 0 < processing._images.bytes <= 200_000
    assert 0 < processing._features.bytes <= 200_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_processing_is_the_same(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    limits = DataConfig(min_pixels=28 * 28 * 30, max_pixels=28 * 28 * 60)
    processing = Processing.load(folders[kind], limits)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(folders[kind] / name, tmp_path / name)
    processing.save(tmp_path)
    again = Processing.load(tmp_path, DataConfig())
    case = sample("Find x.") if kind == "llama" else sample("Find x.", (300, 200))
    assert again.prompt(case).text == processing.prompt(case).text
    assert again.prompt(case).token_ids.tolist() == processing.prompt(case).token_ids.tolist()
    assert again.size_rule == processing.size_rule


def without_template(folder: Path) -> Path:
    for name in ("chat_template.jinja", "chat_template.json"):
        (folder / name).unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("chat_template", None)
    path.write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_chat_template_gets_plain_text(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    folder = without_template(shutil.copytree(folders[kind], tmp_path / kind))
    processing = Processing.load(folder, DataConfig(system="Be exact.", instruction="Answer."))
    assert processing.prompt(sample("How much?")).text == "Be exact.\n\nHow much?\nAnswer.\n"
    if kind != "llama":
        prompt = processing.prompt(sample("See <image>", (56, 56)))
        assert f"See <|vision_start|>{PAD}<|vision_end|>\nAnswer." in prompt.text
        assert int((prompt.token_ids == TOKEN_ID[PAD]).sum()) == 4


@pytest.mark.parametrize(("ending", "prefill"), [("", ""), ("<think>\n", "<think>"), ("a<thinking>", "<thinking>")])
def test_the_tag_that_a_chat_template_opens_is_known(
    folders: dict[str, Path], tmp_path: Path, ending: str, prefill: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["llama"], folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}|" + ending)
    assert Processing.load(folder, DataConfig(instruction="")).prefill == prefill


def test_a_start_token_comes_once(folders: dict[str, Path], tmp_path: Path) -> None:
    from tokenizers import processors
    from transformers import AutoTokenizer

    folder = without_template(shutil.copytree(folders["llama"], tmp_path / "llama"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    start = TOKEN_ID["<|im_start|>"]
    tokenizer.bos_token = "<|im_start|>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
    )
    tokenizer.save_pretrained(folder)
    ids = Processing.load(folder, DataConfig()).prompt(sample("How much?")).token_ids.tolist()
    assert ids[0] == start
    assert ids.count(start) == 1
    (folder / "chat_template.jinja").write_text("<|im_start|>{{ messages[0]['content'] }}")
    ids = Processing.load(folder, DataConfig()).prompt(sample("How much?")).token_ids.tolist()
    assert ids.count(start) == 1


def test_a_template_without_pictures_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = without_template(shutil.copytree(folders["qwen2_5_vl"], tmp_path / "qwen"))
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'][-1]['text'] }}")
    with pytest.raises(DataError, match=r"set/train:7.*puts 0 image placeholders for 1 pictures"):
        Processing.load(folder, DataConfig()).prompt(sample("Find x.", (60, 60)))


@pytest.mark.parametrize(
    ("kind", "lost", "message"),
    [
        ("llama", ["tokenizer.json", "tokenizer_config.json"], "cannot be loaded"),
        ("qwen2_5_vl", ["config.json"], "cannot be loaded"),
        ("qwen2_5_vl", ["processor_config.json", "preprocessor_config.json"], "preprocessor_config.json"),
    ],
)
def test_a_folder_that_lacks_files_says_which(
    folders: dict[str, Path], tmp_path: Path, kind: str, lost: list[str], message: str
) -> None:
    folder = shutil.copytree(folders[kind], tmp_path / kind)
    for name in lost:
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match=message) as error:
        Processing.load(folder, DataConfig())
    assert str(folder) in str(error.value)


def test_another_kind_of_image_processor_is_refused(qwen: Processing) -> None:
    unlike = SimpleNamespace(image_processor=SimpleNamespace(size={"height": 224, "width": 224}), chat_template=None)
    with pytest.raises(DataError, match=r"SimpleNamespace is not supported.*Qwen2\.5-VL"):
        Processing(qwen.tokenizer, unlike, DataConfig(), [1])
