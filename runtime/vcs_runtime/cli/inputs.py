"""Command input, from files of any format or from one pair's text files."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, permutations
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.notices import assumptions, markup_notice
from vcs_runtime.cli.options import PATH, SectionedCommand, combined, max_read_mb, together
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.pairs import (
    DUPLICATES,
    REFUSE,
    InputPair,
    Keys,
    PairFile,
    PairSource,
    count_pairs,
)
from vcs_runtime.jobs.readers.input_file import FORMATS, SUFFIXES, InputFile, files_of, texts_in
from vcs_runtime.jobs.readers.json_files import NestedRows
from vcs_runtime.jobs.readers.rows import RowError
from vcs_runtime.jobs.resumable import hash_texts
from vcs_runtime.jobs.score_files import is_scores, read_scores
from vcs_runtime.jobs.texts import MatchedFiles, Texts, joined
from vcs_runtime.text.cleaning import plain_line_ends
from vcs_runtime.text.times import TimedText, timed_segments
from vcs_runtime.util.reading import not_utf8, read_whole, suffix_of

# Suffixes of files that hold more than one plain text.
_DATA = frozenset(SUFFIXES) - {".txt"}
# Suffixes of files that hold one text, unless --format says otherwise; .txt may hold several.
_TEXTS = (".md", ".srt", ".vtt")
# Rows and lines that are read to find the columns by which a file was scored.
_LOOKED_AT = 100


@dataclass(frozen=True)
class InputOptions:
    """How the input of a command is read: the values of its options."""

    reference_files: tuple[Path, ...]
    prediction_files: tuple[Path, ...]
    format: str | None
    reference_key: tuple[str, ...]
    generated_key: tuple[str, ...]
    id_key: str | None
    duplicates: str
    rows: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.generated_key)) < len(self.generated_key):
            raise click.UsageError("--generated-key: a column is named twice")
        if self.has_several_systems and self.prediction_files:
            raise click.UsageError("--generated-key can be repeated only with PAIRS")
        self.keys  # noqa: B018  # raises ValueError for a column that cannot be repeated

    @property
    def has_several_systems(self) -> bool:
        """Whether the generated texts are in several columns, one of each system."""
        return len(self.generated_key) > 1

    @property
    def keys(self) -> Keys:
        """The keys of a row; for several systems without the key of the generated text."""
        generated = self.generated_key[0] if len(self.generated_key) == 1 else None
        return Keys(self.reference_key, generated, self.id_key, self.keep)


#: Options of the input; the command receives `source`, an `InputOptions`.
input_options = combined(
    "source",
    InputOptions,
    together(
        click.option(
            "--references",
            "reference_files",
            type=PATH,
            multiple=True,
            metavar="FILE",
            help="References by id, instead of PAIRS: files, or a folder of ID.txt files.",
        ),
        click.option(
            "--predictions",
            "prediction_files",
            type=PATH,
            multiple=True,
            metavar="FILE",
            help=(
                "Generated texts by id: one file per system, a folder of such files, or a "
                "folder of ID.txt files; may be repeated."
            ),
        ),
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            metavar="NAME",
            help=f"Format of the input: {', '.join(FORMATS)}. [default: by the file's suffix]",
        ),
        click.option(
            "--reference-key",
            multiple=True,
            metavar="NAME",
            help="Column of the reference; repeat for several references. [default: reference]",
        ),
        click.option(
            "--generated-key",
            multiple=True,
            metavar="NAME",
            help="Column of the generated text; repeat for several systems. [default: generated]",
        ),
        click.option("--id-key", metavar="NAME", help="Column of the id. [default: id]"),
        section="Input",
    ),
    together(
        click.option(
            "--rows", metavar="KEY", help="Key of a JSON object that holds the list of rows."
        ),
        click.option(
            "--duplicates",
            type=click.Choice(DUPLICATES),
            default=REFUSE,
            help="Treatment of a repeated id: refuse the input, or call the second pair id#2.",
        ),
        max_read_mb,
        section="Input",
        advanced=True,
    ),
)
keep_column = together(
    click.option(
        "--keep-column",
        "keep",
        multiple=True,
        metavar="NAME",
        help="Column of the input to copy to the output; may be repeated.",
    ),
    section="Input",
    advanced=True,
)


class InputCommand(SectionedCommand):
    """A command whose --references take as many files as a pattern of the shell gives."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat --references for each of its files."""
        repeated = []
        begun = follows = False
        for argument in args:
            if argument.startswith("-") and argument != "-":
                begun = argument.startswith("--references")
                follows = begun and "=" in argument
            elif begun and follows:
                repeated.append("--references")
            else:
                follows = True
            repeated.append(argument)
        return super().parse_args(ctx, repeated)


