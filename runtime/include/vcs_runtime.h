/* vcs_runtime.h: the Video Comprehension Score from C, C++, Rust, Go: text in, scores out, in this process.
 *
 *     vcs_model *model;                                                      (1) once a process
 *     if (vcs_model_open("default", "auto", &model) != VCS_OK) { ... vcs_last_error(...) ... }
 *     vcs_params params;                                                     (2)
 *     vcs_params_default(&params);
 *     vcs_scorer *scorer;                                                    (3) once a thread
 *     vcs_scorer_create(model, &params, &scorer);
 *     vcs_result result = {.struct_size = sizeof result};                    (4)
 *     if (vcs_score(scorer, reference, reference_len, generated, generated_len, &result) == VCS_OK)
 *         printf("%.3f\n", result.vcs);                                      (5) any number of times
 *     vcs_scorer_destroy(scorer);                                            (6)
 *     vcs_model_close(model);
 *
 * Ownership. What comes through `out` belongs to the caller, who gives it back once, with vcs_scorer_destroy or
 * vcs_model_close; where a call fails, `*out` is NULL. Texts, strings, matrices and structs stay the caller's:
 * they are read or written during the call alone. The string of vcs_version is never freed.
 *
 * Threads. Any thread may call any function. A model serves any number of threads at once; a scorer serves one
 * at a time, so give each thread its own (they share the model, and are cheap). A model is to outlive its
 * scorers; if it is closed before them, calls on these fail with VCS_INVALID_ARGUMENT, calls that are running
 * end first, and each scorer is still to be destroyed. A handle that was given back is recognised and refused.
 *
 * Errors. A function that can fail returns a vcs_status, and vcs_last_error says what was wrong, in words, until
 * the same thread fails again. A result that has no scores holds NaN. No function writes to standard output or
 * standard error, raises a signal, changes a signal's handling, or ends the process.
 *
 * Versions. A library serves one VCS_ABI_VERSION, which is in its soname. Set `struct_size` to the sizeof your
 * compiler sees: a smaller struct than this header's is refused, and of a larger one the part below is used.
 *
 * Python runs inside. It is started at the first call that needs it, or, where the process already runs one of
 * the same version, shared. It is never stopped, and does not survive fork(): fork first. docs/capi.md tells
 * more.
 */
#ifndef VCS_RUNTIME_H
#define VCS_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define VCS_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* VCS_ABI_VERSION of the library, to be compared with the header's. */
uint32_t vcs_abi_version(void);
/* The version of vcs-runtime that scores, as in signatures; "" if Python cannot be started. */
const char *vcs_version(void);

typedef struct vcs_model vcs_model;   /* weights and engines; shared between threads */
typedef struct vcs_scorer vcs_scorer; /* one thread's working state */

/* The values never change. */
typedef enum {
    VCS_OK = 0,
    VCS_INVALID_ARGUMENT = 1, /* NULL, a struct_size or parameter out of range, a handle that was given back */
    VCS_NOT_FOUND = 2,        /* no bundle there */
    VCS_BAD_BUNDLE = 3,       /* damaged, unreadable, of another schema, or without the engines that scoring needs */
    VCS_BAD_TEXT = 4,         /* a text that cannot be scored: not UTF-8, empty, too long, nothing but punctuation */
    VCS_DEVICE = 5,           /* no such device, or it failed */
    VCS_OUT_OF_MEMORY = 6,
    VCS_INTERNAL = 7 /* Python cannot be started, or a defect of the library */
} vcs_status;

typedef struct {
    uint32_t struct_size;
    int32_t chunk_size; /* sentences joined to one chunk, at least 1; the papers use 3 */
    int32_t short_form; /* 0; or 1 for captions of a few words, whose words are compared */
    int32_t reserved;   /* 0 */
    double lct;         /* local chronology tolerance, at least 0, in heights of a mapping window */
    double context_cutoff; /* in [0, 1]: below this similarity a best match has no context band */
    double context_window; /* above 0: the larger, the narrower the band */
} vcs_params;

/* The scores of a pair, as docs/vcs.md defines them. `status`: what became of this pair, a vcs_status. */
typedef struct {
    uint32_t struct_size;
    int32_t status;
    int32_t n_ref, n_gen; /* chunks of both texts; 0 without scores */
    double vcs, gas, las, las_precision, las_recall, sas, nas, nas_f1, nas_d, nas_d_precision, nas_d_recall,
        nas_l, nas_l_precision, nas_l_recall, window_regularizer;
} vcs_result;

/* Fills in the defaults, struct_size too; struct_size is 0 if Python cannot be started. */
void vcs_params_default(vcs_params *params);

/* Opens a bundle, verified by its hashes; nothing is downloaded.
 * bundle: a folder, in UTF-8, or "default". device: "auto", "cpu", "cuda:N"; what is named is used or refused. */
vcs_status vcs_model_open(const char *bundle, const char *device, vcs_model **out);
/* NULL is fine. */
void vcs_model_close(vcs_model *model);

vcs_status vcs_scorer_create(vcs_model *model, const vcs_params *params, vcs_scorer **out);
/* NULL is fine. */
void vcs_scorer_destroy(vcs_scorer *scorer);

/* Scores one pair. Texts are UTF-8 of the given lengths in bytes; no NUL is needed, and none may be inside. */
vcs_status vcs_score(vcs_scorer *scorer, const char *reference, size_t reference_len, const char *generated,
                     size_t generated_len, vcs_result *out);

/* Scores n pairs; out[i] belongs to references[i] and generated[i], and out is an array of structs of
 * out[0].struct_size bytes, which every struct_size must say. A pair that cannot be scored does not stop the
 * others: out[i].status says what became of each. Returns VCS_OK if all n were scored, else the status of the
 * first that was not, which vcs_last_error names ("pairs[3]: ..."). What stops the call itself (a closed model,
 * a device that fails) is the status of every pair that was not scored. */
vcs_status vcs_score_batch(vcs_scorer *scorer, const char *const *references, const size_t *reference_lens,
                           const char *const *generated, const size_t *generated_lens, size_t n, vcs_result *out);

/* The alignment alone, for vectors of your own: similarity is row-major (n_ref, n_gen), cosines of the chunks;
 * gas is the cosine of the whole texts. Of params, chunk_size and short_form do not matter here. No model. */
vcs_status vcs_align_f32(const float *similarity, size_t n_ref, size_t n_gen, double gas, const vcs_params *params,
                         vcs_result *out);
vcs_status vcs_align_f64(const double *similarity, size_t n_ref, size_t n_gen, double gas, const vcs_params *params,
                         vcs_result *out);

/* These two copy a UTF-8 string into buffer, cut to fit capacity and always ended by a NUL, and return the full
 * length without the NUL. buffer may be NULL: then the length is all. */
/* The message of this thread's last call that failed; empty if none did. */
size_t vcs_last_error(char *buffer, size_t capacity);
/* How this scorer's scores come about: scores with equal signatures can be compared. 0 on error. */
size_t vcs_signature(const vcs_scorer *scorer, char *buffer, size_t capacity);

/* Where messages go; process-wide, NULL (the default) for nowhere. level: 20 information, 30 warning, 40 error.
 * fn may be called by any thread, during calls; it must not call this library. */
typedef void (*vcs_log_fn)(int level, const char *message, void *user);
void vcs_set_log(vcs_log_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif
