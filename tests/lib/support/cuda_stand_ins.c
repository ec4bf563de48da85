/* Stand-ins of NVIDIA's libraries: they lend memory, copy it, write down what they are asked, and compute nothing.

   ONNX Runtime's CUDA provider links to these libraries by name. `cuda_stand_ins.py` compiles this file once for each
   library, with LIBRARY_... defined, and adds every other function that the provider names as one that answers 0,
   which is "success". Hence only those functions stand here that must answer something, or that are worth a line in
   the log.

   Environment of the process:
     STAND_IN_LOG         file to which lines are appended; fields are separated by tabs
     STAND_IN_CAPABILITY  compute capability of every GPU, such as 9.0
     STAND_IN_MEMORY      bytes of memory of each GPU
     STAND_IN_GPUS        number of GPUs
     STAND_IN_VECTORS     copies from a GPU bring random vectors of unit length, of so many float32, not zeros

   Layouts of structures and numbers of attributes are those of CUDA 13. */
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT_OF_MEMORY 2
#define NO_SUCH_GPU 101
#define PROCESSORS 132 /* multiprocessors of an H100 or H200 */
#define SHARED 232448  /* bytes of shared memory that a block of theirs may ask for */

static long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

static int major(void) { return (int)number("STAND_IN_CAPABILITY", 9); }

static int minor(void) {
    const char *value = getenv("STAND_IN_CAPABILITY"), *point = value ? strchr(value, '.') : NULL;
    return point ? atoi(point + 1) : 0;
}

static size_t memory(void) { return (size_t)number("STAND_IN_MEMORY", 141000000000); }

static int gpus(void) { return (int)number("STAND_IN_GPUS", 1); }

/* One write a line: threads and libraries share the file. */
__attribute__((unused, format(printf, 1, 2))) static void record(const char *format, ...) {
    static int file = -1;
    char line[8192];
    const char *path = getenv("STAND_IN_LOG");
    if (!path) return;
    if (file < 0) file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length] = '\n';
    if (write(file, line, length + 1) < 0) abort();
}

/* What the functions that the Python module adds to cuDNN call. */
__attribute__((visibility("hidden"))) void stand_in_called(const char *name) { record("call\t%s", name); }

/* Anything that must only be there, such as a stream or a handle. */
__attribute__((unused)) static int handle(void **result) {
    *result = calloc(1, 4096);
    return 0;
}

#ifdef LIBRARY_CUDART
typedef struct { unsigned x, y, z; } Size;

/* Kernels. The provider registers each with its mangled name, and launches it by the address of a function. */
static struct { const void *host; const char *name; } *kernels;
static size_t kernel_count, kernel_room;

void *__cudaRegisterFatBinary(void *binary) { return calloc(1, 64); }

void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit, void *thread,
                            void *block, void *block_size, void *grid_size, int *warp) {
    if (kernel_count == kernel_room) {
        kernel_room = kernel_room ? 2 * kernel_room : 65536;
        kernels = realloc(kernels, kernel_room * sizeof *kernels);
    }
    kernels[kernel_count].host = host;
    kernels[kernel_count++].name = name;
}

static const char *name_of(const void *host) {
    for (size_t i = kernel_count; i-- > 0;)
        if (kernels[i].host == host) return kernels[i].name;
    return "unknown";
}

static int launch(const void *host, Size grid, Size block, size_t shared) {
    record("kernel\t%s\t%u %u %u\t%u %u %u\t%zu", name_of(host), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
    return 0;
}

int __cudaGetKernel(void **kernel, const void *host) { *kernel = (void *)host; return 0; }

int __cudaLaunchKernel(void *kernel, Size grid, Size block, void **arguments, size_t shared, void *stream) {
    return launch(kernel, grid, block, shared);
}

int cudaLaunchKernel(const void *kernel, Size grid, Size block, void **arguments, size_t shared, void *stream) {
    return launch(kernel, grid, block, shared);
}

int cudaLaunchCooperativeKernel(const void *kernel, Size grid, Size block, void **arguments, size_t shared, void *stream) {
    return launch(kernel, grid, block, shared);
}

typedef struct { Size grid, block; size_t shared; } LaunchConfiguration;

int cudaLaunchKernelExC(const LaunchConfiguration *how, const void *kernel, void **arguments) {
    return launch(kernel, how->grid, how->block, how->shared);
}

static __thread Size pushed_grid, pushed_block;
static __thread size_t pushed_shared;
static __thread void *pushed_stream;

unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared, void *stream) {
    pushed_grid = grid, pushed_block = block, pushed_shared = shared, pushed_stream = stream;
    return 0;
}

int __cudaPopCallConfiguration(Size *grid, Size *block, size_t *shared, void **stream) {
    *grid = pushed_grid, *block = pushed_block, *shared = pushed_shared, *stream = pushed_stream;
    return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, ...) { *blocks = 2; return 0; }

/* Memory. A GPU's memory is host memory behind a header; pages that nothing touches cost nothing. */
#define MOST_GPUS 16
typedef struct { size_t bytes; int gpu; } Header;
#define HEADER 256 /* keeps CUDA's alignment */
static size_t used[MOST_GPUS];
static __thread int current;

int cudaMalloc(void **result, size_t bytes) {
    *result = NULL;
    size_t after = __atomic_add_fetch(&used[current], bytes, __ATOMIC_SEQ_CST);
    Header *header = after > memory() ? NULL : calloc(1, bytes + 2 * HEADER);
    if (!header) {
        __atomic_sub_fetch(&used[current], bytes, __ATOMIC_SEQ_CST);
        record("refused\t%zu\t%zu\t%d", bytes, after - bytes, current);
        return OUT_OF_MEMORY;
    }
    header->bytes = bytes, header->gpu = current;
    *result = (char *)header + HEADER;
    record("malloc\t%zu\t%zu\t%d", bytes, after, current);
    return 0;
}

int cudaFree(void *pointer) {
    if (!pointer) return 0;
    Header *header = (Header *)((char *)pointer - HEADER);
    size_t after = __atomic_sub_fetch(&used[header->gpu], header->bytes, __ATOMIC_SEQ_CST);
    record("free\t%zu\t%zu\t%d", header->bytes, after, header->gpu);
    free(header);
    return 0;
}

int cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = *total - used[current];
    return 0;
}

static int host_memory(void **result, size_t bytes) {
    record("pinned\t%zu", bytes);
    *result = calloc(1, bytes + HEADER);
    return *result ? 0 : OUT_OF_MEMORY;
}

int cudaMallocHost(void **result, size_t bytes) { return host_memory(result, bytes); }
int cudaHostAlloc(void **result, size_t bytes, unsigned flags) { return host_memory(result, bytes); }
int cudaFreeHost(void *pointer) { free(pointer); return 0; }

static void fill_with_vectors(float *to, size_t rows, size_t columns) {
    static __thread unsigned seed = 1;
    for (; rows; rows--, to += columns) {
        double squares = 0;
        for (size_t i = 0; i < columns; i++) {
            to[i] = rand_r(&seed) / (float)RAND_MAX - 0.5f;
            squares += to[i] * to[i];
        }
        for (size_t i = 0; i < columns; i++) to[i] /= sqrt(squares);
    }
}

/* Copies: kind 1 is to the GPU, 2 from it, 3 within it. */
static int copy(void *to, const void *from, size_t bytes, int kind, int asynchronous) {
    record("copy\t%d\t%zu\t%d", kind, bytes, asynchronous);
    size_t columns = kind == 2 ? number("STAND_IN_VECTORS", 0) : 0, row = columns * sizeof(float);
    if (columns && bytes % row == 0)
        fill_with_vectors(to, bytes / row, columns);
    else
        memmove(to, from, bytes);
    return 0;
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return copy(to, from, bytes, kind, 0); }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { return copy(to, from, bytes, kind, 1); }

int cudaMemset(void *to, int value, size_t bytes) {
    record("set\t%zu", bytes);
    memset(to, value, bytes);
    return 0;
}

int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) { return cudaMemset(to, value, bytes); }

/* Waiting. */
int cudaStreamSynchronize(void *stream) { record("wait\tstream"); return 0; }
int cudaDeviceSynchronize(void) { record("wait\tdevice"); return 0; }
int cudaEventSynchronize(void *event) { record("wait\tevent"); return 0; }
int cudaStreamCreate(void **stream) { return handle(stream); }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return handle(stream); }
int cudaEventCreate(void **event) { return handle(event); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return handle(event); }
int cudaStreamIsCapturing(void *stream, int *capturing) { *capturing = 0; return 0; }
int cudaStreamBeginCapture(void *stream, int mode) { record("capture"); return 0; }

/* The GPUs. */
int cudaGetDeviceCount(int *count) { *count = gpus(); return 0; }
int cudaGetDevice(int *gpu) { *gpu = current; return 0; }

