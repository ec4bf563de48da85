/* The C side of libvcs_runtime: starts Python once, then passes every call to vcs_runtime.capi.
 *
 * cffi generates the `python_*` functions, which take the GIL, with a thread state that lasts as long as the
 * thread. vcs_runtime.capi.build defines BOUND_EXECUTABLE, BOUND_PACKAGES (a Python list of folders) and
 * BOUND_NAME. Pointers are passed to Python as integers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "vcs_runtime.h"

#define NUMBER(pointer) ((uintptr_t)(pointer))
#define QUOTED_(text) #text
#define QUOTED(text) QUOTED_(text)

static uintptr_t python_version(void);
static void python_params_default(uintptr_t);
static int32_t python_model_open(uintptr_t, uintptr_t, uintptr_t);
static void python_model_close(uintptr_t);
static int32_t python_scorer_create(uintptr_t, uintptr_t, uintptr_t);
static void python_scorer_destroy(uintptr_t);
static int32_t python_score(uintptr_t, uintptr_t, size_t, uintptr_t, size_t, uintptr_t);
static int32_t python_score_batch(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, size_t, uintptr_t);
static int32_t python_align_f32(uintptr_t, size_t, size_t, double, uintptr_t, uintptr_t);
static int32_t python_align_f64(uintptr_t, size_t, size_t, double, uintptr_t, uintptr_t);
static size_t python_last_error(uintptr_t, size_t);
static size_t python_signature(uintptr_t, uintptr_t, size_t);
static void python_set_log(uintptr_t, uintptr_t);

static pthread_once_t once = PTHREAD_ONCE_INIT;
enum { NOT_YET, STARTED, FAILED, FORKED };
static atomic_int state = NOT_YET; /* atomic, because vcs_last_error does not wait for the start */
static char start_error[2048];

/* Runs in the interpreter first. In an interpreter of the host, the packages of our environment come last, and
 * only if the host lacks them. In our own interpreter, no output may reach the host's standard streams. */
static const char bootstrap[] =
    "import sys\n"
    "if owned:\n"
    "    sys.stdout = sys.stderr = None\n"
    "    import signal\n" /* its import changes the handling of SIGINT, which start() restores afterwards */
    "try:\n"
    "    import _cffi_backend, vcs_runtime.capi\n"
    "except ModuleNotFoundError:\n"
    "    if owned:\n"
    "        raise\n"
    "    import site\n"
    "    for folder in " BOUND_PACKAGES ":\n"
    "        site.addsitedir(folder)\n"
    "    import _cffi_backend, vcs_runtime.capi\n"
    "if vcs_runtime.capi.VCS_ABI_VERSION != " QUOTED(VCS_ABI_VERSION) ":\n"
    "    raise ImportError(f'vcs-runtime {vcs_runtime.__version__} has another ABI: build the library again')\n"
    "if owned:\n"
    "    vcs_runtime.capi.log.redirect_streams()\n";

static void fail(const char *reason) {
    snprintf(start_error, sizeof start_error, "Python could not be started: %s (this library is bound to %s)",
             reason, BOUND_NAME);
}

static void fail_with_exception(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *words = value ? PyUnicode_FromFormat("%s: %S", Py_TYPE(value)->tp_name, value) : NULL;
    const char *text = words ? PyUnicode_AsUTF8(words) : NULL;
    fail(text ? text : "an exception without a message");
    PyErr_Clear();
    Py_XDECREF(words);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* Starts an interpreter with its own environment, independent of the host's environment variables. */
static int initialize(void) {
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1; /* the host's locale stays as it is */
    PyStatus status = Py_PreInitialize(&before);
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    if (!PyStatus_Exception(status))
        status = PyConfig_SetBytesString(&config, &config.executable, BOUND_EXECUTABLE);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        fail(status.err_msg ? status.err_msg : "it ended itself");
        return 0;
    }
    return 1;
}

