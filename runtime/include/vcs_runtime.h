/* vcs_runtime.h: the Video Comprehension Score of texts, computed inside a program in C, C++, Rust or Go.
 *
 *     vcs_model *model;                                                      (1) once per process
 *     if (vcs_model_open("default", "auto", &model) != VCS_OK) { ... vcs_last_error(...) ... }
 *     vcs_params params;                                                     (2)
 *     vcs_params_default(&params);
 *     vcs_scorer *scorer;                                                    (3) once per thread
 *     vcs_scorer_create(model, &params, &scorer);
 *     vcs_result result = {.struct_size = sizeof result};                    (4)
 *     if (vcs_score(scorer, reference, reference_len, generated, generated_len, &result) == VCS_OK)
 *         printf("%.3f\n", result.vcs);                                      (5) any number of times
 *     vcs_scorer_destroy(scorer);                                            (6)
 *     vcs_model_close(model);
 *
 * Ownership. The caller owns a handle that is written to `out`, and must destroy it once, with vcs_scorer_destroy
 * or vcs_model_close. If a call fails, `*out` is NULL. The caller also owns texts, strings, matrices and structs,
 * which the library uses only during the call. The string of vcs_version must not be freed.
 *
 * Threads. Any thread may call any function. A model serves any number of threads at once. A scorer serves one
 * thread at a time, so create a scorer for each thread (scorers share the model, and are cheap). Close a model
 * after its scorers. If it is closed before them, running calls end first, later calls fail with
 * VCS_INVALID_ARGUMENT, and each scorer must still be destroyed. A destroyed handle is recognised and refused.
 *
 * Errors. A function that can fail returns a vcs_status. vcs_last_error copies the message of this thread's last
 * error. A result without scores holds NaN. No function writes to standard output or standard error, raises a
 * signal, changes the handling of a signal, or ends the process.
 *
 * Versions. A library has one VCS_ABI_VERSION, which is part of its soname. Set `struct_size` to the struct's
 * sizeof. Within one VCS_ABI_VERSION only vcs_result grows, at its end. Nothing is written beyond struct_size, so a
 * vcs_result of an earlier header works. In a larger struct, the library uses the members that it knows, and the
 * others keep their values. A struct smaller than in the first header is refused (vcs_params: 40 bytes,
 * vcs_result: 136).
 *
 * Python runs inside the library. It starts at the first call that needs it; a process that already runs Python
 * of the same version shares its interpreter. Python is never stopped, and does not survive fork(), so fork
 * before the first call. In a child forked later, every call fails with VCS_INTERNAL. See docs/guide/capi.md.
 */
#ifndef VCS_RUNTIME_H
#define VCS_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define VCS_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* The library's VCS_ABI_VERSION, to compare with the header. */
uint32_t vcs_abi_version(void);
/* The version of vcs-runtime, as in signatures; "" if Python cannot be started. */
const char *vcs_version(void);

typedef struct vcs_model vcs_model;   /* weights and sessions; shared between threads */
typedef struct vcs_scorer vcs_scorer; /* one thread's working state */

/* The values never change. */
typedef enum {
    VCS_OK = 0,
    VCS_INVALID_ARGUMENT = 1, /* NULL, a struct_size or parameter out of range, a destroyed handle */
    VCS_NOT_FOUND = 2,        /* the path has no bundle */
    VCS_BAD_BUNDLE = 3,       /* a bundle that is damaged, unreadable, of another schema, or lacks a model */
    VCS_BAD_TEXT = 4,         /* a text that cannot be scored: not UTF-8, empty, too long, only punctuation */
    VCS_DEVICE = 5,           /* the device does not exist, or it failed */
    VCS_OUT_OF_MEMORY = 6,
    VCS_INTERNAL = 7 /* Python cannot be started, or the library has a defect */
} vcs_status;

typedef struct {
    uint32_t struct_size;
    int32_t chunk_size; /* sentences per chunk, at least 1; the papers use 3 */
    int32_t short_form; /* 1 to compare the words of short captions, otherwise 0 */
    int32_t reserved;   /* must be 0 */
    double lct;         /* local chronology tolerance, at least 0, in heights of a mapping window */
    double context_cutoff; /* in [0, 1]: a best match with a lower similarity has no context band */
    double context_window; /* above 0: a larger value makes the band narrower */
} vcs_params;

