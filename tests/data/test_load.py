from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fastrl_cli.config.data import BuiltinProblemsConfig, ColumnsConfig, DataConfig
from fastrl_cli.data.load import QuestionSets, load_questions, load_split
from fastrl_cli.errors import DataError
from tests.data.files import png, write_jsonl, write_parquet


def load(path: Path | str, **config: Any) -> QuestionSets:
    return load_questions(
        DataConfig(path=str(path), **config), BuiltinProblemsConfig(train_size=5, validation_size=3), 0
    )


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"How much is {k}?", "answer": str(k)} for k in range(start, start + count)]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_builtin_problems() -> None:
    sets = load("builtin", limit=4)
    assert (len(sets.train), len(sets.validation or ())) == (4, 3)
    assert {sample.source for sample in sets.train} == {"builtin/train"}
    assert any("4 of 4" in line for line in sets.report)
    with pytest.raises(DataError, match="no split 'test'"):
        load_split(DataConfig(), BuiltinProblemsConfig(), 0, "test")


@pytest.mark.usefixtures("no_network")
def test_folder_of_parquet_shards(tmp_path: Path) -> None:
    write_parquet(tmp_path / "geo" / "train-00000-of-00002.parquet", rows(3))
    write_parquet(tmp_path / "geo" / "train-00001-of-00002.parquet", rows(2, start=3))
    write_parquet(tmp_path / "geo" / "validation-00000-of-00001.parquet", rows(2))
    write_parquet(tmp_path / "geo" / "test-00000-of-00001.parquet", rows(1))
    sets = load(tmp_path / "geo")
    assert [sample.answer for sample in sets.train] == ["0", "1", "2", "3", "4"]
    assert [sample.id for sample in sets.train][-1] == "geo/train:4"
    assert sets.validation is not None and len(sets.validation) == 2
    questions, report = load_split(DataConfig(path=str(tmp_path / "geo")), BuiltinProblemsConfig(), 0, "test", limit=5)
    assert (len(questions), report.source) == (1, "geo/test")


@pytest.mark.parametrize(
    ("file", "split"),
    [
        ("data/train-00000-of-00001-0a1b2c.parquet", "train"),
        ("testmini-00000-of-00001.parquet", "testmini"),
        ("train/part1.parquet", "train"),
        ("val.parquet", "validation"),
        ("geo_dev_2.parquet", "validation"),
        ("anything.parquet", "train"),
    ],
)
def test_split_of_a_file(tmp_path: Path, file: str, split: str) -> None:
    write_parquet(tmp_path / file, rows(2))
    assert len(load(tmp_path, train_split=split).train) == 2


def test_a_split_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    write_parquet(tmp_path / "testmini-00000-of-00001.parquet", rows(1))
    write_parquet(tmp_path / "val.parquet", rows(1))
    with pytest.raises(DataError, match=r"no split 'train'.*testmini, validation.*data\.train_split="):
        load(tmp_path)


def test_no_validation_split_is_no_error(tmp_path: Path) -> None:
    assert load(write_jsonl(tmp_path / "train.jsonl", rows(2)).parent).validation is None


def test_one_split_in_several_folders_asks_for_a_choice(tmp_path: Path) -> None:
    write_parquet(tmp_path / "main" / "train-00000-of-00001.parquet", rows(2))
    write_parquet(tmp_path / "socratic" / "train-00000-of-00001.parquet", rows(3))
    with pytest.raises(DataError, match=r"several folders.*main.*socratic.*data\.name"):
        load(tmp_path)
    assert len(load(tmp_path, name="socratic").train) == 3
    with pytest.raises(DataError, match=r"no folder 'socrates'.*main, socratic"):
        load(tmp_path, name="socrates")


