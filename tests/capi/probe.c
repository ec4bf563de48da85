/* A host in C that prints its results for the tests: probe MODE BUNDLE [argument]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vcs_runtime.h"

static const char *TEXT = "A man opens the door. The dog runs into a garden.";

static void die(const char *what) {
    char message[2048];
    vcs_last_error(message, sizeof message);
    printf("%s: %s\n", what, message);
    exit(3);
}

static vcs_scorer *open_scorer(const char *bundle, vcs_model **model) {
    vcs_params params;
    vcs_scorer *scorer;
    if (vcs_model_open(bundle, "cpu", model) != VCS_OK)
        die("open");
    vcs_params_default(&params);
    if (vcs_scorer_create(*model, &params, &scorer) != VCS_OK)
        die("create");
    return scorer;
}

static double score_once(const char *bundle) {
    vcs_model *model;
    vcs_scorer *scorer = open_scorer(bundle, &model);
    vcs_result result;
    result.struct_size = sizeof result;
    if (vcs_score(scorer, TEXT, strlen(TEXT), TEXT, strlen(TEXT), &result) != VCS_OK)
        die("score");
    vcs_scorer_destroy(scorer);
    vcs_model_close(model);
    return result.vcs;
}

/* The sizes and offsets of the structs, for a comparison with those of ctypes. */
static void layout(void) {
#define PRINT(type, field) printf("%s %zu\n", #type "." #field, offsetof(type, field))
    printf("vcs_params %zu\nvcs_result %zu\n", sizeof(vcs_params), sizeof(vcs_result));
    PRINT(vcs_params, chunk_size);
    PRINT(vcs_params, short_form);
    PRINT(vcs_params, reserved);
    PRINT(vcs_params, lct);
    PRINT(vcs_params, context_cutoff);
    PRINT(vcs_params, context_window);
    PRINT(vcs_result, status);
    PRINT(vcs_result, n_ref);
    PRINT(vcs_result, n_gen);
    PRINT(vcs_result, vcs);
    PRINT(vcs_result, gas);
    PRINT(vcs_result, las);
    PRINT(vcs_result, las_precision);
    PRINT(vcs_result, las_recall);
    PRINT(vcs_result, sas);
    PRINT(vcs_result, nas);
    PRINT(vcs_result, nas_f1);
    PRINT(vcs_result, nas_d);
    PRINT(vcs_result, nas_d_precision);
    PRINT(vcs_result, nas_d_recall);
    PRINT(vcs_result, nas_l);
    PRINT(vcs_result, nas_l_precision);
    PRINT(vcs_result, nas_l_recall);
    PRINT(vcs_result, window_regularizer);
    PRINT(vcs_result, margin);
    PRINT(vcs_result, flags);
}

/* Scores the pairs of the file `path`, one by one and all at once, and writes both arrays of results.
 * The file: the number of pairs, then for each text its length and its bytes, references first of each pair. */
static void score_pairs(const char *bundle, const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n;
    if (!file || fread(&n, sizeof n, 1, file) != 1)
        exit(4);
    size_t *lengths[2];
    char **texts[2];
    vcs_result *results = calloc(2 * n, sizeof *results);
    for (int side = 0; side < 2; side++) {
        lengths[side] = calloc(n, sizeof **lengths);
        texts[side] = calloc(n, sizeof **texts);
    }
    for (size_t i = 0; i < 2 * n; i++) {
        size_t *length = &lengths[i % 2][i / 2];
        if (fread(length, sizeof *length, 1, file) != 1)
            exit(4);
        texts[i % 2][i / 2] = malloc(*length); /* without a final NUL */
        if (fread(texts[i % 2][i / 2], 1, *length, file) != *length)
            exit(4);
        results[i].struct_size = sizeof *results;
    }
    fclose(file);
    vcs_model *model;
    vcs_scorer *scorer = open_scorer(bundle, &model);
    for (size_t i = 0; i < n; i++)
        if (vcs_score(scorer, texts[0][i], lengths[0][i], texts[1][i], lengths[1][i], &results[i]) != VCS_OK)
            die("score");
    if (vcs_score_batch(scorer, (const char *const *)texts[0], lengths[0], (const char *const *)texts[1], lengths[1],
                        n, results + n) != VCS_OK)
        die("batch");
    fwrite(results, sizeof *results, 2 * n, stdout);
    vcs_scorer_destroy(scorer);
    vcs_model_close(model);
}

static void count(int level, const char *message, void *user) {
    (void)message;
    ((int *)user)[level / 10]++;
}

