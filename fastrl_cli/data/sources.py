"""Where a data set's rows are: files on this machine, or the hub. Both are read through `datasets`, which keeps rows
and encoded pictures in a memory-mapped file of its own cache, never beside the data."""

from __future__ import annotations

import csv
import errno
import glob
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from fastrl_cli.config.data import DataConfig
from fastrl_cli.errors import DataError, first_sentence

READERS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip
NOT_DATA = {"dataset_info.json", "dataset_infos.json", "state.json"}
SHARD = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}(-[0-9a-f]+)?")
CACHE_ERRORS = {errno.EACCES, errno.ENOSPC, errno.EROFS, errno.EPERM}
JSON_LINES_READ = 100
"""A line of JSON may leave out a column that others have."""
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


@dataclass(frozen=True)
class Table:
    """The rows of one split."""

    dataset: Any
    """A `datasets.Dataset`."""
    source: str
    """Data set and split, as a person would name them."""
    folder: Path | None
    """What relative paths of pictures start from."""


class Source(Protocol):
    """A data set: some splits, each readable."""

    where: str

    @property
    def splits(self) -> tuple[str, ...]: ...

    def read(self, split: str) -> Table: ...


def open_source(config: DataConfig) -> Source:
    """The data set at `config.path`. What exists on this machine is never looked for on the hub.

    Raises DataError when there is neither a file or folder nor anything that can be a hub id.
    """
    path = Path(config.path).expanduser()
    if path.is_dir():
        return LocalSource.of_folder(path, config.name)
    if path.exists():
        return LocalSource.of_file(path, config.train_split)
    if path.suffix in READERS or not HUB_ID.fullmatch(config.path):
        raise DataError(f"data.path: there is no file or folder {config.path!r}. Give the path of one, or a hub id.")
    return HubSource(config.path, config.name)


def canonical(split: str) -> str:
    """`validation` for `val`, `valid` and `dev`, and the like."""
    return SPLITS.get(split.lower(), split)


class LocalSource:
    """Files of one folder, or one file."""

    def __init__(self, where: str, names: Mapping[str, str], files: Mapping[str, tuple[Path, ...]]) -> None:
        self.where = where
        self._names = names
        self._files = files

    @classmethod
    def of_file(cls, path: Path, split: str) -> LocalSource:
        """A file is the whole of `split`, whatever its name."""
        if path.suffix.lower() not in READERS:
            raise DataError(f"{path}: {path.suffix or 'no'} suffix; a data file ends in {', '.join(READERS)}.")
        return cls(str(path), {split: path.stem}, {split: (path,)})

    @classmethod
    def of_folder(cls, folder: Path, name: str | None) -> LocalSource:
        """The files of `folder`, or of its sub-folder `name`, split by their names and folders."""
        base = folder / name if name else folder
        if not base.is_dir():
            there = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir())) or "none"
            raise DataError(f"data.name: {folder} has no folder {name!r}. Its folders: {there}.")
        files = group_by_split(base)
        if not files:
            raise DataError(_no_files(base))
        names = {split: f"{folder.resolve().name}/{split}" for split in files}
        return cls(str(base), names, files)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._files)

    def read(self, split: str) -> Table:
        """The rows of `split`. Raises DataError for files that are empty, damaged or do not belong together."""
        files = self._files[split]
        self._check_together(split, files)
        for path in files:
            if _has_no_rows(path):
                raise DataError(f"{path} is empty: it has no rows. Replace or remove it, or give another data.path.")
        builder = READERS[files[0].suffix.lower()]
        options: dict[str, Any] = {"parse_agent_traces": False} if builder == "json" else {}
        escaped = [glob.escape(str(path.resolve())) for path in files]
        dataset = _load(
            ", ".join(path.name for path in files[:3]) + f" in {files[0].parent}",
            lambda load: load(builder, data_files={"train": escaped}, split="train", **options),
            explain=lambda: next(filter(None, map(_bad_line, files)), None),
        )
        return Table(dataset, self._names[split], files[0].parent)

    def _check_together(self, split: str, files: tuple[Path, ...]) -> None:
        folders = sorted({str(path.parent) for path in files})
        if len(folders) > 1:
            raise DataError(
                f"{self.where}: the files of split {split!r} lie in several folders ({', '.join(folders)}). "
                "Choose one: data.path=FOLDER, or data.name=SUBFOLDER."
            )
        if len({READERS[path.suffix.lower()] for path in files}) > 1:
            names = ", ".join(path.name for path in files)
            raise DataError(
                f"{self.where}: split {split!r} has files of several kinds ({names}). Give one: data.path=FILE."
            )


