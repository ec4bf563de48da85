/* Stand-ins of TensorRT 10's libraries, which take a network, "build" an engine, and load it again.

   ONNX Runtime's TensorRT provider and NVIDIA's Python package call objects of C++. Such an object has a pointer to a
   table of functions, and then a pointer to an inner object, whose table has what can be called. A function is known by
   its place in the table; the places are those of TensorRT 10.16's headers. A place that is empty here ends the process
   with its number.

   An engine is a text: the types and shapes of inputs and outputs, and the range of each input. To run it is to check
   the shapes of its inputs, and to write them to the log of `cuda_stand_ins.c`. Outputs stay as the memory was.

   Environment of the process, beside that of `cuda_stand_ins.c`:
     STAND_IN_TENSORRT_FAILS   words with which the builder fails */
#include "cuda_stand_ins.c"

#include <dlfcn.h>
#include <stdint.h>

#define TENSORS 16
#define DIMENSIONS 8
#define PLACES 64
#define FIRST 2 /* a table begins with two destructors */
enum { INPUT = 1, OUTPUT = 2, ERROR = 1, INT64 = 8, TF32 = 6, VERSION = 101601 };
enum { LEAST, USUAL, LARGEST };

typedef struct { int32_t count; int64_t sizes[DIMENSIONS]; } Shape;
typedef struct { char name[64]; int mode, type; Shape shape, range[3], now; void *address; } Tensor;
typedef struct Object {
    void **table;
    struct Object *inner, *outer; /* the inner object knows the outer one, which has the data */
    Tensor tensor[TENSORS];
    int tensors;
    unsigned flags;
    char *data;
    size_t size;
    struct Object *cache;
    void **logger;
} Object;

/* What stands before a table: the place of the object in a larger one, and its class, of which the name is read. */
typedef struct { void *unused; const char *name; } Class;
typedef struct { long place; Class *class; void *function[PLACES]; } Table;

static void destroy(Object *object) {} /* processes end soon */

/* Places that are empty. Their numbers are octal. */
static void unknown(int place) {
    fprintf(stderr, "stand-in of TensorRT: nothing stands at place %d, function %d\n", place, place - FIRST);
    abort();
}
#define PLACE(n) static void place##n(void) { unknown(n); }
#define EIGHT(what, n) what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7)
#define ALL(what) EIGHT(what, 00) EIGHT(what, 01) EIGHT(what, 02) EIGHT(what, 03) EIGHT(what, 04) EIGHT(what, 05) \
    EIGHT(what, 06) EIGHT(what, 07)
#define POINTER(n) place##n,
ALL(PLACE)
static void *empty[PLACES] = {ALL(POINTER)};

static void **filled(void **table) {
    for (int i = 0; i < PLACES; i++)
        if (!table[i]) table[i] = empty[i];
    return table;
}

static Object *make(const char *class, void **inner) {
    Table *table = calloc(1, sizeof *table);
    Object *object = calloc(1, sizeof *object);
    table->class = calloc(1, sizeof *table->class);
    table->class->name = class;
    table->function[0] = table->function[1] = destroy;
    object->table = filled(table->function);
    if (inner) {
        object->inner = calloc(1, sizeof *object);
        object->inner->table = filled(inner);
        object->inner->outer = object;
    }
    return object;
}

static Tensor *find(Object *object, const char *name) {
    for (int i = 0; i < object->tensors; i++)
        if (!strcmp(object->tensor[i].name, name)) return &object->tensor[i];
    return NULL;
}

static Tensor *add(Object *object, const char *name) {
    Tensor *tensor = find(object, name);
    if (!tensor) tensor = &object->tensor[object->tensors++];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return tensor;
}

static void complain(void **logger, const char *words) {
    void (*log)(void **, int, const char *) = *(void **)*logger;
    log(logger, ERROR, words);
}

/* Host memory. */
static void *memory_data(Object *self) { return self->outer->data; }
static size_t memory_size(Object *self) { return self->outer->size; }
static int memory_type(Object *self) { return 2; }
static void *memory_table[PLACES] = {destroy, destroy, memory_data, memory_size, memory_type};

static Object *bytes(const void *data, size_t size) {
    Object *object = make("N8nvinfer111IHostMemoryE", memory_table);
    object->data = memcpy(malloc(size + 1), data, size);
    object->size = size;
    return object;
}

/* A range of shapes. */
static char profile_set(Object *self, const char *name, int which, const Shape *shape) {
    add(self->outer, name)->range[which] = *shape;
    return 1;
}
static char profile_is_valid(Object *self) { return self->outer->tensors > 0; }
static void *profile_table[PLACES] = {destroy, destroy, [FIRST + 0] = profile_set, [FIRST + 7] = profile_is_valid};

/* The configuration of a build. */
static void config_clear(Object *self, int flag) { self->outer->flags &= ~(1u << flag); }
static char config_get(Object *self, int flag) { return self->outer->flags >> flag & 1; }
static int32_t config_add_profile(Object *self, Object *profile) {
    if (!profile->tensors) return -1;
    memcpy(self->outer->tensor, profile->tensor, sizeof profile->tensor);
    self->outer->tensors = profile->tensors;
    return 0;
}
static void *config_table[PLACES] = {destroy, destroy, [FIRST + 8] = config_clear, [FIRST + 10] = config_get,
    [FIRST + 23] = config_add_profile};

/* The builder. */
static void *nothing[PLACES] = {destroy, destroy};
static Object *builder_config(Object *self) {
    Object *config = make("N8nvinfer114IBuilderConfigE", config_table);
    config->flags = 1u << TF32;
    return config;
}
static Object *builder_network(Object *self, unsigned flags) {
    Object *network = make("N8nvinfer118INetworkDefinitionE", nothing);
    network->flags = flags;
    return network;
}
static Object *builder_profile(Object *self) { return make("N8nvinfer120IOptimizationProfileE", profile_table); }

static void write_shape(FILE *file, const Shape *shape) {
    fprintf(file, " %d", shape->count);
    for (int i = 0; i < shape->count; i++) fprintf(file, " %ld", (long)shape->sizes[i]);
}

static Object *builder_build(Object *self, Object *network, Object *config) {
    const char *fails = getenv("STAND_IN_TENSORRT_FAILS");
    char *text;
    size_t size;
    if (fails) return complain(self->outer->logger, fails), NULL;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, "engine %u %u\n", network->flags, config->flags);
    for (int i = 0; i < network->tensors; i++) {
        Tensor *tensor = &network->tensor[i], *range = find(config, tensor->name);
        fprintf(file, "%d %s %d", tensor->mode, tensor->name, tensor->type);
        write_shape(file, &tensor->shape);
        if (tensor->mode == INPUT && !range) {
            complain(self->outer->logger, "a dynamic input has no optimization profile");
            return NULL;
        }
        for (int which = 0; tensor->mode == INPUT && which < 3; which++) write_shape(file, &range->range[which]);
        fprintf(file, "\n");
    }
    fclose(file);
    int gpu = -1, (*current)(int *) = dlsym(dlopen("libcudart.so.13", RTLD_LAZY), "cudaGetDevice");
    if (current) current(&gpu);
    record("built\t%d", gpu);
    return bytes(text, size);
}
static void *builder_table[PLACES] = {destroy, destroy, [FIRST + 5] = builder_config, [FIRST + 6] = builder_network,
    [FIRST + 7] = builder_profile, [FIRST + 12] = builder_build};

void *createInferBuilder_INTERNAL(void *logger, int32_t version) {
    Object *builder = make("N8nvinfer18IBuilderE", builder_table);
    builder->logger = logger;
    return builder;
}

/* The parser reads the inputs and outputs of an ONNX file: messages of numbered fields. */
typedef struct { const unsigned char *at, *end; } Bytes;

static uint64_t varint(Bytes *bytes) {
    uint64_t value = 0;
    for (int shift = 0; bytes->at < bytes->end; shift += 7) {
        value |= (uint64_t)(*bytes->at & 127) << shift;
        if (*bytes->at++ < 128) break;
    }
    return value;
}

/* Returns the number of the next field, or 0; its content is in `inside`, or its value in `value`. */
static int field(Bytes *bytes, Bytes *inside, uint64_t *value) {
    if (bytes->at >= bytes->end) return 0;
    uint64_t key = varint(bytes);
    if ((key & 7) == 0) *value = varint(bytes);
    if ((key & 7) == 1) bytes->at += 8;
    if ((key & 7) == 5) bytes->at += 4;
    if ((key & 7) == 2) {
        size_t size = varint(bytes);
        inside->at = bytes->at;
        inside->end = bytes->at += size;
    }
    return key >> 3;
}

static void read_tensor(Bytes info, Object *network, int mode) {
    static const int types[] = {-1, 0, -1, 2, -1, -1, 3, 8, -1, 4, 1, -1, -1, -1, -1, -1, 7};
    Bytes inside, type, shape, dimension;
    Tensor *tensor = NULL;
    uint64_t value;
    for (int n; (n = field(&info, &inside, &value));) {
        if (n == 1) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(inside.end - inside.at), inside.at);
            tensor = add(network, name);
            tensor->mode = mode;
        }
        if (n != 2 || field(&inside, &type, &value) != 1) continue;
        for (int m; (m = field(&type, &shape, &value));) {
            if (m == 1) tensor->type = types[value];
            if (m != 2) continue;
            while (field(&shape, &dimension, &value)) {
                int64_t size = -1; /* a name, not a number */
                for (int k; (k = field(&dimension, &inside, &value));)
                    if (k == 1) size = value;
                tensor->shape.sizes[tensor->shape.count++] = size;
            }
        }
    }
}

static char parser_parse(Object *self, const char *path, int verbosity) {
    static unsigned char buffer[64 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        self->size = 1;
        return 0;
    }
    Bytes model = {buffer, buffer + fread(buffer, 1, sizeof buffer, file)}, graph, inside;
    uint64_t value;
    fclose(file);
    for (int n; (n = field(&model, &graph, &value));)
        if (n == 7)
            for (int m; (m = field(&graph, &inside, &value));)
                if (m == 11 || m == 12) read_tensor(inside, self->cache, m == 11 ? INPUT : OUTPUT);
    return self->cache->tensors > 0;
}
static const char *error_words(Object *self) { return "the file cannot be read"; }
static const char *error_place(Object *self) { return "file"; }
static int32_t parser_errors(Object *self) { return self->size; }
static Object *parser_error(Object *self, int index) {
    Object *error = make("N11nvonnxparser12IParserErrorE", NULL);
    error->table[1] = error_words;
    error->table[6] = error->table[7] = error_place;
    return error;
}

void *createNvOnnxParser_INTERNAL(void *network, void *logger, int version) {
    Object *parser = make("N11nvonnxparser7IParserE", NULL);
    parser->table[0] = NULL;
    parser->table[1] = parser_parse;
    parser->table[5] = parser_errors;
    parser->table[6] = parser_error;
    parser->table[8] = parser->table[9] = destroy;
    parser->cache = network;
    return parser;
}

/* An engine and its context, which is the same object with shapes. */
static char inside(const Shape *shape, const Tensor *tensor) {
    if (shape->count != tensor->shape.count) return 0;
    for (int i = 0; i < shape->count; i++)
        if (shape->sizes[i] < tensor->range[LEAST].sizes[i] || shape->sizes[i] > tensor->range[LARGEST].sizes[i]) return 0;
    return 1;
}
static char context_set_shape(Object *self, const char *name, const Shape *shape) {
    Tensor *tensor = find(self->outer, name);
    if (!tensor || tensor->mode != INPUT || !inside(shape, tensor)) return 0;
    tensor->now = *shape;
    return 1;
}
static Shape context_shape(Object *self, const char *name) {
    Tensor *tensor = find(self->outer, name);
    if (tensor->mode == INPUT) return tensor->now.count ? tensor->now : tensor->shape;
    Shape shape = tensor->shape; /* a size without a number is the batch's, of which outputs have rows */
    for (int i = 0; i < shape.count; i++)
        if (shape.sizes[i] < 0) shape.sizes[i] = self->outer->tensor[0].now.sizes[i];
    return shape;
}
static char context_set_address(Object *self, const char *name, void *data) {
    find(self->outer, name)->address = data;
    return 1;
}
static char context_run(Object *self, void *stream) {
    char line[512];
    int length = 0;
    for (int i = 0; i < self->outer->tensors; i++) {
        Tensor *tensor = &self->outer->tensor[i];
        if (!tensor->address || (tensor->mode == INPUT && !inside(&tensor->now, tensor))) return 0;
        if (tensor->mode == INPUT)
            length += snprintf(line + length, sizeof line - length, "%s%s %ldx%ld", length ? ", " : "", tensor->name,
                               (long)tensor->now.sizes[0], (long)tensor->now.sizes[1]);
    }
    record("engine\t%s", line);
    return 1;
}
static Object *context_engine(Object *self) { return self->outer->cache; }
static void *context_table[PLACES] = {destroy, destroy, [FIRST + 5] = context_engine, [FIRST + 19] = context_set_shape,
    [FIRST + 20] = context_shape, [FIRST + 22] = context_set_address, [FIRST + 35] = context_run};