def test_one_split_in_several_formats_asks_for_a_choice(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00000-of-00001.parquet", rows(2))
    write_jsonl(tmp_path / "train.jsonl", rows(2))
    with pytest.raises(DataError, match=r"several kinds.*data\.path=FILE"):
        load(tmp_path)
    assert len(load(tmp_path / "train.jsonl").train) == 2


@pytest.mark.usefixtures("no_network")
def test_jsonl_with_pictures_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in "ab":
        (tmp_path / "pictures" / f"{name}.png").write_bytes(png(colour="red" if name == "a" else "blue"))
    path = write_jsonl(
        tmp_path / "mine.jsonl",
        [
            {"question": "one", "answer": 1, "images": ["pictures/a.png"], "level": 3},
            {"question": "two <image>", "answer": "2", "images": ["pictures/a.png", "pictures/b.png"], "level": 1},
            {"question": "none", "answer": "\\sqrt{3}", "images": None, "level": 2},
            {"question": "lost", "answer": "4", "images": ["pictures/c.png"], "level": 2},
        ],
    )
    one, two, none, lost = load(path).train
    assert [sample.question for sample in (one, two, none)] == ["<image>one", "<image>two <image>", "none"]
    assert [sample.answer for sample in (one, two, none)] == ["1", "2", "\\sqrt{3}"]
    assert [len(sample.images) for sample in (one, two, none, lost)] == [1, 2, 0, 1]
    assert two.images[1].data == png(colour="blue")
    assert lost.images[0].data == b"" and lost.images[0].path == "pictures/c.png"
    assert one.columns == {"question": "one", "answer": 1, "level": 3}
    assert one.id == "mine:0"


@pytest.mark.parametrize("file", ["metadata.jsonl", "metadata.csv"])
def test_image_folder(tmp_path: Path, file: str) -> None:
    for split, count in (("train", 2), ("validation", 1)):
        folder = tmp_path / split
        folder.mkdir()
        for k in range(count):
            (folder / f"{k}.png").write_bytes(png(colour="red"))
        if file.endswith("csv"):
            lines = [f"{k}.png,What is it?,{k}" for k in range(count)]
            (folder / file).write_text("\n".join(["file_name,question,answer", *lines]))
        else:
            write_jsonl(
                folder / file, [{"file_name": f"{k}.png", "question": "What is it?", "answer": k} for k in range(count)]
            )
    sets = load(tmp_path)
    assert sets.validation is not None
    assert [len(sets.train), len(sets.validation)] == [2, 1]
    assert sets.train[1].images[0].data == png(colour="red")
    assert sets.train[1].question == "<image>What is it?"


def test_pictures_without_metadata_say_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(png())
    with pytest.raises(DataError, match=r"metadata\.jsonl"):
        load(tmp_path)


def test_parquet_pictures_need_no_hub_types(tmp_path: Path) -> None:
    table = [{"question": "q", "answer": "1", "image": png(), "pic_id": 7}]
    path = write_parquet(tmp_path / "plain.parquet", table, hub_types=False)
    sample = load(path).train[0]
    assert sample.images[0].data == png()
    assert sample.columns == {"question": "q", "answer": "1", "pic_id": 7}


def test_an_odd_folder_name_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "my [data] *2? ü"
    write_jsonl(folder / "train.jsonl", rows(2))
    assert len(load(folder).train) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "has no rows|cannot be read"),
        (b'{"question": "q", "answer": "1"}\n{"question": ', "cannot be read"),
        (b"PAR1 not really", "cannot be read"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str, suffix: str) -> None:
    path = tmp_path / f"train{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load(path)
    assert f"train{suffix}" in str(error.value)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"question": pa.array([], pa.string()), "answer": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    with pytest.raises(DataError, match="no rows"):
        load(tmp_path / "a.parquet")


@pytest.mark.parametrize("path", ["/no/such/folder", "../nothing", "no.parquet", "a/b/c", "~/nothing-here"])
def test_a_missing_path_is_never_a_hub_id(path: str) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        load(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.xlsx").write_bytes(b"x")
    with pytest.raises(DataError, match=r"\.xlsx suffix.*\.parquet"):
        load(tmp_path / "data.xlsx")
    with pytest.raises(DataError, match="no data file"):
        load(tmp_path)


def test_a_hub_id_that_cannot_be_fetched_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"someone/nothing cannot be read.*data\.path") as error:
        load("someone/nothing")
    assert error.value.exit_code == 4


def test_golds_that_do_not_parse_are_left_out_and_reported_by_row(tmp_path: Path) -> None:
    answers = ["4", None, "", "\\frac{1}{", "145°"]
    path = write_jsonl(tmp_path / "train.jsonl", [{"question": "q", "answer": answer} for answer in answers])
    sets = load(path)
    assert [sample.row for sample in sets.train] == [0, 4]
    assert [sample.answer for sample in sets.train] == ["4", "145°"]
    assert [item.row for item in sets.report.train.left_out] == [1, 2, 3]
    shown = "\n".join(sets.report)
    assert "2 of 5 questions" in shown
    assert "left out row 3: answer '\\\\frac{1}{'" in shown


