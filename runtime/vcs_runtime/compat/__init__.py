"""Functions of the package `video-comprehension-score` 1.0.0 under its names (docs/migration.md).

Scores and internals are computed here, and pictures drawn by `vcs_runtime.report`. PyTorch is not
needed, but its tensors are taken.
"""

from vcs_runtime.compat.pictures import (
    create_vcs_pdf_report,
    visualize_best_match,
    visualize_config,
    visualize_distance_nas,
    visualize_las,
    visualize_line_nas,
    visualize_line_nas_precision_calculations,
    visualize_line_nas_recall_calculations,
    visualize_mapping_windows,
    visualize_metrics_summary,
    visualize_similarity_matrix,
    visualize_text_chunks,
    visualize_window_regularizer,
)
from vcs_runtime.compat.score import (
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CONTEXT_CUTOFF_VALUE,
    DEFAULT_CONTEXT_WINDOW_CONTROL,
    DEFAULT_LCT,
    compute_vcs_from_embeddings,
    compute_vcs_score,
    explain_internals,
)

__all__ = [
    "DEFAULT_CHUNK_SIZE",
    "DEFAULT_CONTEXT_CUTOFF_VALUE",
    "DEFAULT_CONTEXT_WINDOW_CONTROL",
    "DEFAULT_LCT",
    "compute_vcs_from_embeddings",
    "compute_vcs_score",
    "create_vcs_pdf_report",
    "explain_internals",
    "visualize_best_match",
    "visualize_config",
    "visualize_distance_nas",
    "visualize_las",
    "visualize_line_nas",
    "visualize_line_nas_precision_calculations",
    "visualize_line_nas_recall_calculations",
    "visualize_mapping_windows",
    "visualize_metrics_summary",
    "visualize_similarity_matrix",
    "visualize_text_chunks",
    "visualize_window_regularizer",
]
