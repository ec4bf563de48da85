/* A host that forks after its first call: forked BUNDLE. The child prints the status of its call and the message. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vcs_runtime.h"

int main(int argc, char **argv) {
    vcs_model *model, *other;
    if (argc != 2 || vcs_model_open(argv[1], "cpu", &model) != VCS_OK)
        return 2;
    if (fork() == 0) {
        char message[200] = "";
        alarm(600); /* it would wait for ever */
        vcs_status status = vcs_model_open(argv[1], "cpu", &other);
        vcs_last_error(message, sizeof message);
        printf("%d %s\n", (int)status, message);
        fflush(stdout);
        _exit(0);
    }
    int ended;
    wait(&ended);
    vcs_status status = vcs_model_open(argv[1], "cpu", &other);
    printf("%d\n", (int)status);
    return ended != 0;
}