/* Why a VCS is 0, and whether order could be judged (docs/reference/vcs.md, section 13). The values never change. */
typedef enum {
    VCS_ORDER_UNDEFINED = 1, /* too few chunks, or too unequal numbers: VCS is 0 by definition */
    VCS_SINGLE_CHUNKS = 2,   /* each text is one chunk: VCS repeats the cosine of the texts */
    VCS_ZERO_CONTENT = 4,    /* VCS is 0 because the texts share too little */
    VCS_ZERO_ORDER = 8,      /* VCS is 0 because the order is no better than chance */
    VCS_BELOW_GATE = 16,     /* VCS is 0 because content and order together stay below 1 */
    VCS_NOT_SPLIT = 32       /* a long text counts as one sentence, and the other text has several */
} vcs_flag;

/* The scores of a pair, as docs/reference/vcs.md defines them. `status` is the vcs_status of this pair. `margin`
 * and then `flags` were added later. */
typedef struct {
    uint32_t struct_size;
    int32_t status;
    int32_t n_ref, n_gen; /* chunks of the two texts; 0 without scores */
    double vcs, gas, las, las_precision, las_recall, sas, nas, nas_f1, nas_d, nas_d_precision, nas_d_recall,
        nas_l, nas_l_precision, nas_l_recall, window_regularizer, margin;
    uint64_t flags; /* values of vcs_flag, added up; 0 without scores */
} vcs_result;

/* Fills in the defaults and struct_size. struct_size is 0 if Python cannot be started. */
void vcs_params_default(vcs_params *params);

/* Opens a bundle and verifies its hashes. Nothing is downloaded.
 * bundle: a folder, in UTF-8, or "default". device: as for --device, such as "auto", "cpu", "openvino" or
 * "cuda:0:fp32". The call fails if a named device cannot be used. The bundle's segmenter splits texts; time stamps
 * are not read. */
vcs_status vcs_model_open(const char *bundle, const char *device, vcs_model **out);
/* model may be NULL. */
void vcs_model_close(vcs_model *model);

vcs_status vcs_scorer_create(vcs_model *model, const vcs_params *params, vcs_scorer **out);
/* scorer may be NULL. */
void vcs_scorer_destroy(vcs_scorer *scorer);

/* Scores one pair. Texts are UTF-8 with lengths in bytes; they need no final NUL, and must not contain one. */
vcs_status vcs_score(vcs_scorer *scorer, const char *reference, size_t reference_len, const char *generated,
                     size_t generated_len, vcs_result *out);

/* Scores n pairs; out[i] belongs to references[i] and generated[i]. out is an array of structs of
 * out[0].struct_size bytes; every struct_size must be equal. A pair that cannot be scored does not stop the
 * others; out[i].status is its status. Returns VCS_OK if all n pairs were scored, otherwise the status of the
 * first pair that was not, which vcs_last_error names ("pairs[3]: ..."). An error of the whole call (a closed
 * model, a device that fails) is the status of every pair that was not scored. */
vcs_status vcs_score_batch(vcs_scorer *scorer, const char *const *references, const size_t *reference_lens,
                           const char *const *generated, const size_t *generated_lens, size_t n, vcs_result *out);

/* Runs only the alignment, for your own vectors. similarity is a row-major matrix (n_ref, n_gen) of
 * the cosines of the chunks; gas is the cosine of the whole texts. chunk_size and short_form are ignored. */
vcs_status vcs_align_f32(const float *similarity, size_t n_ref, size_t n_gen, double gas, const vcs_params *params,
                         vcs_result *out);
vcs_status vcs_align_f64(const double *similarity, size_t n_ref, size_t n_gen, double gas, const vcs_params *params,
                         vcs_result *out);

/* These two functions copy a UTF-8 string with a final NUL into buffer, cut to fit capacity, and return the full
 * length without the NUL. If buffer is NULL, they only return the length. */
/* The message of this thread's last error; empty without an error. */
size_t vcs_last_error(char *buffer, size_t capacity);
/* The signature of this scorer's scores. Scores with equal signatures can be compared. Returns 0 after an error. */
size_t vcs_signature(const vcs_scorer *scorer, char *buffer, size_t capacity);

/* Sets the function for messages of the whole process; NULL (the default) discards them. level: 20
 * information, 30 warning, 40 error. Any thread may call fn during a call. fn must not call this library. */
typedef void (*vcs_log_fn)(int level, const char *message, void *user);
void vcs_set_log(vcs_log_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif
