"""`attnscope figure`: draw any table that has the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnscope.errors import AttnscopeError


def figure(
    kind: Annotated[str, typer.Argument(help="bars, lines, heatmap or strip.")],
    table: Annotated[Path, typer.Argument(help="A .csv or .parquet file with the kind's columns.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .svg, .png, .pdf, .vl.json or .md file.")],
    title: Annotated[str, typer.Option(help="Above it.")] = "",
    y: Annotated[str, typer.Option(help="Title of the vertical axis.")] = "",
    caption: Annotated[str, typer.Option(help="Below the title.")] = "",
) -> None:
    """Draw any table that has a figure's columns."""
    import polars as pl

    from attnscope.figures.kind import Look, find_kind
    from attnscope.figures.write import FILES, draw_table, write_file

    find_kind(kind, "figure")
    if not any(out.name.endswith(ending) for ending in FILES):
        raise AttnscopeError(
            f"can't draw a '{out.suffix or out.name}' file",
            where=str(out),
            allowed=", ".join(FILES),
            todo="give the figure one of these endings",
        )
    if not out.absolute().parent.is_dir():
        raise AttnscopeError(
            "can't write the figure", where=str(out), allowed="a folder that exists", todo="make the folder first"
        )
    readers: dict[str, Any] = {".csv": pl.read_csv, ".parquet": pl.read_parquet}
    if table.suffix not in readers or not table.is_file():
        raise AttnscopeError(
            "there is no such table", where=str(table), allowed="a .csv or .parquet file", todo="check the path"
        )
    try:
        held = readers[table.suffix](table)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise AttnscopeError(
            f"can't read the table: {error}", where=str(table), allowed=f"a {table.suffix} file", todo="mend the file"
        ) from error
    if not len(held):
        raise AttnscopeError("the table is empty", where=str(table), allowed="at least one row", todo="fill it")
    made = draw_table(kind, held, str(table), Look(title=title or table.stem, y=y, caption=caption))
    write_file(made, out)
    print(f"wrote {out}")  # noqa: T201
