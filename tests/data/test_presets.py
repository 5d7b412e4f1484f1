from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.config.data import ColumnsConfig
from fastrl_cli.data.marks import IMAGE_MARK, split_at_marks, with_marks
from fastrl_cli.data.presets import Preset, bare_answer, find_preset
from fastrl_cli.errors import DataError

AUTO = ColumnsConfig()


def found(
    columns: list[str],
    config: ColumnsConfig = AUTO,
    first: dict[str, object] | None = None,
    pictures: tuple[str, ...] = (),
) -> Preset:
    return find_preset(columns, config, first or dict.fromkeys(columns), pictures, "set/train")


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("<answer> 145° </answer>", "145°"),
        ("<answer>2\n</answer>\n", "2"),
        ("She sells 9 eggs.\n#### 18", "18"),
        ("So it costs $1,250.\n#### 1,250", "1250"),
        ("#### -3.5", "-3.5"),
        ("#### (1, 2)", "(1, 2)"),
        ("We get \\boxed{3} first, then $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
        ("  2 \\sqrt { 221 } ", "2 \\sqrt { 221 }"),
        ("1,250", "1,250"),
        ("", ""),
    ],
)
def test_bare_answer(text: str, bare: str) -> None:
    assert bare_answer(text) == bare


HUB = {
    "geometry3k": ("images problem answer", "problem answer images"),
    "geoqa_r1v": ("image problem solution", "problem solution image"),
    "mathvista": (
        "pid question image decoded_image choices unit precision answer question_type answer_type metadata query",
        "question answer decoded_image",
    ),
    "mathverse": (
        "sample_index problem_index problem_version question image answer question_type metadata query_wo query_cot",
        "question answer image",
    ),
    "mathvision": (
        "id question options image decoded_image answer solution level subject",
        "question answer decoded_image",
    ),
    "wemath": ("ID split question option answer image_path key", "question answer image_path"),
    "math": ("problem solution answer subject level unique_id", "problem answer"),
    "generic": ("question answer", "question answer"),
}


@pytest.mark.parametrize("name", HUB)
def test_each_schema_finds_its_preset(name: str) -> None:
    columns, expected = (text.split() for text in HUB[name])
    preset = found(columns)
    assert preset.name == name
    assert [column for column in (preset.question, preset.answer, preset.images) if column] == expected


def test_mathverse_needs_no_optional_column() -> None:
    assert found(["problem_version", "question", "image", "answer"]).name == "mathverse"


def test_math_without_an_answer_column_takes_the_solution() -> None:
    preset = found(["problem", "level", "type", "solution"])
    assert (preset.name, preset.answer, preset.images) == ("math", "solution", None)


def test_gsm8k_is_told_from_other_questions_by_its_hashes() -> None:
    assert found(["question", "answer"], first={"question": "q", "answer": "so\n#### 3"}).name == "gsm8k"
    assert found(["question", "answer"], first={"question": "q", "answer": "3"}).name == "generic"


@pytest.mark.parametrize("column", ["image", "images", "image_path", "file_name", "file_names"])
def test_generic_pictures_by_name(column: str) -> None:
    assert found(["question", "answer", column]).images == column


def test_a_column_of_pictures_is_found_by_its_type_before_a_name() -> None:
    assert found(["question", "answer", "diagram"], pictures=("diagram",)).images == "diagram"
    assert found(["question", "answer", "image", "shown"], pictures=("shown",)).images == "shown"
    assert found(["question", "answer", "image", "shown"], pictures=("shown", "image")).images == "image"


def test_several_columns_of_pictures_ask_for_a_choice() -> None:
    with pytest.raises(DataError, match=r"left, right.*data\.columns\.images="):
        found(["question", "answer", "left", "right"], pictures=("left", "right"))
    chosen = found(["question", "answer", "left", "right"], ColumnsConfig(images="right"), pictures=("left", "right"))
    assert chosen.images == "right"


def test_overrides_win_over_the_preset() -> None:
    preset = found(["images", "problem", "answer", "short"], ColumnsConfig(answer="short"))
    assert (preset.name, preset.question, preset.answer, preset.images) == ("geometry3k", "problem", "short", "images")


def test_overrides_alone_are_enough() -> None:
    preset = found(["q", "a"], ColumnsConfig(question="q", answer="a"))
    assert (preset.question, preset.answer, preset.images) == ("q", "a", None)


def test_a_wrong_override_names_the_columns_and_a_near_one() -> None:
    with pytest.raises(DataError) as error:
        found(["problem", "answer"], ColumnsConfig(answer="anwser"))
    assert "data.columns.answer" in str(error.value)
    assert "'problem', 'answer'" in str(error.value)
    assert "Did you mean 'answer'?" in str(error.value)


@pytest.mark.parametrize(("columns", "missing"), [(["text", "answer"], "question"), (["question", "label"], "answer")])
def test_a_missing_column_names_field_and_remedy(columns: list[str], missing: str) -> None:
    with pytest.raises(DataError, match=f"hold the {missing}.*data.columns.{missing}=NAME"):
        found(columns)


def test_mathvista_shows_unit_and_choices() -> None:
    preset = found(HUB["mathvista"][0].split())
    text = preset.compose({"choices": ["135°", "140°"], "unit": "degree"}, "Find x.")
    assert text == "Find x. (Unit: degree)\nChoices:\n(A) 135°\n(B) 140°"
    assert preset.compose({"choices": None, "unit": None}, "Find x.") == "Find x."


def test_mathvision_puts_its_one_picture_at_the_first_mark() -> None:
    preset = found(HUB["mathvision"][0].split())
    assert preset.compose({"options": ["A", "B"]}, "See <image1> and <image2>.") == "See <image> and <image2>."
    assert preset.compose({"options": ["3", "4"]}, "<image1>?") == "<image>?\nChoices:\n(A) 3\n(B) 4"


def test_wemath_shows_its_options_a_line_each() -> None:
    preset = found(HUB["wemath"][0].split())
    assert preset.compose({"option": "A. 1;B. 2; C. 3"}, "q") == "q\nA. 1\nB. 2\nC. 3"


@given(st.text(max_size=20), st.integers(0, 4), st.integers(0, 4))
def test_every_picture_has_a_mark(text: str, marks: int, pictures: int) -> None:
    text = text.replace("<", "")
    question = with_marks(IMAGE_MARK * marks + text, pictures)
    assert question.count(IMAGE_MARK) == max(marks, pictures)
    assert with_marks(question, pictures) == question
    assert "".join(split_at_marks(question)) == text