static Object *engine_context(Object *self) {
    Object *context = make("N8nvinfer117IExecutionContextE", context_table);
    memcpy(context->tensor, self->outer->tensor, sizeof context->tensor);
    context->tensors = self->outer->tensors;
    context->cache = self->outer;
    return context;
}
static int32_t engine_count(Object *self) { return self->outer->tensors; }
static const char *engine_name(Object *self, int32_t index) { return self->outer->tensor[index].name; }
static int engine_mode(Object *self, const char *name) { return find(self->outer, name)->mode; }
static int engine_type(Object *self, const char *name) { return find(self->outer, name)->type; }
static Shape engine_shape(Object *self, const char *name) { return find(self->outer, name)->shape; }
static long engine_no(Object *self) { return 0; }
static int32_t engine_profiles(Object *self) { return 1; }
static Shape engine_range(Object *self, const char *name, int32_t profile, int which) {
    return find(self->outer, name)->range[which];
}
static void *engine_table[PLACES] = {destroy, destroy, [FIRST + 3] = engine_context, [FIRST + 4] = engine_context,
    [FIRST + 8] = engine_profiles, [FIRST + 17] = engine_shape, [FIRST + 18] = engine_type, [FIRST + 20] = engine_no,
    [FIRST + 21] = engine_mode, [FIRST + 27] = engine_range, [FIRST + 28] = engine_count, [FIRST + 29] = engine_name,
    [FIRST + 50] = engine_no};

static int read_shape(FILE *file, Shape *shape) {
    int right = fscanf(file, "%d", &shape->count) == 1 && shape->count <= DIMENSIONS;
    for (int i = 0; right && i < shape->count; i++) right = fscanf(file, "%ld", &shape->sizes[i]) == 1;
    return right;
}

static Object *runtime_load(Object *self, const void *data, size_t size) {
    Object *engine = make("N8nvinfer111ICudaEngineE", engine_table);
    FILE *file = fmemopen((void *)data, size, "r");
    Tensor tensor;
    unsigned network, builder;
    if (!file || fscanf(file, "engine %u %u", &network, &builder) != 2) return NULL;
    for (;;) {
        memset(&tensor, 0, sizeof tensor);
        if (fscanf(file, "%d %63s %d", &tensor.mode, tensor.name, &tensor.type) != 3) break;
        if (!read_shape(file, &tensor.shape)) return NULL;
        for (int which = 0; tensor.mode == INPUT && which < 3; which++)
            if (!read_shape(file, &tensor.range[which])) return NULL;
        engine->tensor[engine->tensors++] = tensor;
    }
    fclose(file);
    record("loaded\t%u\t%u\t%d", network, builder, engine->tensors);
    return engine->tensors ? engine : NULL;
}
static void *runtime_table[PLACES] = {destroy, destroy, [FIRST + 1] = runtime_load};

void *createInferRuntime_INTERNAL(void *logger, int32_t version) { return make("N8nvinfer18IRuntimeE", runtime_table); }

/* Plugins: there are none. */
static void **no_plugins(void *self, int32_t *count) {
    *count = 0;
    return NULL;
}
void *getPluginRegistry(void) {
    Object *registry = make("N8nvinfer115IPluginRegistryE", NULL);
    for (int i = 0; i < PLACES; i++) registry->table[i] = no_plugins;
    return registry;
}
void *getBuilderPluginRegistry(int capability) { return getPluginRegistry(); }
int initLibNvInferPlugins(void *logger, const char *space) { return 1; }
void *createInferRefitter_INTERNAL(void *engine, void *logger, int32_t version) { return NULL; }
void *createNvOnnxParserRefitter_INTERNAL(void *refitter, void *logger, int32_t version) { return NULL; }
int32_t getInferLibVersion(void) { return VERSION; }
int32_t getNvOnnxParserVersion(void) { return VERSION; }