/* Extension modules need Python's symbols, which a host hides if it opens this library with RTLD_LOCAL. */
static void show_symbols_of_python(void) {
    Dl_info python;
    if (dladdr((void *)Py_IsInitialized, &python) && python.dli_fname)
        dlopen(python.dli_fname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int import_capi(int owned) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *names = Py_BuildValue("{s:O, s:i}", "__builtins__", PyEval_GetBuiltins(), "owned", owned);
    PyObject *code = names ? Py_CompileString(bootstrap, "<vcs_runtime>", Py_file_input) : NULL;
    PyObject *done = code ? PyEval_EvalCode(code, names, names) : NULL;
    if (!done)
        fail_with_exception();
    Py_XDECREF(done);
    Py_XDECREF(code);
    Py_XDECREF(names);
    PyGILState_Release(gil);
    return done != NULL;
}

static int same_python(void) {
    int major, minor;
    return sscanf(Py_GetVersion(), "%d.%d", &major, &minor) == 2 && major == PY_MAJOR_VERSION &&
           minor == PY_MINOR_VERSION;
}

static int start(void) {
    int owned = !Py_IsInitialized();
    if (!owned && !same_python()) {
        fail("the host runs another version of it");
        return 0;
    }
    show_symbols_of_python();
    struct sigaction interrupt;
    sigaction(SIGINT, NULL, &interrupt);
    if (owned && !initialize())
        return 0;
    if (owned)
        PyEval_SaveThread();
    int imported = import_capi(owned);
    if (owned)
        sigaction(SIGINT, &interrupt, NULL);
    if (imported && cffi_start_python() != 0) {
        fail("cffi could not set up its functions");
        return 0;
    }
    return imported;
}

/* Python's threads do not survive fork(), so a call in the child would wait for ever. A host that runs Python itself
 * forks by Python's own means. */
static void forbid(void) {
    if (state == STARTED)
        state = FORKED;
}

static void start_once(void) {
    int owned = !Py_IsInitialized();
    state = start() ? STARTED : FAILED;
    if (owned)
        pthread_atfork(NULL, NULL, forbid);
}

static int ready(void) {
    pthread_once(&once, start_once);
    return state == STARTED;
}

static size_t copy_out(const char *text, char *buffer, size_t capacity) {
    if (buffer && capacity)
        snprintf(buffer, capacity, "%s", text);
    return strlen(text);
}

uint32_t vcs_abi_version(void) { return VCS_ABI_VERSION; }

const char *vcs_version(void) {
    const char *version = ready() ? (const char *)python_version() : NULL;
    return version ? version : "";
}

void vcs_params_default(vcs_params *params) {
    if (params)
        memset(params, 0, sizeof *params);
    if (ready())
        python_params_default(NUMBER(params));
}

vcs_status vcs_model_open(const char *bundle, const char *device, vcs_model **out) {
    if (out)
        *out = NULL;
    return ready() ? (vcs_status)python_model_open(NUMBER(bundle), NUMBER(device), NUMBER(out)) : VCS_INTERNAL;
}

void vcs_model_close(vcs_model *model) {
    if (model && ready())
        python_model_close(NUMBER(model));
}

vcs_status vcs_scorer_create(vcs_model *model, const vcs_params *params, vcs_scorer **out) {
    if (out)
        *out = NULL;
    return ready() ? (vcs_status)python_scorer_create(NUMBER(model), NUMBER(params), NUMBER(out)) : VCS_INTERNAL;
}

void vcs_scorer_destroy(vcs_scorer *scorer) {
    if (scorer && ready())
        python_scorer_destroy(NUMBER(scorer));
}

vcs_status vcs_score(vcs_scorer *scorer, const char *reference, size_t reference_len, const char *generated,
                     size_t generated_len, vcs_result *out) {
    if (!ready())
        return VCS_INTERNAL;
    return (vcs_status)python_score(NUMBER(scorer), NUMBER(reference), reference_len, NUMBER(generated),
                                    generated_len, NUMBER(out));
}

vcs_status vcs_score_batch(vcs_scorer *scorer, const char *const *references, const size_t *reference_lens,
                           const char *const *generated, const size_t *generated_lens, size_t n,
                           vcs_result *out) {
    if (!ready())
        return VCS_INTERNAL;
    return (vcs_status)python_score_batch(NUMBER(scorer), NUMBER(references), NUMBER(reference_lens),
                                          NUMBER(generated), NUMBER(generated_lens), n, NUMBER(out));
}

vcs_status vcs_align_f32(const float *similarity, size_t n_ref, size_t n_gen, double gas,
                         const vcs_params *params, vcs_result *out) {
    if (!ready())
        return VCS_INTERNAL;
    return (vcs_status)python_align_f32(NUMBER(similarity), n_ref, n_gen, gas, NUMBER(params), NUMBER(out));
}

vcs_status vcs_align_f64(const double *similarity, size_t n_ref, size_t n_gen, double gas,
                         const vcs_params *params, vcs_result *out) {
    if (!ready())
        return VCS_INTERNAL;
    return (vcs_status)python_align_f64(NUMBER(similarity), n_ref, n_gen, gas, NUMBER(params), NUMBER(out));
}

size_t vcs_last_error(char *buffer, size_t capacity) {
    if (state == STARTED)
        return python_last_error(NUMBER(buffer), capacity);
    if (state == FORKED)
        return copy_out("this process was forked after the first call: fork before it", buffer, capacity);
    return copy_out(state == FAILED ? start_error : "", buffer, capacity);
}

size_t vcs_signature(const vcs_scorer *scorer, char *buffer, size_t capacity) {
    if (ready())
        return python_signature(NUMBER(scorer), NUMBER(buffer), capacity);
    return copy_out("", buffer, capacity);
}

void vcs_set_log(vcs_log_fn fn, void *user) {
    if (ready())
        python_set_log((uintptr_t)fn, NUMBER(user));
}