/* Messages go to the function. Only this program prints to the standard streams. */
static void messages(const char *bundle) {
    int counts[5] = {0};
    vcs_set_log(count, counts);
    printf("%.3f", score_once(bundle));
    vcs_set_log(NULL, NULL);
    score_once(bundle);
    printf(" %d\n", counts[2]);
}

static volatile sig_atomic_t interrupts = 0;

static void on_interrupt(int signal) {
    (void)signal;
    interrupts++;
}

/* SIGINT is handled after a score as before it: by default, and by a function of the host. */
static void interrupted(const char *bundle, const char *handler) {
    struct sigaction mine, found;
    memset(&mine, 0, sizeof mine);
    mine.sa_handler = strcmp(handler, "own") == 0 ? on_interrupt : SIG_DFL;
    mine.sa_flags = SA_RESTART;
    sigaction(SIGINT, &mine, NULL);
    score_once(bundle);
    sigaction(SIGINT, NULL, &found);
    printf("%d %d", found.sa_handler == mine.sa_handler, (found.sa_flags & SA_RESTART) != 0);
    if (mine.sa_handler == on_interrupt) {
        raise(SIGINT);
        score_once(bundle);
        printf(" %d", (int)interrupts);
    }
    printf("\n");
}

static void *fail_in_thread(void *given) {
    char *message = given;
    size_t before = vcs_last_error(NULL, 0);
    vcs_model *model;
    if (vcs_model_open("/nowhere", "cpu", &model) != VCS_NOT_FOUND || before != 0)
        exit(5);
    vcs_last_error(message, 200);
    return NULL;
}

/* Each thread has its own message. */
static void errors(void) {
    char others[200], mine[200];
    pthread_t thread;
    if (vcs_last_error(NULL, 0) != 0 || vcs_scorer_create(NULL, NULL, NULL) == VCS_OK)
        exit(5);
    pthread_create(&thread, NULL, fail_in_thread, others);
    pthread_join(thread, NULL);
    vcs_last_error(mine, sizeof mine);
    printf("%s\n%s\n", mine, others);
}

static long resident_kb(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(4);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Resident memory after each round of opening, scoring and closing. */
static void repeat(const char *bundle, long times) {
    for (long i = 0; i < times; i++) {
        score_once(bundle);
        printf("%ld\n", resident_kb());
    }
}

static void *score_in_thread(void *given) {
    vcs_result result;
    vcs_scorer *scorer;
    vcs_params params;
    vcs_params_default(&params);
    result.struct_size = sizeof result;
    if (vcs_scorer_create((vcs_model *)given, &params, &scorer) != VCS_OK ||
        vcs_score(scorer, TEXT, strlen(TEXT), TEXT, strlen(TEXT), &result) != VCS_OK)
        exit(5);
    vcs_scorer_destroy(scorer);
    return NULL;
}

/* Resident memory after each of many threads, which score and end. */
static void short_threads(const char *bundle, long times) {
    vcs_model *model;
    open_scorer(bundle, &model);
    for (long i = 0; i < times; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, score_in_thread, model);
        pthread_join(thread, NULL);
        printf("%ld\n", resident_kb());
    }
    vcs_model_close(model);
}

static void *open_in_thread(void *given) {
    vcs_model *model;
    if (vcs_model_open((const char *)given, "cpu", &model) != VCS_OK)
        exit(5);
    return model;
}

/* Python is started by a thread that ends; the process ends with everything open. */
static void abandon(const char *bundle) {
    void *model;
    pthread_t thread;
    pthread_create(&thread, NULL, open_in_thread, (void *)bundle);
    pthread_join(thread, &model);
    score_in_thread(model);
    printf("scored\n");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *bundle = argc > 2 ? argv[2] : "";
    if (strcmp(mode, "layout") == 0)
        layout();
    else if (strcmp(mode, "score") == 0)
        printf("%.3f\n", score_once(bundle));
    else if (strcmp(mode, "version") == 0)
        printf("%u %s\n", (unsigned)vcs_abi_version(), vcs_version());
    else if (strcmp(mode, "pairs") == 0)
        score_pairs(bundle, argv[3]);
    else if (strcmp(mode, "messages") == 0)
        messages(bundle);
    else if (strcmp(mode, "interrupted") == 0)
        interrupted(bundle, argv[3]);
    else if (strcmp(mode, "errors") == 0)
        errors();
    else if (strcmp(mode, "repeat") == 0)
        repeat(bundle, strtol(argv[3], NULL, 10));
    else if (strcmp(mode, "threads") == 0)
        short_threads(bundle, strtol(argv[3], NULL, 10));
    else if (strcmp(mode, "abandon") == 0)
        abandon(bundle);
    else
        return 2;
    return 0;
}