def test_rows_whose_question_or_answer_is_no_text_are_left_out_and_reported(tmp_path: Path) -> None:
    table = {
        "question": [["1+1?"], ["x"], ["2+2?"], None, ["3+3?"]],
        "answer": [["2"], ["4"], ["5"], ["6"], None],
    }
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="none of its 5 rows can be used"):
        load(tmp_path / "train.parquet")
    questions = [None, "", "  ", "0", "4?"]
    path = write_jsonl(tmp_path / "train.jsonl", [{"question": question, "answer": 4} for question in questions])
    sets = load(path)
    assert [sample.question for sample in sets.train] == ["0", "4?"]
    assert [(item.row, item.what) for item in sets.report.train.left_out] == [(k, "question") for k in range(3)]


def test_a_question_that_is_only_a_picture_stays(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "train.parquet", [{"problem": "", "answer": "4", "images": [png()]}])
    assert [sample.question for sample in load(path).train] == ["<image>"]


@pytest.mark.parametrize("line", ['{"question": "a", "answer": 1', "[1]", '{"question": }', "\x00"])
def test_a_damaged_line_of_json_is_named(tmp_path: Path, line: str) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", rows(3))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"line 4 of train\.jsonl"):
        load(path)


def test_a_long_list_of_bad_golds_is_cut_in_the_report(tmp_path: Path) -> None:
    table = [{"question": "q", "answer": "" if k else "1"} for k in range(31)]
    shown = list(load(write_jsonl(tmp_path / "train.jsonl", table)).report)
    assert sum("left out row" in line for line in shown) == 10
    assert "  left out 20 more rows" in shown


def test_no_gold_at_all_is_an_error(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", [{"question": "q", "answer": None, "label": "3"}] * 3)
    with pytest.raises(DataError, match=r"none of its 3 rows.*row 0.*data\.columns\.answer"):
        load(path)
    assert load(path, columns=ColumnsConfig(answer="label")).train[0].answer == "3"


def test_limits_count_rows(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", rows(9))
    write_jsonl(tmp_path / "validation.jsonl", rows(9))
    sets = load(tmp_path, limit=4, validation_limit=2)
    assert (len(sets.train), len(sets.validation or ())) == (4, 2)


def test_slices_and_negative_indices(tmp_path: Path) -> None:
    train = load(write_jsonl(tmp_path / "train.jsonl", rows(6))).train
    assert [sample.row for sample in train[1:4]] == [1, 2, 3]
    assert train[-1].row == 5
    with pytest.raises(IndexError):
        train[6]


def test_loading_decodes_no_picture_and_writes_nothing_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [
        {"images": [png(colour="red")], "problem": "<image>q", "answer": "1"},
        {"images": [b"x"], "problem": "q", "answer": "2"},
    ]
    write_parquet(tmp_path / "train-00000-of-00001.parquet", table)
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}

    def refuse(*args: object) -> None:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(Image, "open", refuse)
    assert [sample.images[0].data for sample in load(tmp_path).train] == [png(colour="red"), b"x"]
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before


def test_the_same_text_with_another_picture_is_another_question(tmp_path: Path) -> None:
    table = [{"image": png(colour=colour), "question": "Find x.", "answer": "1"} for colour in ("red", "blue")]
    one, two = load(write_parquet(tmp_path / "train.parquet", table)).train
    assert one.question == two.question
    assert one.id != two.id
    assert one.fingerprint != two.fingerprint


def test_the_same_content_elsewhere_has_the_same_fingerprints(tmp_path: Path) -> None:
    table = [{"image": png(), "question": f"Find {k}.", "answer": "1"} for k in range(3)]
    sets = [load(write_parquet(tmp_path / place / "train.parquet", table)) for place in ("here", "there")]
    here, there = ([sample.fingerprint for sample in questions.train] for questions in sets)
    assert here == there
    assert len(set(here)) == 3


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "train.jsonl", rows(2))
    assert len(load(path).train) == 2
    write_jsonl(path, rows(3))
    assert len(load(path).train) == 3


def test_tens_of_thousands_of_rows(tmp_path: Path) -> None:
    table = [{"image": png(), "question": f"Find {k}.", "answer": str(k % 90)} for k in range(20_000)]
    train = load(write_parquet(tmp_path / "train.parquet", table, hub_types=False)).train
    assert len(train) == 20_000
    assert (train[19_999].question, train[19_999].answer) == ("<image>Find 19999.", "19")