def by_side(files: tuple[Path, ...], source: InputOptions) -> tuple[tuple[Path, ...], InputOptions]:
    """Return the arguments that are no texts by id, and the options with the others.

    After --predictions, all arguments but score files are predictions: a pattern of the shell gives
    one option several files. Two folders of texts are references and predictions.
    """
    if source.prediction_files:
        scores = tuple(filter(_holds_scores, files))
        further = [path for path in files if path not in scores]
        return scores, replace(source, prediction_files=(*source.prediction_files, *further))
    if len(files) == 2 and not source.reference_files and all(map(texts_in, files)):
        return (), replace(source, reference_files=files[:1], prediction_files=files[1:])
    return files, source


def _holds_scores(path: Path) -> bool:
    return all(each.is_file() and is_scores(each) for each in files_of([path]))


def is_text_pair(files: Sequence[Path], source: InputOptions) -> bool:
    """Return whether the arguments are the text files of one pair.

    Raises UsageError if the input is missing, or given in two ways.
    """
    by_id = bool(source.reference_files or source.prediction_files)
    if files and source.prediction_files:
        raise click.UsageError(f"give either {files[0]}, or --predictions")
    if bool(files) == by_id:
        raise click.UsageError(
            "give either PAIRS, or --references and --predictions, or text files of one pair: "
            "REFERENCE GENERATED"
        )
    if by_id and not (source.reference_files and source.prediction_files):
        raise click.UsageError("give both --references and --predictions")
    if len(files) == 1 and not source.format and suffix_of(files[0]) in _TEXTS:
        raise click.UsageError(
            f"{files[0]} is only one text: give REFERENCE{files[0].suffix}"
            f" GENERATED{files[0].suffix}"
        )
    if len(files) < 2:
        return False
    if not any(path.exists() for path in files) and any(" " in path.name for path in files):
        raise click.UsageError(
            "the arguments must be files, but they look like texts: put each text into a file,"
            " then type vcs-runtime score reference.txt generated.txt"
        )
    data = [path for path in files if suffix_of(path) in _DATA]
    if len(data) == len(files):
        return False  # one file of pairs for each system
    if data:
        raise click.UsageError(
            f"several files must be the plain texts of one pair, but {data[0]} is not plain text"
        )
    if source.format or source.keys != Keys() or source.has_several_systems:
        raise click.UsageError(
            "REFERENCE and GENERATED are plain texts: leave out --format and the options for keys"
        )
    return True


def one_source(pairs: Sequence[Path], source: InputOptions) -> PairSource:
    """Return the pairs of one system, as `systems_of` does. Raises UsageError for several."""
    systems = systems_of(pairs, source)
    if len(systems) > 1:
        names = ", ".join(systems)
        raise click.UsageError(f"give one system instead of {len(systems)} ({names})")
    return next(iter(systems.values()))


def systems_of(pairs: Sequence[Path], source: InputOptions) -> dict[str, PairSource]:
    """Return the pairs of each system, by the stem of its file or the name of its column."""
    references: dict[str, InputPair] = {}
    reference_files: list[InputFile] = []
    paths = files_of(pairs)
    rows = dict.fromkeys(paths, source.rows)
    if source.reference_files:
        rows = _rows_of((*source.reference_files, *source.prediction_files), source)
        for path in source.reference_files:
            reference_files.append(input_file(path, source.format, rows.get(path)))
        references = _references(reference_files, source)
        paths = _systems_in(source, references)
    systems: dict[str, PairSource] = {}
    for path in paths:
        file = input_file(path, source.format, rows.get(path))
        names = source.generated_key if source.has_several_systems else (_system(path),)
        for name in names:
            if name in systems:
                other = next(each for each in paths if _system(each) == name)
                raise click.UsageError(
                    f"{other} and {path} would be two systems called {name!r}: give each file"
                    " once, rename one, or score one at a time"
                )
            keys = source.keys
            if reference_files:
                predictions = Texts(file, True, keys, source.duplicates)
                systems[name] = MatchedFiles(references, reference_files, predictions, keys.keep)
                continue
            if source.has_several_systems:
                keys = replace(keys, generated=name)
            systems[name] = PairFile(file, keys, source.duplicates)
    return systems


