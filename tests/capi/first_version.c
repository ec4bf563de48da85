/* A program as the first header of ABI 1 compiled it: first_version BUNDLE. Its vcs_result ends with
 * window_regularizer. It scores one pair and a batch of three, the second of them empty, and prints each result;
 * it ends with 6 if a byte behind the results was written. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct vcs_model vcs_model;
typedef struct vcs_scorer vcs_scorer;
typedef struct {
    uint32_t struct_size;
    int32_t chunk_size, short_form, reserved;
    double lct, context_cutoff, context_window;
} vcs_params;
typedef struct {
    uint32_t struct_size;
    int32_t status;
    int32_t n_ref, n_gen;
    double vcs, gas, las, las_precision, las_recall, sas, nas, nas_f1, nas_d, nas_d_precision, nas_d_recall,
        nas_l, nas_l_precision, nas_l_recall, window_regularizer;
} vcs_result;

void vcs_params_default(vcs_params *params);
int vcs_model_open(const char *bundle, const char *device, vcs_model **out);
void vcs_model_close(vcs_model *model);
int vcs_scorer_create(vcs_model *model, const vcs_params *params, vcs_scorer **out);
void vcs_scorer_destroy(vcs_scorer *scorer);
int vcs_score(vcs_scorer *scorer, const char *reference, size_t reference_len, const char *generated,
              size_t generated_len, vcs_result *out);
int vcs_score_batch(vcs_scorer *scorer, const char *const *references, const size_t *reference_lens,
                    const char *const *generated, const size_t *generated_lens, size_t n, vcs_result *out);

static struct {
    vcs_result one;
    unsigned char after_one[16];
    vcs_result batch[3];
    unsigned char after_batch[16];
} memory;

static void print(const vcs_result *result) {
    const double *scores = &result->vcs;
    printf("%u %d %d %d", (unsigned)result->struct_size, (int)result->status, (int)result->n_ref,
           (int)result->n_gen);
    for (int i = 0; i < 15; i++)
        printf(" %.17g", scores[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    const char *text = "A man opens the door. The dog runs into a garden.", *other = "The dog. A man. The door.";
    const char *references[3] = {text, text, text}, *generated[3] = {other, "", text};
    size_t n = strlen(text), reference_lens[3] = {n, n, n}, generated_lens[3] = {strlen(other), 0, n};
    unsigned char untouched[16];
    vcs_model *model;
    vcs_scorer *scorer;
    vcs_params params;
    memset(&memory, 0x5a, sizeof memory);
    memset(untouched, 0x5a, sizeof untouched);
    memory.one.struct_size = memory.batch[0].struct_size = memory.batch[1].struct_size =
        memory.batch[2].struct_size = sizeof(vcs_result);
    vcs_params_default(&params);
    if (argc != 2 || vcs_model_open(argv[1], "cpu", &model) || vcs_scorer_create(model, &params, &scorer))
        return 3;
    if (vcs_score(scorer, text, n, other, strlen(other), &memory.one))
        return 4;
    if (vcs_score_batch(scorer, references, reference_lens, generated, generated_lens, 3, memory.batch) != 4)
        return 5;
    print(&memory.one);
    for (int i = 0; i < 3; i++)
        print(&memory.batch[i]);
    vcs_scorer_destroy(scorer);
    vcs_model_close(model);
    if (memcmp(memory.after_one, untouched, sizeof untouched) || memcmp(memory.after_batch, untouched, sizeof untouched))
        return 6;
    return 0;
}
