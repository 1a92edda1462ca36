"""Hugging Face datasets: a folder written by `save_to_disk` with its card, or one Parquet file. Needs the extra 'datasets'.

    id           string
    CONTENT      string, a column each; paths of images stay paths
    label        ClassLabel with the class names, null where there is none
    probability  float64;  origin, see `data.dataset.LabelOrigin`
    answers      list of {annotator, label};  votes, list of {source, label}
    predictions  list of {model, label, score};  probabilities, list of {label, probability}
    flags        list of string;  rank, int64

Where content has a column of the same name, all columns but the content get the prefix 'labelchef_'. What a table cannot
say (which columns are text or images, the meaning of classes) is in labelchef.json beside the folder's files; a Parquet file
has it in the metadata of its schema.

Datasets of others are read too: `id` or the row's number, a ClassLabel or a column `label`, and every other column as content.
A folder with several splits is one set; records of different splits have the split in the column 'split'.
"""

import contextlib
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelchef.base.errors import LabelchefError, MissingExtraError
from labelchef.base.files import whole_file
from labelchef.data.dataset import LabelOrigin
from labelchef.data.exchange.records import ALL, Format, Prediction, Record, RecordSet, as_object, as_text, refuse
from labelchef.data.files.columnar import check_dataset, check_parquet

if TYPE_CHECKING:
    import datasets

_WHAT = "Hugging Face dataset"
_PREFIX = "labelchef_"
_ABOUT = "labelchef.json"
_OURS = (
    "id",
    "label",
    "probability",
    "origin",
    "answers",
    "votes",
    "predictions",
    "probabilities",
    "flags",
    "rank",
)
_ASIDE = b"labelchef"


def read(path: Path, *, id_column: str | None = None, label_column: str | None = None) -> RecordSet:
    """The records of a folder saved to disk, or of a Parquet file."""
    library = require_datasets()
    if not path.exists():
        refuse(f"{_WHAT}: there is no {path}; check the path")
    try:
        table, about = _load(library, path)
        table.data.table.validate(full=True)  # lengths and offsets of a damaged file: what is read later relies on them
        prefix = about.get("prefix")
        if isinstance(prefix, str):
            return _read_ours(table, about, prefix, path)
        return _read_foreign(table, path, id_column, label_column)
    except LabelchefError:
        raise
    except Exception as error:  # whatever the libraries meet in a file that is not what its name says
        refuse(f"{_WHAT}: {path} cannot be read: {error}. Expected a folder of save_to_disk or a .parquet file")


def write(given: RecordSet, path: Path) -> Path:
    """A folder for `load_from_disk`, with README.md, the dataset card; or, if the name ends in .parquet, one file."""
    library = require_datasets()
    prefix = ""
    while any(f"{prefix}{name}" in given.columns for name in _OURS):
        prefix += _PREFIX
    table = library.Dataset.from_dict(_columns(given, prefix), features=_features(library, given, prefix))
    about = {
        "prefix": prefix,
        "texts": list(given.texts),
        "images": list(given.images),
        "columns": list(given.columns),
        "title": given.title,
        "meanings": dict(given.meanings),
    }
    if path.suffix.lower() == ".parquet":
        _write_parquet(table, about, path)
        return path
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        refuse(f"{path} exists already; expected a new or empty folder. Name another one")
    with _quietly(library):
        table.save_to_disk(str(path))
    with whole_file(path / _ABOUT) as stream:
        stream.write(json.dumps(about, ensure_ascii=False, indent=1).encode())
    with whole_file(path / "README.md") as stream:
        stream.write(card(given).encode())
    return path


