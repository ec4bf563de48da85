/* The cases of tests/lib/support/capi_cases.py in C: misuse BUNDLE DAMAGED. Prints the name, status and message of each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "vcs_runtime.h"

#define CASE(name, call) print(name, call)

static void print(const char *name, vcs_status status) {
    char message[1000] = "";
    if (status != VCS_OK)
        vcs_last_error(message, sizeof message);
    printf("%s\t%d\t%s\n", name, (int)status, message);
}

static vcs_params defaults(void) {
    vcs_params params;
    vcs_params_default(&params);
    return params;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const char *bundle = argv[1], *damaged = argv[2];
    vcs_model *model, *closed, *m;
    vcs_scorer *scorer, *destroyed, *orphan, *s;
    vcs_params p = defaults();
    vcs_result r[3];
    if (vcs_model_open(bundle, "cpu", &model) || vcs_model_open(bundle, "cpu", &closed) ||
        vcs_scorer_create(model, &p, &scorer) || vcs_scorer_create(model, &p, &destroyed) ||
        vcs_scorer_create(closed, &p, &orphan))
        return 3;
    vcs_model_close(closed);
    vcs_scorer_destroy(destroyed);
    vcs_model_close(NULL);
    vcs_scorer_destroy(NULL);
    vcs_params_default(NULL);
    for (int i = 0; i < 3; i++)
        r[i].struct_size = sizeof *r;

    CASE("open: NULL bundle", vcs_model_open(NULL, "cpu", &m));
    CASE("open: NULL device", vcs_model_open(bundle, NULL, &m));
    CASE("open: NULL out", vcs_model_open(bundle, "cpu", NULL));
    CASE("open: missing", vcs_model_open("/nowhere", "cpu", &m));
    CASE("open: no bundle", vcs_model_open("/", "cpu", &m));
    CASE("open: damaged", vcs_model_open(damaged, "cpu", &m));
    CASE("open: unknown device", vcs_model_open(bundle, "tpu", &m));
    CASE("open: absent device", vcs_model_open(bundle, "cuda:99", &m));

    CASE("create: NULL model", vcs_scorer_create(NULL, &p, &s));
    CASE("create: NULL params", vcs_scorer_create(model, NULL, &s));
    CASE("create: NULL out", vcs_scorer_create(model, &p, NULL));
#define WITH(field, value) (p = defaults(), p.field = (value), vcs_scorer_create(model, &p, &s))
    CASE("create: small params", WITH(struct_size, 32));
    CASE("create: chunk_size 0", WITH(chunk_size, 0));
    CASE("create: short_form 2", WITH(short_form, 2));
    CASE("create: reserved 1", WITH(reserved, 1));
    CASE("create: lct -1", WITH(lct, -1));
    CASE("create: context_cutoff NaN", WITH(context_cutoff, NAN));
    CASE("create: context_window 0", WITH(context_window, 0));
    p = defaults();
    CASE("create: closed model", vcs_scorer_create(closed, &p, &s));
    CASE("create: a scorer as model", vcs_scorer_create((vcs_model *)scorer, &p, &s));

    const char *t = "A man opens the door. The dog runs into a garden.";
    size_t n = strlen(t);
    CASE("score: NULL scorer", vcs_score(NULL, t, n, t, n, r));
    CASE("score: destroyed scorer", vcs_score(destroyed, t, n, t, n, r));
    CASE("score: closed model", vcs_score(orphan, t, n, t, n, r));
    CASE("score: NULL reference", vcs_score(scorer, NULL, n, t, n, r));
    CASE("score: NULL generated", vcs_score(scorer, t, n, NULL, n, r));
    CASE("score: NULL out", vcs_score(scorer, t, n, t, n, NULL));
    r[0].struct_size = 128; /* below the first version's 136 */
    CASE("score: small result", vcs_score(scorer, t, n, t, n, r));
    r[0].struct_size = sizeof *r;
    CASE("score: zero length", vcs_score(scorer, t, n, t, 0, r));
    CASE("score: not UTF-8", vcs_score(scorer, "a\xff.", 3, t, n, r));
    CASE("score: NUL inside", vcs_score(scorer, "A man.\0 A dog.", 14, t, n, r));
    CASE("score: punctuation alone", vcs_score(scorer, "...!", 4, t, n, r));
    CASE("score: endless", vcs_score(scorer, t, SIZE_MAX, t, n, r));

    const char *texts[3] = {t, t, t}, *generated[3] = {t, "", t};
    size_t lengths[3] = {n, n, n}, generated_lengths[3] = {n, 0, n};
    CASE("batch: NULL references", vcs_score_batch(scorer, NULL, lengths, texts, lengths, 1, r));
    CASE("batch: NULL reference_lens", vcs_score_batch(scorer, texts, NULL, texts, lengths, 1, r));
    CASE("batch: NULL generated", vcs_score_batch(scorer, texts, lengths, NULL, lengths, 1, r));
    CASE("batch: NULL generated_lens", vcs_score_batch(scorer, texts, lengths, texts, NULL, 1, r));
    CASE("batch: NULL out", vcs_score_batch(scorer, texts, lengths, texts, lengths, 1, NULL));
    CASE("batch: NULL scorer", vcs_score_batch(NULL, texts, lengths, texts, lengths, 1, r));
    r[1].struct_size = 0;
    CASE("batch: uneven results", vcs_score_batch(scorer, texts, lengths, texts, lengths, 2, r));
    r[1].struct_size = sizeof *r;
    CASE("batch: nothing", vcs_score_batch(scorer, NULL, NULL, NULL, NULL, 0, NULL));
    CASE("batch: a bad pair", vcs_score_batch(scorer, texts, lengths, generated, generated_lengths, 3, r));
    if (r[0].status != VCS_OK || r[1].status != VCS_BAD_TEXT || r[2].status != VCS_OK)
        return 4;

    double half[2] = {0.5, NAN};
    CASE("align: NULL similarity", vcs_align_f64(NULL, 1, 1, 0.5, &p, r));
    CASE("align: NULL params", vcs_align_f64(half, 1, 1, 0.5, NULL, r));
    CASE("align: NULL out", vcs_align_f64(half, 1, 1, 0.5, &p, NULL));
    CASE("align: no rows", vcs_align_f64(half, 0, 1, 0.5, &p, r));
    CASE("align: endless", vcs_align_f64(half, 1, SIZE_MAX, 0.5, &p, r));
    CASE("align: NaN", vcs_align_f64(half, 1, 2, 0.5, &p, r));
    CASE("align: gas 2", vcs_align_f64(half, 1, 1, 2.0, &p, r));
    p.lct = -1;
    CASE("align: lct -1", vcs_align_f64(half, 1, 1, 0.5, &p, r));

    /* The process is still alive. */
    if (vcs_score(scorer, t, n, t, n, r) != VCS_OK)
        return 5;
    vcs_scorer_destroy(scorer);
    vcs_scorer_destroy(orphan);
    vcs_model_close(model);
    return 0;
}
