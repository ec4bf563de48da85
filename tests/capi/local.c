/* A host that opens the library at run time and hides its symbols: local LIBRARY BUNDLE. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "vcs_runtime.h"

int main(int argc, char **argv) {
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return 2;
    vcs_status (*open)(const char *, const char *, vcs_model **);
    size_t (*last_error)(char *, size_t);
    *(void **)&open = dlsym(library, "vcs_model_open");
    *(void **)&last_error = dlsym(library, "vcs_last_error");
    vcs_model *model;
    char message[1000] = "";
    vcs_status status = open(argv[2], "cpu", &model);
    last_error(message, sizeof message);
    printf("%d %s\n", (int)status, message);
    return dlclose(library);
}
