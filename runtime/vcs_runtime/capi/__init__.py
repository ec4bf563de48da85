"""The C API: `vcs_runtime.h` from Python, and the library that offers it to C (docs/capi.md).

The functions bear the names of the header, take what a ctypes binding of them takes, and need no library:
they are what the library calls. `load` declares the functions of a built one for ctypes.
"""

from vcs_runtime.capi.binding import (
    PROTOTYPES,
    VCS_ABI_VERSION,
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