class HubSource:
    """A data set of the hub, or of its cache on this machine."""

    def __init__(self, path: str, name: str | None) -> None:
        self.where = path
        self._name = name

    @cached_property
    def _datasets(self) -> Any:
        return _load(self.where, lambda load: load(self.where, self._name), HUB_REMEDY)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._datasets)

    def read(self, split: str) -> Table:
        return Table(self._datasets[split], f"{self.where}/{split}", None)


HUB_REMEDY = (
    "It is neither a file or folder here nor a data set that could be fetched from the hub. Check the name and the "
    "network (HF_HUB_OFFLINE=1 forbids fetching), or download its files and give their folder as data.path."
)


def column_names(path: Path) -> set[str] | None:
    """Columns of a data file by its head alone; None where only reading it whole would tell."""
    import pyarrow.parquet as pq

    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return set(pq.read_schema(path).names)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        if suffix == ".csv":
            return set(next(csv.reader(file), ()))
        if suffix in (".jsonl", ".ndjson"):
            try:
                return {name for line in islice(file, JSON_LINES_READ) if line.strip() for name in json.loads(line)}
            except (ValueError, TypeError):
                return None
    return None


def group_by_split(base: Path) -> dict[str, tuple[Path, ...]]:
    """The data files under `base` by split: as `train-00000-of-00002` says, else a word of the file's name, else the
    folder they lie in. Where no file tells its split, all are `train`; where some do, another is a split by itself."""
    paths = sorted(
        path
        for path in base.rglob("*")
        if path.suffix.lower() in READERS and path.name not in NOT_DATA and not _is_hidden(path.relative_to(base))
    )
    known = {path: _split_of(path.relative_to(base)) for path in paths}
    alone = not any(known.values())
    groups: dict[str, tuple[Path, ...]] = {}
    for path, split in known.items():
        split = split or ("train" if alone else path.stem)
        groups[split] = (*groups.get(split, ()), path)
    return groups


def _split_of(path: Path) -> str | None:
    if shard := SHARD.fullmatch(path.stem):
        return canonical(shard["split"])
    words = {SPLITS[word] for word in re.split(r"[\W_\d]+", path.stem.lower()) if word in SPLITS}
    if len(words) == 1:
        return words.pop()
    return next((SPLITS[part.lower()] for part in reversed(path.parts[:-1]) if part.lower() in SPLITS), None)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _no_files(folder: Path) -> str:
    kinds = ", ".join(READERS)
    if any(path.suffix.lower() in PICTURES for path in folder.rglob("*")):
        return (
            f"{folder} has pictures but no data file ({kinds}). Add a metadata.jsonl with a line for each question: "
            '{"file_name": "1.png", "question": "..", "answer": ".."}.'
        )
    return f"{folder} has no data file. It must hold files that end in {kinds}."


def _has_no_rows(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet" or path.stat().st_size == 0:
        with path.open("rb") as file:
            return not any(line.strip() for line in file)
    try:
        return bool(pq.read_metadata(path).num_rows == 0)
    except pa.ArrowInvalid:
        return False


def _bad_line(path: Path) -> str | None:
    """Where a file of JSON lines stops being one, in words."""
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        return None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                if line.strip() and not isinstance(json.loads(line), dict):
                    return f"line {number} of {path.name} is not a JSON object."
            except ValueError as error:
                return f"line {number} of {path.name} is not JSON: {first_sentence(error)}"
    return None


def _load(
    where: str,
    load: Callable[[Callable[..., Any]], Any],
    remedy: str = "Replace the file, or give another data.path.",
    explain: Callable[[], str | None] = lambda: None,
) -> Any:
    """What `load` makes of `datasets.load_dataset`, any failure of it as a DataError, in the words of `explain` where
    it has some."""
    import datasets

    datasets.disable_progress_bars()
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        return load(datasets.load_dataset)
    except Exception as error:
        cause = _root(error)
        if isinstance(cause, OSError) and cause.errno in CACHE_ERRORS:
            remedy = f"Rows are kept in {datasets.config.HF_DATASETS_CACHE}; HF_HOME=FOLDER chooses another place."
        raise DataError(f"{where} cannot be read: {explain() or first_sentence(cause)} {remedy}") from error
    finally:
        datasets.logging.set_verbosity(verbosity)


def _root(error: BaseException) -> BaseException:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error
