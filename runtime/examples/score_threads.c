/* Scores the pairs of a file with one thread, then with several threads and scorers, and compares the results:
 *     cc -pthread score_threads.c $(pkg-config --cflags --libs vcs_runtime) -o score_threads
 *     ./score_threads pairs.tsv 8 [bundle [device]]
 * A line of the file is a reference, a tab, and a generated text. The exit code is 0 if all scores are equal.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vcs_runtime.h"

typedef struct {
    char *reference, *generated;
} pair;

/* The work of a thread: the pairs from first up to, but not including, last. */
typedef struct {
    vcs_model *model;
    const pair *pairs;
    vcs_result *results;
    size_t first, last;
    int failed;
} share;

static void complain(const char *function) {
    char message[1024];
    vcs_last_error(message, sizeof message);
    fprintf(stderr, "%s: %s\n", function, message);
}

static void *work(void *argument) {
    share *mine = (share *)argument;
    vcs_params params;
    vcs_scorer *scorer;
    vcs_params_default(&params);
    if (vcs_scorer_create(mine->model, &params, &scorer) != VCS_OK) {
        complain("vcs_scorer_create");
        mine->failed = 1;
        return NULL;
    }
    for (size_t i = mine->first; i < mine->last; i++) {
        const pair *one = &mine->pairs[i];
        mine->results[i].struct_size = sizeof(vcs_result);
        if (vcs_score(scorer, one->reference, strlen(one->reference), one->generated, strlen(one->generated),
                      &mine->results[i]) != VCS_OK) {
            complain("vcs_score"); /* the pair keeps its status; the others continue */
            mine->failed = 1;
        }
    }
    vcs_scorer_destroy(scorer);
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Scores all pairs on a new model, because an old model remembers the vectors of texts.
 * Returns pairs per second, or 0 after an error. */
static double run(const char *bundle, const char *device, const pair *pairs, vcs_result *results, size_t n,
                  size_t threads) {
    vcs_model *model;
    if (vcs_model_open(bundle, device, &model) != VCS_OK) {
        complain("vcs_model_open");
        return 0;
    }
    share *shares = (share *)calloc(threads, sizeof *shares);
    pthread_t *running = (pthread_t *)calloc(threads, sizeof *running);
    if (!shares || !running)
        abort();
    int failed = 0;
    double start = now();
    for (size_t i = 0; i < threads; i++) {
        share mine = {model, pairs, results, i * n / threads, (i + 1) * n / threads, 0};
        shares[i] = mine;
        if (pthread_create(&running[i], NULL, work, &shares[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(running[i], NULL);
        failed |= shares[i].failed;
    }
    double taken = now() - start;
    vcs_model_close(model);
    free(shares);
    free(running);
    return failed ? 0 : (double)n / taken;
}

/* Reads the file. The memory of the texts is freed at the end of the process. */
static pair *read_pairs(const char *path, size_t *n) {
    FILE *file = fopen(path, "r");
    pair *pairs = NULL;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    *n = 0;
    while (file && (length = getline(&line, &capacity, file)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        char *tab = strchr(line, '\t');
        pair *more = (pair *)realloc(pairs, (*n + 1) * sizeof *pairs);
        if (!tab || !more)
            break;
        *tab = '\0';
        pairs = more;
        pairs[*n].reference = strdup(line);
        pairs[(*n)++].generated = strdup(tab + 1);
    }
    free(line);
    if (file)
        fclose(file);
    return pairs;
}

int main(int argc, char **argv) {
    size_t n = 0, threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    pair *pairs = argc > 1 ? read_pairs(argv[1], &n) : NULL;
    if (argc > 5 || threads == 0 || n == 0) {
        fprintf(stderr, "usage: %s PAIRS.tsv THREADS [BUNDLE [DEVICE]]\n", argv[0]);
        return 2;
    }
    const char *bundle = argc > 3 ? argv[3] : "default", *device = argc > 4 ? argv[4] : "auto";
    vcs_result *alone = (vcs_result *)calloc(n, sizeof *alone), *together = (vcs_result *)calloc(n, sizeof *together);
    if (!alone || !together)
        abort();
    double one = run(bundle, device, pairs, alone, n, 1);
    double many = one > 0 ? run(bundle, device, pairs, together, n, threads) : 0;
    int equal = many > 0 && memcmp(alone, together, n * sizeof *alone) == 0;
    printf("{\"pairs\": %zu, \"threads\": %zu, \"pairs_per_second_alone\": %.2f, \"pairs_per_second\": %.2f, "
           "\"equal\": %s}\n",
           n, threads, one, many, equal ? "true" : "false");
    free(alone);
    free(together);
    return equal ? 0 : 1;
}
