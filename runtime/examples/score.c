/* Scores one pair of texts and prints JSON:
 *     cc score.c $(pkg-config --cflags --libs vcs_runtime) -o score
 *     ./score reference.txt generated.txt [bundle [device]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vcs_runtime.h"

/* The names of the scores and their offsets in vcs_result. */
static const struct {
    const char *name;
    size_t offset;
} SCORES[] = {
#define SCORE(name) {#name, offsetof(vcs_result, name)}
    SCORE(vcs),         SCORE(gas),          SCORE(las),           SCORE(las_precision), SCORE(las_recall),
    SCORE(sas),         SCORE(nas),          SCORE(nas_f1),        SCORE(nas_d),         SCORE(nas_d_precision),
    SCORE(nas_d_recall), SCORE(nas_l),       SCORE(nas_l_precision), SCORE(nas_l_recall),
    SCORE(window_regularizer), SCORE(margin),
};

static int explain(const char *function) {
    char message[1024];
    vcs_last_error(message, sizeof message);
    fprintf(stderr, "%s: %s\n", function, message);
    return 1;
}

/* The contents of a file, which the caller frees; NULL if the file cannot be read. */
static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = NULL;
    size_t capacity = 0, got = 0;
    *length = 0;
    do {
        *length += got;
        if (*length == capacity) {
            char *larger = (char *)realloc(text, capacity = 2 * capacity + 4096);
            if (!larger)
                break;
            text = larger;
        }
        got = fread(text + *length, 1, capacity - *length, file);
    } while (got > 0);
    if (got > 0 || ferror(file)) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: %s REFERENCE GENERATED [BUNDLE [DEVICE]]\n", argv[0]);
        return 2;
    }
    if (vcs_abi_version() != VCS_ABI_VERSION) {
        fprintf(stderr, "the library has ABI %u, the header %d\n", (unsigned)vcs_abi_version(), VCS_ABI_VERSION);
        return 2;
    }
    char *texts[2] = {NULL, NULL};
    size_t lengths[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        texts[i] = read_file(argv[1 + i], &lengths[i]);
        if (!texts[i]) {
            perror(argv[1 + i]);
            free(texts[0]);
            return 2;
        }
    }

    int code = 0;
    vcs_model *model = NULL;
    vcs_scorer *scorer = NULL;
    vcs_params params;
    vcs_result result;
    char signature[1024];
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    vcs_params_default(&params);
    if (vcs_model_open(argc > 3 ? argv[3] : "default", argc > 4 ? argv[4] : "auto", &model) != VCS_OK)
        code = explain("vcs_model_open");
    else if (vcs_scorer_create(model, &params, &scorer) != VCS_OK)
        code = explain("vcs_scorer_create");
    else if (vcs_score(scorer, texts[0], lengths[0], texts[1], lengths[1], &result) != VCS_OK)
        code = explain("vcs_score");
    else {
        printf("{");
        for (size_t i = 0; i < sizeof SCORES / sizeof *SCORES; i++) {
            double value;
            memcpy(&value, (const char *)&result + SCORES[i].offset, sizeof value);
            printf("\"%s\": %.17g, ", SCORES[i].name, value);
        }
        vcs_signature(scorer, signature, sizeof signature);
        printf("\"n_ref\": %d, \"n_gen\": %d, \"signature\": \"%s\"}\n", (int)result.n_ref, (int)result.n_gen,
               signature);
    }
    vcs_scorer_destroy(scorer);
    vcs_model_close(model);
    free(texts[0]);
    free(texts[1]);
    return code;
}
