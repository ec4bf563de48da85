"""The C API: the functions of `vcs_runtime.h` in Python, and the C library (docs/guide/capi.md).

The functions have the names of the header and accept the arguments of a ctypes binding. They need
no library, because the library calls them. `load` opens a built library and declares its functions
for ctypes.
"""

from vcs_runtime.capi.binding import (
    PROTOTYPES,
    VCS_ABI_VERSION,
    Flag,
    Status,
    load,
    vcs_log_fn,
    vcs_params,
    vcs_result,
)
from vcs_runtime.capi.calls import (
    vcs_abi_version,
    vcs_align_f32,
    vcs_align_f64,
    vcs_last_error,
    vcs_model_close,
    vcs_model_open,
    vcs_params_default,
    vcs_score,
    vcs_score_batch,
    vcs_scorer_create,
    vcs_scorer_destroy,
    vcs_set_log,
    vcs_signature,
    vcs_version,
)

__all__ = [
    "PROTOTYPES",
    "VCS_ABI_VERSION",
    "Flag",
    "Status",
    "load",
    "vcs_abi_version",
    "vcs_align_f32",
    "vcs_align_f64",
    "vcs_last_error",
    "vcs_log_fn",
    "vcs_model_close",
    "vcs_model_open",
    "vcs_params",
    "vcs_params_default",
    "vcs_result",
    "vcs_score",
    "vcs_score_batch",
    "vcs_scorer_create",
    "vcs_scorer_destroy",
    "vcs_set_log",
    "vcs_signature",
    "vcs_version",
]