def _system(path: Path) -> str:
    """Return the name of the system of a file."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _references(files: Sequence[InputFile], source: InputOptions) -> dict[str, InputPair]:
    """Return the references by id; several files have further references of the same ids."""
    groups: dict[str, list[InputPair]] = {}
    for file in files:
        texts = Texts(file, False, source.keys, source.duplicates).by_id()
        for name, text in texts.items():
            groups.setdefault(name, []).append(text)
    return joined(groups)


def _systems_in(source: InputOptions, references: Mapping[str, InputPair]) -> list[Path]:
    """Return the files of predictions, and the folders that hold a text for each reference.

    Any other folder stands for its files, a system each.
    """
    by_name = any(path.is_dir() for path in source.reference_files)
    systems = []
    for path in source.prediction_files:
        texts = texts_in(path)
        if texts and (by_name or not texts.isdisjoint(references)):
            systems.append(path)
        else:
            systems += files_of([path])
    return systems


def _rows_of(paths: Iterable[Path], source: InputOptions) -> dict[Path, str]:
    """Return the key of --rows for each of the files of texts by id that has it.

    Raises InputError if none has it.
    """
    if source.rows is None:
        return {}
    having = {}
    for path in chain.from_iterable(files_of([path]) for path in paths):
        file = InputFile(path, source.format)
        try:
            if str(path) == "-" or file.has_key(source.rows):
                having[path] = source.rows
        except (RowError, OSError) as error:
            raise file.error(error) from None
    if not having:
        raise InputError(f"--rows {source.rows}: no file is an object with this key")
    return having


def unmatched(sources: Sequence[PairSource], cleaned: Sequence[str]) -> int:
    """Name unintended markup, and texts without a match, on standard error.

    Return the number of sources that have texts without a match.
    """
    pairs = chain.from_iterable(source.read() for source in sources)
    markup_notice(assumptions(pairs), cleaned)
    count = 0
    for source in sources:
        problems = []
        if isinstance(source, MatchedFiles):
            problems = source.problems()
            if source.assumed:
                warn(source.assumed)
        for problem in problems:
            warn(problem)
        if problems:
            count += 1
    return count


def as_scored(source: InputOptions, scores: Path, pairs: Path) -> InputOptions:
    """Return the options by which `score` read a file of pairs, if it names its columns otherwise.

    The columns are found by their texts: a score file holds the hashes of what was scored.
    """
    if source.reference_key or source.generated_key or source.id_key:
        return source
    ids_by_texts: dict[Any, set[str]] = {}  # several pairs may have the same texts
    for _, line in islice(read_scores(scores, ()), _LOOKED_AT):
        ids_by_texts.setdefault(line.get("texts"), set()).add(str(line["id"]))
    try:
        entries = islice(input_file(pairs, source.format, source.rows).rows("id"), _LOOKED_AT)
        rows = [row for _, row in entries if isinstance(row, dict)]
    except NestedRows as error:  # `score` was given --rows
        return as_scored(replace(source, rows=error.key), scores, pairs)
    except (RowError, OSError):  # which the job names
        return source
    if not rows:
        return source
    for reference, generated in permutations(rows[0], 2):
        matches = []
        for row in rows:
            ids = ids_by_texts.get(hash_texts(row.get(reference), row.get(generated)))
            if ids:
                matches.append((row, ids))
        if matches:
            id_key = _id_column(rows[0], matches)
            return replace(
                source, reference_key=(reference,), generated_key=(generated,), id_key=id_key
            )
    return source


def _id_column(
    columns: Iterable[str], matches: Sequence[tuple[dict[str, Any], set[str]]]
) -> str | None:
    """Return the first column that holds one of the ids of every matching row, or None."""
    for column in columns:
        if all(str(row.get(column)) in ids for row, ids in matches):
            return column
    return None


def input_file(path: Path, format: str | None, rows: str | None = None) -> InputFile:
    """Return an input file; `-` means standard input.

    Standard input is copied to a file, because the input is read twice.
    """
    if str(path) != "-":
        return InputFile(path, format, rows_key=rows)
    context = click.get_current_context()
    if context.meta.get(__name__):
        raise click.UsageError("standard input (-) can be read only once")
    context.meta[__name__] = True
    with tempfile.NamedTemporaryFile(prefix="vcs-runtime-", delete=False) as copy:
        context.call_on_close(partial(Path(copy.name).unlink, missing_ok=True))
        shutil.copyfileobj(sys.stdin.buffer, copy)
    return InputFile(Path(copy.name), format, "standard input", rows)


def one_pair(files: Sequence[Path], cleaned: Sequence[str]) -> InputPair:
    """Read the text files of one pair: first its references, then its generated text.

    Markup in the generated text causes a warning.
    """
    *references, generated = map(_read_text, files)
    pair = InputPair("pair", None, references[0] if len(references) == 1 else references, generated)
    markup_notice([pair], cleaned)
    return pair


def input_pairs(source: PairSource, name: str | None = None) -> Iterator[InputPair]:
    """Check all pairs of an input, then read them, or the one whose id is `name`.

    Raises InputError.
    """
    if not count_pairs(source):
        raise InputError(f"{source}: the file holds no pairs")
    if name is None:
        return source.read()
    chosen = [pair for pair in source.read() if str(pair.name) == name]
    if not chosen:
        raise InputError(f"{source}: no pair has the id {name!r}")
    return iter(chosen)


def _read_text(path: Path) -> str:
    """Read a text file; of subtitles the segments with their times."""
    try:
        text = read_whole(path, pipe=True).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {not_utf8(error)}") from None
    if suffix_of(path) not in (".srt", ".vtt"):
        return text
    try:
        segments = timed_segments(plain_line_ends(text), str(path))
    except TextError as error:
        raise InputError(str(error)) from None
    # The lines of a cue are its layout.
    return TimedText.of(segments).map(lambda cue: " ".join(cue.split()))
