"""`attnscope figure`: draw any tables that have the columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnscope.cli import completion
from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    import polars as pl


def figure(
    kind: Annotated[
        str,
        typer.Argument(
            help="bars, lines, heatmap, strip, spread, decomposition, trajectory, effect, attention-effect, or a "
            "plugin's kind.",
            autocompletion=completion.kinds,
        ),
    ],
    tables: Annotated[
        list[str],
        typer.Argument(
            help="A .csv or .parquet file with the kind's columns; several are drawn side by side, each under its "
            "LABEL in LABEL=FILE or its file's name.",
            metavar="TABLE...",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .svg, .png, .pdf, .vl.json or .md file.")],
    title: Annotated[str, typer.Option(help="Title above it.")] = "",
    y: Annotated[str, typer.Option(help="Title of the vertical axis.")] = "",
    caption: Annotated[str, typer.Option(help="Caption below the title.")] = "",
) -> None:
    """Draw any table that has a figure's columns, or several side by side."""
    from attnscope.figures import KINDS, Look
    from attnscope.figures.write import FILES, draw_tables, write_file
    from attnscope.places import check_place

    KINDS.find(kind, "figure")
    if not any(out.name.endswith(ending) for ending in FILES):
        raise AttnscopeError(
            f"can't draw a '{out.suffix or out.name}' file",
            where=str(out),
            allowed=", ".join(FILES),
            todo="give the figure one of these endings",
        )
    check_place(out, "the figure")
    frames = {label: _read(path) for label, path in _labelled(tables).items()}
    name = " and ".join(frames)
    drawn = draw_tables(kind, frames, Look(title=title or name, y=y, caption=caption))
    write_file(drawn, out)
    print(f"wrote {out}")  # noqa: T201


def _labelled(tables: list[str]) -> dict[str, Path]:
    """`LABEL=FILE` or `FILE` -> {label: file}."""
    files: dict[str, Path] = {}
    for each in tables:
        label, equals, path = each.partition("=")
        if Path(each).exists() or not equals:
            label, path = Path(each).stem, each
        if label in files:
            raise AttnscopeError(
                f"two tables are called '{label}'",
                where=each,
                allowed="each label once",
                todo="label them, as in before=a/t.csv after=b/t.csv",
            )
        files[label] = Path(path)
    return files


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    readers: dict[str, Any] = {".csv": pl.read_csv, ".parquet": pl.read_parquet}
    if path.suffix not in readers or not path.is_file():
        raise AttnscopeError(
            "there is no such table", where=str(path), allowed="a .csv or .parquet file", todo="check the path"
        )
    try:
        table: pl.DataFrame = readers[path.suffix](path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise AttnscopeError(
            f"can't read the table: {error}", where=str(path), allowed=f"a {path.suffix} file", todo="fix the file"
        ) from error
    if not len(table):
        raise AttnscopeError("the table is empty", where=str(path), allowed="at least one row", todo="add rows to it")
    return table