int cudaSetDevice(int gpu) {
    if (gpu < 0 || gpu >= gpus() || gpu >= MOST_GPUS) return NO_SUCH_GPU;
    current = gpu;
    return 0;
}

int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
int cudaDriverGetVersion(int *version) { *version = (int)number("STAND_IN_DRIVER", 13000); return 0; }
const char *cudaGetErrorName(int error) { return error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaError"; }
const char *cudaGetErrorString(int error) { return error == OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in"; }

int cudaDeviceGetAttribute(int *value, int attribute, int gpu) {
    switch (attribute) {
    case 1: *value = 1024; break;       /* threads of a block */
    case 10: *value = 32; break;        /* threads of a warp */
    case 16: *value = PROCESSORS; break;
    case 39: *value = 2048; break;      /* threads of a multiprocessor */
    case 75: *value = major(); break;
    case 76: *value = minor(); break;
    case 95: *value = 1; break;         /* cooperative launches */
    default: *value = SHARED;
    }
    return 0;
}

/* The beginning of cudaDeviceProp, whose size is 1008 bytes. */
typedef struct {
    char name[256], id[16 + 8];
    unsigned node_mask;
    size_t memory, shared_of_block;
    int registers_of_block, warp;
    size_t pitch;
    int threads_of_block, block[3], grid[3];
    size_t constants;
    int major, minor;
    size_t texture[2];
    int processors;
} Properties;

int cudaGetDeviceProperties(Properties *properties, int gpu) {
    memset(properties, 0, 1008);
    strcpy(properties->name, "stand-in of a GPU");
    properties->memory = memory();
    properties->shared_of_block = 49152;
    properties->registers_of_block = 65536;
    properties->warp = 32;
    properties->threads_of_block = 1024;
    for (int i = 0; i < 3; i++) properties->block[i] = 1024, properties->grid[i] = 65535;
    properties->major = major(), properties->minor = minor();
    properties->processors = PROCESSORS;
    return 0;
}
#endif

#ifdef LIBRARY_CUBLAS
/* Products, with the sizes and CUDA's numbers of the types of A, B and C, and of the arithmetic. */
#define PRODUCT "product\t%s\t%d %d %d %d\t%d %d %d\t%d"
#define SINGLE 0        /* CUDA_R_32F */
#define COMPUTE_32F 68  /* CUBLAS_COMPUTE_32F */

int cublasCreate_v2(void **result) { return handle(result); }
int cublasSetMathMode(void *blas, int mode) { record("math mode\t%d", mode); return 0; }

int cublasGemmEx(void *blas, int turn_a, int turn_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                 int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
                 int algorithm) {
    record(PRODUCT, __func__, m, n, k, 1, type_a, type_b, type_c, compute);
    return 0;
}

int cublasGemmStridedBatchedEx(void *blas, int turn_a, int turn_b, int m, int n, int k, const void *alpha, const void *a,
                               int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb,
                               long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c,
                               int count, int compute, int algorithm) {
    record(PRODUCT, __func__, m, n, k, count, type_a, type_b, type_c, compute);
    return 0;
}

int cublasGemmBatchedEx(void *blas, int turn_a, int turn_b, int m, int n, int k, const void *alpha, const void *const a[],
                        int type_a, int lda, const void *const b[], int type_b, int ldb, const void *beta, void *const c[],
                        int type_c, int ldc, int count, int compute, int algorithm) {
    record(PRODUCT, __func__, m, n, k, count, type_a, type_b, type_c, compute);
    return 0;
}

int cublasSgemm_v2(void *blas, int turn_a, int turn_b, int m, int n, int k) {
    record(PRODUCT, __func__, m, n, k, 1, SINGLE, SINGLE, SINGLE, COMPUTE_32F);
    return 0;
}

int cublasSgemmStridedBatched(void *blas, int turn_a, int turn_b, int m, int n, int k, const float *alpha, const float *a,
                              int lda, long long stride_a, const float *b, int ldb, long long stride_b, const float *beta,
                              float *c, int ldc, long long stride_c, int count) {
    record(PRODUCT, __func__, m, n, k, count, SINGLE, SINGLE, SINGLE, COMPUTE_32F);
    return 0;
}

int cublasSgemmBatched(void *blas, int turn_a, int turn_b, int m, int n, int k, const float *alpha, const float *const a[],
                       int lda, const float *const b[], int ldb, const float *beta, float *const c[], int ldc, int count) {
    record(PRODUCT, __func__, m, n, k, count, SINGLE, SINGLE, SINGLE, COMPUTE_32F);
    return 0;
}
#endif

#ifdef LIBRARY_CUBLASLT
/* cuBLASLt describes a product by objects: a matrix, and how the product is made. Only what is recorded is kept. */
typedef struct { unsigned type; unsigned long long rows, columns; } Matrix;
typedef struct { int compute, turn[4], scales[4]; } How;
#define TURN_A 3          /* numbers of attributes of a product: transposition and scale of A */
#define SCALE_A 17

int cublasLtCreate(void **result) { stand_in_called(__func__); return handle(result); }

int cublasLtMatrixLayoutCreate(Matrix **result, unsigned type, unsigned long long rows, unsigned long long columns, long long ld) {
    *result = calloc(1, 4096);
    (*result)->type = type, (*result)->rows = rows, (*result)->columns = columns;
    return 0;
}

int cublasLtMatrixLayoutDestroy(Matrix *matrix) { free(matrix); return 0; }

int cublasLtMatmulDescCreate(How **result, int compute, int scale_type) {
    *result = calloc(1, 4096);
    (*result)->compute = compute;
    return 0;
}

int cublasLtMatmulDescDestroy(How *how) { free(how); return 0; }

int cublasLtMatmulDescSetAttribute(How *how, int attribute, const void *value, size_t bytes) {
    if (attribute >= TURN_A && attribute < TURN_A + 2) how->turn[attribute - TURN_A] = *(const int *)value;
    if (attribute >= SCALE_A && attribute < SCALE_A + 4) how->scales[attribute - SCALE_A] = 1;
    return 0;
}

int cublasLtMatmulPreferenceCreate(void **result) { return handle(result); }
int cublasLtMatmulPreferenceDestroy(void *preference) { free(preference); return 0; }

typedef struct { unsigned long long algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;

int cublasLtMatmulAlgoGetHeuristic(void *blas, How *how, Matrix *a, Matrix *b, Matrix *c, Matrix *d, void *preference,
                                   int wanted, Heuristic *results, int *count) {
    memset(results, 0, sizeof *results);
    results->waves = 1;
    *count = 1;
    return 0;
}

int cublasLtMatmul(void *blas, How *how, const void *alpha, const void *a, Matrix *a_is, const void *b, Matrix *b_is,
                   const void *beta, const void *c, Matrix *c_is, void *d, Matrix *d_is, const void *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream) {
    unsigned long long inner = how->turn[0] ? a_is->rows : a_is->columns;
    record("product\tcublasLtMatmul\t%llu %llu %llu 1\t%u %u %u\t%d", d_is->rows, d_is->columns, inner, a_is->type,
           b_is->type, d_is->type, how->compute);
    return 0;
}
#endif

#ifdef LIBRARY_CUDNN
int cudnnCreate(void **result) { stand_in_called(__func__); return handle(result); }
int cudnnCreateReduceTensorDescriptor(void **result) { return handle(result); }
int cudnnCreateTensorDescriptor(void **result) { return handle(result); }
int cudnnGetReductionWorkspaceSize(void *dnn, void *reduction, void *a, void *c, size_t *bytes) { *bytes = 0; return 0; }
int cudnnGetReductionIndicesSize(void *dnn, void *reduction, void *a, void *c, size_t *bytes) { *bytes = 0; return 0; }
size_t cudnnGetVersion(void) { return 91400; }
#endif

#ifdef LIBRARY_CUDA
int cuInit(unsigned flags) { return gpus() ? 0 : NO_SUCH_GPU; }
int cuDriverGetVersion(int *version) { *version = (int)number("STAND_IN_DRIVER", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = gpus(); return 0; }
int cuDeviceGet(int *gpu, int index) { *gpu = index; return index < 0 || index >= gpus() ? NO_SUCH_GPU : 0; }
int cuDeviceGetName(char *name, int room, int gpu) { snprintf(name, room, "stand-in of a GPU"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int gpu) { *value = attribute == 75 ? major() : minor(); return 0; }
/* Kernels that the provider brings as machine code, such as those of TensorRT's attention: a function is its name. */
int cuModuleGetFunction(const char **function, void *module, const char *name) { *function = strdup(name); return 0; }

int cuLaunchKernel(const char *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **more) {
    record("kernel\t%s\t%u %u %u\t%u %u %u\t%u", function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int gpu) { *bytes = memory(); return 0; }
#endif
