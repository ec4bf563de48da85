/* Loops over calls of the C API, timed in C, in a thread that Python has not started (see capi.py). */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "vcs_runtime.h"

typedef struct {
    vcs_scorer *scorer;
    const char *reference, *generated;
    size_t reference_len, generated_len;
    const double *similarity;
    size_t n_ref, n_gen, calls;
    vcs_result result;
    double seconds;
} loop;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *work(void *given) {
    loop *one = given;
    vcs_params params;
    vcs_params_default(&params);
    one->result.struct_size = sizeof one->result;
    double start = 0;
    for (size_t i = 0; i <= one->calls; i++) {
        if (i == 1)
            start = now(); /* a thread's first call sets up what Python and the core keep for each thread */
        if (one->similarity)
            vcs_align_f64(one->similarity, one->n_ref, one->n_gen, 0.9, &params, &one->result);
        else
            vcs_score(one->scorer, one->reference, one->reference_len, one->generated, one->generated_len,
                      &one->result);
    }
    one->seconds = now() - start;
    return NULL;
}

void run_loop(loop *one) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, one);
    pthread_join(thread, NULL);
}