def recognises(path: Path) -> bool:
    """Whether it is a folder that `save_to_disk` wrote, or a Parquet file with the library's metadata (class names)."""
    if path.is_dir():
        return (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file()
    if path.suffix.lower() != ".parquet":
        return False
    try:
        import pyarrow
        import pyarrow.parquet as parquet

        return bool({_ASIDE, b"huggingface"} & set(parquet.read_schema(path).metadata or ()))
    except (ImportError, OSError, pyarrow.ArrowException):
        return False


def card(given: RecordSet) -> str:
    """The dataset card: what is in it, what labels mean, how they were made. The licence is left to whoever publishes it."""
    n, labelled = len(given.records), sum(one.label is not None for one in given.records)
    size = next((name for bound, name in _SIZES if n < bound), "n>1M")
    task = "image-classification" if given.images and not given.texts else "text-classification"
    by_class = Counter(one.label for one in given.records if one.label is not None)
    by_origin = Counter(one.origin for one in given.records if one.label is not None)
    flagged = sum(bool(one.flags) for one in given.records)
    people = {who for one in given.records for who in one.answers}
    sources = {who for one in given.records for who in one.votes}
    lines = [
        "---",
        "license: unknown  # TODO: the licence under which you publish this data",
        "task_categories:",
        f"- {task}",
        "size_categories:",
        f"- {size}",
        "---",
        "",
        f"# {_cell(given.title or 'Labelled data')}",
        "",
        f"{n} items, {labelled} of them with a label. Content: {', '.join(map(_cell, given.columns)) or 'none'}.",
        "",
        "**Licence: to be filled in.** Whoever publishes this data names its licence here and in the first lines of this file.",
        "",
        "## Labels",
        "",
        "| label | meaning | items |",
        "|---|---|---:|",
        *(f"| {_cell(name)} | {_cell(given.meanings.get(name, ''))} | {by_class[name]} |" for name in given.classes),
        "",
        "## How the labels were made",
        "",
        "| origin | items | |",
        "|---|---:|---|",
        *(f"| {origin} | {by_origin[origin]} | {_ORIGINS[origin]} |" for origin in LabelOrigin),
        "",
        f"{len(people)} people answered; {len(sources)} sources voted. {flagged} items are flagged as doubtful (`flags`).",
        "`probability` is that of the label; `rank` is the order in which items are worth a look, smallest first.",
        "Names of people in `answers` may be personal data: replace them before you publish.",
        "",
    ]
    return "\n".join(lines)


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_ORIGINS = {
    LabelOrigin.PEOPLE: "decided by the answers of people",
    LabelOrigin.SOURCES: "what sources of weak labels say, weighted by how often they are right",
    LabelOrigin.MODEL: "predicted by the model trained on all labels",
    LabelOrigin.TRUSTED: "came with the data as known to be right",
}


def require_datasets() -> Any:
    """The library, or what to install."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(
            "Hugging Face datasets need the library datasets; pip install 'labelchef[datasets]'", code="datasets"
        ) from None
    return datasets


@contextlib.contextmanager
def _quietly(library: Any) -> Iterator[None]:
    """Without the library's progress bars."""
    shown = not library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bars()


def _cell(text: str) -> str:
    """Text as text in Markdown, on one line: sites that show cards keep HTML and links that are in it.

    >>> print(_cell("a|b <img src=x> [x](y)"))
    a\\|b &lt;img src=x&gt; \\[x\\](y)
    """
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`|\[\]])", r"\\\1", escaped)


def _columns(given: RecordSet, prefix: str) -> dict[str, list[Any]]:
    place = {name: k for k, name in enumerate(given.classes)}
    ours: dict[str, Callable[[Record], Any]] = {
        "id": lambda one: one.id,
        "label": lambda one: None if one.label is None else place[one.label],
        "probability": lambda one: one.probability,
        "origin": lambda one: None if one.origin is None else one.origin.value,
        "answers": lambda one: [{"annotator": who, "label": label} for who, label in one.answers.items()],
        "votes": lambda one: [{"source": who, "label": label} for who, label in one.votes.items()],
        "predictions": lambda one: [{"model": p.model, "label": p.label, "score": p.score} for p in one.predictions],
        "probabilities": lambda one: [{"label": name, "probability": p} for name, p in one.probabilities.items()],
        "flags": lambda one: list(one.flags),
        "rank": lambda one: one.rank,
    }
    content = {name: [one.content[name] for one in given.records] for name in given.columns}
    made = {f"{prefix}{name}": [take(one) for one in given.records] for name, take in ours.items()}
    first = f"{prefix}id"
    return {first: made.pop(first), **content, **made}


def _features(library: Any, given: RecordSet, prefix: str) -> Any:
    text, real = library.Value("string"), library.Value("float64")
    ours = {
        "id": text,
        "label": library.ClassLabel(names=list(given.classes)) if given.classes else library.Value("int64"),
        "probability": real,
        "origin": text,
        "answers": library.List({"annotator": text, "label": text}),
        "votes": library.List({"source": text, "label": text}),
        "predictions": library.List({"model": text, "label": text, "score": real}),
        "probabilities": library.List({"label": text, "probability": real}),
        "flags": library.List(text),
        "rank": library.Value("int64"),
    }
    made = {f"{prefix}{name}": feature for name, feature in ours.items()}
    first = f"{prefix}id"
    return library.Features({first: made.pop(first), **dict.fromkeys(given.columns, text), **made})


def _write_parquet(table: "datasets.Dataset", about: Mapping[str, Any], path: Path) -> None:
    import pyarrow.parquet as parquet

    rows = table.data.table.combine_chunks()
    metadata = {**(rows.schema.metadata or {}), _ASIDE: json.dumps(about, ensure_ascii=False).encode()}
    huggingface = {"info": {"features": table.features.to_dict()}}
    metadata[b"huggingface"] = json.dumps(huggingface).encode()
    with whole_file(path) as stream:
        parquet.write_table(rows.replace_schema_metadata(metadata), stream)


def _load(library: Any, path: Path) -> tuple[Any, dict[str, Any]]:
    """All rows of all splits, and what we know of them."""
    if path.is_file():
        import pyarrow.parquet as parquet

        check_parquet(path)
        found = parquet.read_table(path)
        aside = (found.schema.metadata or {}).get(_ASIDE)
        return library.Dataset(found), {} if aside is None else as_object(json.loads(aside), f"{path}, {_ASIDE!r}")
    for folder in [path, *(one for one in sorted(path.iterdir()) if one.is_dir())]:
        if (folder / "state.json").is_file():
            check_dataset(folder)
    table = library.load_from_disk(str(path))
    if isinstance(table, library.DatasetDict):
        table = _joined(library, table)
    beside = path / _ABOUT
    about = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    return table, as_object(about, str(beside))


def _joined(library: Any, splits: Any) -> Any:
    parts = []
    for name, part in splits.items():
        column = next(one for one in ("split", *(f"split_{k}" for k in range(99))) if one not in part.column_names)
        parts.append(part.add_column(column, [name] * len(part)))
    return library.concatenate_datasets(parts)


def _read_ours(table: Any, about: Mapping[str, Any], prefix: str, path: Path) -> RecordSet:
    wanted = {f"{prefix}{name}" for name in _OURS}
    if lost := sorted(wanted - set(table.column_names)):
        refuse(f"{path} has no column {lost[0]!r}; expected what labelchef wrote. Export it again")
    feature = table.features[f"{prefix}label"]
    classes = list(getattr(feature, "names", ()))
    columns = [str(name) for name in about.get("columns", [])]
    records = []
    for row in table:
        at = {name: row[f"{prefix}{name}"] for name in _OURS}
        predictions = (Prediction(one["model"], one["label"], one["score"]) for one in at["predictions"] or ())
        records.append(
            Record(
                id=at["id"],
                content={name: row[name] for name in columns},
                label=None if at["label"] is None else classes[at["label"]],
                probability=at["probability"],
                origin=None if at["origin"] is None else LabelOrigin(at["origin"]),
                answers={one["annotator"]: one["label"] for one in at["answers"] or ()},
                votes={one["source"]: one["label"] for one in at["votes"] or ()},
                predictions=tuple(predictions),
                probabilities={one["label"]: one["probability"] for one in at["probabilities"] or ()},
                flags=tuple(at["flags"] or ()),
                rank=at["rank"],
            )
        )
    return RecordSet.of(
        records,
        classes,
        texts=[str(name) for name in about.get("texts", [])],
        images=[str(name) for name in about.get("images", [])],
        title=str(about.get("title", "")),
        meanings=as_object(about.get("meanings", {}), f"{path}, meanings"),
    )


def _read_foreign(table: Any, path: Path, id_column: str | None, label_column: str | None) -> RecordSet:
    import datasets

    for name in (id_column, label_column):
        if name is not None and name not in table.column_names:
            refuse(f"{path} has the columns {table.column_names[:20]}; there is no {name!r}")
    id_name = id_column or ("id" if "id" in table.column_names else None)
    named = [name for name, feature in table.features.items() if isinstance(feature, datasets.ClassLabel)]
    label_name = label_column or ("label" if "label" in table.column_names else named[0] if len(named) == 1 else None)
    images = [name for name, feature in table.features.items() if isinstance(feature, datasets.Image)]
    for name in images:
        table = table.cast_column(name, datasets.Image(decode=False))
    classes = table.features[label_name].names if label_name in named else None
    notes = [] if id_name else ["items are named by their row number, from 0: there is no column id"]
    records, inside = [], 0
    for k, row in enumerate(table):
        content = {name: row[name] for name in table.column_names if name not in (id_name, label_name)}
        for name in images:
            inside += content[name] is not None and content[name].get("path") is None
            content[name] = None if content[name] is None else content[name].get("path")
        label = None if label_name is None else row[label_name]
        if classes is not None:
            label = None if label is None or not 0 <= label < len(classes) else classes[label]
        text = as_text(label)
        records.append(
            Record(
                id=(str(k) if id_name is None else as_text(row[id_name])) or "",
                content={name: _plain(value) for name, value in content.items()},
                label=text,
                origin=None if text is None else LabelOrigin.TRUSTED,
            )
        )
    if inside:
        notes.append(f"{inside} images are inside the data set and have no path: write them to files first")
    texts = [name for name in _text_columns(table) if name not in (id_name, label_name, *images)]
    return RecordSet.of(records, classes, texts=texts, images=images, notes=notes)


def _plain(value: object) -> str | None:
    return as_text(value if value is None or isinstance(value, str | int | float | list | dict) else str(value))


def _text_columns(table: Any) -> Sequence[str]:
    found = [
        name
        for name, feature in table.features.items()
        if getattr(feature, "dtype", None) in ("string", "large_string")
    ]
    return [name for name in found if name in ("text", "sentence", "content", "review", "document")] or found[:1]


HUGGING_FACE = Format(
    name="datasets",
    title="Hugging Face datasets",
    endings=("/", ".parquet"),
    read=read,
    write=write,
    recognises=recognises,
    carries=ALL,
    extra="datasets",
    people=True,
)
