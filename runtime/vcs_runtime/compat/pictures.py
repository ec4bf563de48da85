"""Pictures and the PDF report of the reference package (extra `report`).

`vcs_runtime.report` draws them.

Every function takes the internals that `compute_vcs_score` returned, here or in the reference
package. The figures are pyplot figures, as in the original: they can be shown, saved and closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vcs_runtime.compat.score import explain_internals
from vcs_runtime.report import figures, pair_tables, views
from vcs_runtime.report.flow import Part, Table, write_document
from vcs_runtime.report.pdf import pair_document
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.util.atomic import file_errors
from vcs_runtime.util.figures import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Internals = Mapping[str, Any]


def visualize_config(internals: Internals) -> Figure:
    """Show how the pair was scored."""
    return _one(figures.configuration, internals)


def visualize_text_chunks(internals: Internals) -> dict[str, list[Figure]]:
    """Show both texts chunk by chunk: pages under "reference_chunks" and "generated_chunks"."""
    e = _explained(internals)
    return {
        "reference_chunks": _all_shown(figures.chunks(e, "reference")),
        "generated_chunks": _all_shown(figures.chunks(e, "generated")),
    }


def visualize_similarity_matrix(internals: Internals) -> Figure:
    """Show the similarity matrix with the matches of both directions."""
    return _one(figures.similarity, internals)


def visualize_mapping_windows(internals: Internals) -> Figure:
    """Show the mapping windows of both directions."""
    return _one(figures.windows, internals)


def visualize_best_match(internals: Internals) -> dict[str, Figure]:
    """Show every match and why it was chosen.

    Parameters
    ----------
    internals
        The internals.

    Returns
    -------
    dict of figures
        "precision_details" and "recall_details" list the matches of a direction; "summary_table"
        counts them.
    """
    e = _explained(internals)
    return {
        "precision_details": _shown(figures.matches(e, "generated")),
        "recall_details": _shown(figures.matches(e, "reference")),
        "summary_table": _shown(figures.match_summary(e)),
    }


def visualize_line_nas(internals: Internals) -> Figure:
    """Show NAS-L: both narrative paths, and the band of the ideal ones."""
    return _one(figures.nas_l, internals)


def visualize_line_nas_precision_calculations(internals: Internals) -> list[Figure]:
    """Show NAS-L of the generated text step by step, on as many pages as needed."""
    return _all_shown(figures.steps(_explained(internals), "generated"))


def visualize_line_nas_recall_calculations(internals: Internals) -> list[Figure]:
    """Show NAS-L of the reference step by step, on as many pages as needed."""
    return _all_shown(figures.steps(_explained(internals), "reference"))


def visualize_distance_nas(internals: Internals) -> Figure:
    """Show NAS-D: matches against windows, and the penalty of each chunk."""
    return _one(figures.nas_d, internals)


def visualize_las(internals: Internals) -> Figure:
    """Show LAS: the similarity of every chunk's match."""
    return _one(figures.las, internals)


def visualize_window_regularizer(internals: Internals) -> Figure:
    """Show the part of the grid that the windows cover, and the regulariser."""
    return _one(figures.regularizer, internals)


def visualize_metrics_summary(internals: Internals) -> Figure:
    """Show all scores, and the cost of each part."""
    return _one(figures.summary, internals)


def create_vcs_pdf_report(
    internals: Internals, output_file: str | Path, metrics_to_include: str | Sequence[str] = "all"
) -> None:
    """Write a title page and the pictures of a pair to a PDF file.

    Parameters
    ----------
    internals
        The internals.
    output_file
        The file to write. Its folder is created if necessary; an existing file is replaced.
    metrics_to_include
        "all", or names of sections: "Config", "Overview", "Text Chunks", "Similarity Matrix",
        "Mapping Windows", "Best Match", "LAS", "NAS Distance", "NAS Line", "Window Regularizer".

    Raises
    ------
    ValueError
        A section is unknown, or `internals` are invalid.
    InputError
        The file cannot be written.
    MissingExtraError
        matplotlib is not installed.
    """
    sections = _chosen(metrics_to_include)
    e = _explained(internals)
    path = Path(output_file)
    with file_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    body: list[Part] = []
    for name, parts_of in _SECTIONS.items():
        if name in sections:
            body += parts_of(e)
    write_document(pair_document(e, "VCS report", body=body), path)


def _chosen(sections: str | Sequence[str]) -> list[str]:
    """Return the names of the chosen sections. Raises ValueError for an unknown name."""
    names = [sections] if isinstance(sections, str) else list(sections)
    if names == ["all"]:
        return list(_SECTIONS)
    if not names or not set(names) <= set(_SECTIONS):
        known = ", ".join(map(repr, _SECTIONS))
        raise ValueError(f"metrics_to_include must be 'all' or names from {known}, not {names!r}")
    return names


def _tables(table: Callable[[Explanation, str], Table]) -> Callable[[Explanation], list[Part]]:
    return lambda e: [table(e, "reference"), table(e, "generated")]


def _lines(e: Explanation) -> list[Part]:
    parts: list[Part] = [views.nas_l(e)]
    for name in ("generated", "reference"):
        steps = pair_tables.steps(e, name)
        if steps.rows:
            parts.append(steps)
    return parts


#: The sections of the report in the package's order, and their parts.
_SECTIONS: Final[dict[str, Callable[[Explanation], list[Part]]]] = {
    "Config": lambda e: [pair_tables.configuration(e)],
    "Overview": lambda e: [views.scores(e)],
    "Text Chunks": _tables(pair_tables.chunks),
    "Similarity Matrix": lambda e: [views.similarity(e)],
    "Mapping Windows": lambda e: [views.windows(e)],
    "Best Match": _tables(pair_tables.matches),
    "LAS": lambda e: [views.las(e)],
    "NAS Distance": lambda e: [views.nas_d(e)],
    "NAS Line": _lines,
    "Window Regularizer": lambda e: [views.regularizer(e)],
}


def _explained(internals: Internals) -> Explanation:
    require_matplotlib()
    return explain_internals(internals)


def _one(view: Callable[[Explanation], Figure], internals: Internals) -> Figure:
    return _shown(view(_explained(internals)))


def _all_shown(pages: Iterable[Figure]) -> list[Figure]:
    return [_shown(page) for page in pages]


def _shown(figure: Figure) -> Figure:
    """Hand a figure to pyplot, because users of the reference package call `figure.show()`."""
    from matplotlib import pyplot

    def existing(**settings: Any) -> Figure:
        return figure

    # pyplot calls FigureClass to create the figure that it manages, and gets this one.
    return pyplot.figure(FigureClass=existing)  # type: ignore[arg-type]
