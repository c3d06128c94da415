/* tensorbox in C (C11): load a package or compile a model, ask what it takes and gives, run it, from any
 * thread.
 *
 *   tbx_error* error = NULL;
 *   tbx_session* session = tbx_load("model.tbx", NULL, &error);
 *   float x[8] = {0};
 *   int64_t dims[] = {1, 8};
 *   tbx_tensor in = {"x", TBX_FLOAT, 2, dims, x};
 *   tbx_outputs* out = session ? tbx_run(session, &in, 1, &error) : NULL;
 *   if (error) fprintf(stderr, "%s\n", tbx_error_text(error));
 *
 * Handles are opaque and freed with their own functions, which take NULL, too. A function that can fail gives
 * NULL (or a negative number) and, where `error` is not NULL, sets *error, which the caller frees; it never
 * throws and never ends the process. Structs of options may grow at their end: they begin with the size that
 * the caller knows. */
#ifndef TENSORBOX_C_H
#define TENSORBOX_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TBX_C_API
#else
#define TBX_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A model that is ready to run, what a run gave, and why something failed. */
typedef struct tbx_session tbx_session;
typedef struct tbx_outputs tbx_outputs;
typedef struct tbx_error tbx_error;

/* What failed: the model or an input, what is not supported, a compiler, library or file, tensorbox itself.
 */
typedef enum {
  TBX_MODEL_ERROR = 1,
  TBX_UNSUPPORTED_ERROR = 2,
  TBX_BACKEND_ERROR = 3,
  TBX_INTERNAL_ERROR = 4
} tbx_error_code;

/* What kind of error it is. */
TBX_C_API tbx_error_code tbx_error_kind(const tbx_error* error);
/* UTF-8: names node, cause and way out. Valid as long as the error. */
TBX_C_API const char* tbx_error_text(const tbx_error* error);
TBX_C_API void tbx_error_free(tbx_error* error);

/* Element types: numbers of onnx.TensorProto.DataType; those that C has no type for lie in memory as their
 * bits, types of less than a byte with one element per byte. */
typedef enum {
  TBX_FLOAT = 1,
  TBX_UINT8 = 2,
  TBX_INT8 = 3,
  TBX_UINT16 = 4,
  TBX_INT16 = 5,
  TBX_INT32 = 6,
  TBX_INT64 = 7,
  TBX_STRING = 8,
  TBX_BOOL = 9,
  TBX_FLOAT16 = 10,
  TBX_DOUBLE = 11,
  TBX_UINT32 = 12,
  TBX_UINT64 = 13,
  TBX_COMPLEX64 = 14,
  TBX_COMPLEX128 = 15,
  TBX_BFLOAT16 = 16
} tbx_type;

/* A dense row-major tensor in somebody's memory. The data of TBX_STRING is an array of const char*. */
typedef struct {
  const char* name;
  int32_t type; /* tbx_type */
  int32_t rank;
  const int64_t* dims;
  const void* data;
} tbx_tensor;

/* Fallbacks and warnings: `message` is UTF-8 and valid during the call, which may come from several threads
 * at once and must not end but by returning. `context` is log_context of the options. */
typedef void (*tbx_log)(const char* message, void* context);

/* Set `size` to sizeof(tbx_options) and the rest to 0 for what is usual. */
typedef struct {
  size_t size;
  int32_t threads;         /* 0: what the machine grants */
  int32_t private_threads; /* not 0: an arena of its own */
  int32_t evaluate;        /* not 0: no native kernels */
  const char* isa;         /* "avx512", "avx2", "sse"; NULL: the best */
  int64_t max_memory;      /* bytes that a run may take for its results; 0: no limit */
  int64_t time_limit_ms;   /* of a run; 0: no limit */
  const char* device;      /* "cuda", "cuda:1": of tbx_compile and tbx_load; NULL or "cpu": the CPU */
  const char* state; /* of tbx_compile: "past_key_values.*=present.*", more of them behind commas: inputs that
                      * the session keeps, and the outputs that they are in the next run; NULL: none */
  int64_t state_capacity; /* room for so many along the dimension that grows; 0: it grows
                           * as runs need it */
  int32_t tiered; /* of tbx_compile, not 0: first runs by the evaluator while the C++ compiler works behind
                     them */
  /* What is compiled is decided by these; with tbx_load they are errors. */
  const char* dims;      /* fixes sizes of the model: "batch=8", more of them behind commas; NULL: none */
  const char* precision; /* "strict", "tf32", "bf16", "f16", "any" (docs/precision.md); NULL: "strict" */
  const char* disabled_passes; /* names of passes, behind commas; NULL: none */
  tbx_log log;                 /* NULL: nothing is said */
  void* log_context;
  const int64_t* seed; /* of random operators, as docs/random.md says; NULL: another one every time */
  /* Of tbx_compile; with tbx_load they are errors. */
  int32_t untrusted;  /* not 0: the model comes from a stranger, and all limits of docs/security.md hold */
  const char* limits; /* by their names in C++: "max_nodes=200000", more of them behind commas; NULL: the
                       * usual ones */
  const char* const* operator_libraries; /* paths of libraries with operators of your own
                                          * (docs/custom_operators.md), NULL behind the last; NULL: none */
  const char* cache_dir;         /* of compiled kernels; NULL: $TBX_CACHE_DIR or ~/.cache/tensorbox/kernels */
  const char* external_data_dir; /* of tbx_compile_bytes: the folder of the model's external data; NULL: it
                                  * may have none */
  int64_t state_limit;   /* of tbx_compile: the room of the state grows up to this; 0: see state_capacity */
  int32_t no_kept_plans; /* of tbx_compile, not 0: compiles the model anew, and keeps nothing of that for the
                          * next session of it (docs/kernels.md) */
} tbx_options;

/* A package of `tbx compile`, which is native code: load none from a stranger. `options` may be NULL. */
TBX_C_API tbx_session* tbx_load(const char* package_file, const tbx_options* options, tbx_error** error);
/* An ONNX file; in libtensorbox, not in libtensorbox_runtime. */
TBX_C_API tbx_session* tbx_compile(const char* onnx_file, const tbx_options* options, tbx_error** error);
/* The same of a model in memory, which is not read after the call. */
TBX_C_API tbx_session* tbx_compile_bytes(const void* onnx_bytes, size_t size, const tbx_options* options,
                                         tbx_error** error);
/* Writes a package of a compiled session; `isas` is "avx512,avx2" or NULL for the session's own. 0, or -1. */
TBX_C_API int tbx_save(const tbx_session* session, const char* package_file, const char* isas,
                       tbx_error** error);
/* Set `size` to sizeof(tbx_save_options) and the rest to 0 for what is usual. */
typedef struct {
  size_t size;
  const char* isas;          /* as above */
  const char* architectures; /* of a session on a GPU: "sm_90", more of them behind commas; NULL: its own */
  int32_t for_inputs_seen;   /* not 0: where code depends on values or shapes that only a run brings, the
                              * package has that of the runs so far, and refuses others (docs/packages.md) */
} tbx_save_options;
TBX_C_API int tbx_save_with(const tbx_session* session, const char* package_file,
                            const tbx_save_options* options, tbx_error** error);
TBX_C_API void tbx_session_free(tbx_session* session);

/* An input or output of the model. Pointers are valid as long as the session. */
typedef struct {
  const char* name;
  int32_t type;            /* tbx_type; 0: no tensor, but a value of the type `type_name` */
  int32_t rank;            /* -1: the model leaves it open */
  const char* type_name;   /* "float32", "sequence(tensor(int64))" */
  const char* const* dims; /* numbers, or names of sizes that a run decides */
} tbx_info;

/* How many inputs and outputs there are to ask about. */
TBX_C_API size_t tbx_num_inputs(const tbx_session* session);
TBX_C_API size_t tbx_num_outputs(const tbx_session* session);
/* Of all zeros where there is none of this number. */
TBX_C_API tbx_info tbx_input(const tbx_session* session, size_t number);
TBX_C_API tbx_info tbx_output(const tbx_session* session, size_t number);

/* What the model file says of itself: "producer_name", "producer_version", "graph_name", "domain",
 * "description", "graph_description" or "version" (model_version, a number). NULL where it says nothing.
 * Texts are UTF-8, as far as the file's are, and valid as long as the session. */
TBX_C_API const char* tbx_metadata(const tbx_session* session, const char* name);
/* Of its metadata_props, such as the names of classes: the value of a key, NULL where there is none. */
TBX_C_API const char* tbx_custom_metadata(const tbx_session* session, const char* key);
/* How many of those there are, and their keys in alphabetical order; NULL where there is none of this number.
 */
TBX_C_API size_t tbx_num_custom_metadata(const tbx_session* session);
TBX_C_API const char* tbx_custom_metadata_key(const tbx_session* session, size_t number);

/* Runs the model: inputs by name in any order, read during the call alone. Callable from many threads at
 * once. Models whose inputs and outputs are tensors; tbx_run_values takes others. */
TBX_C_API tbx_outputs* tbx_run(const tbx_session* session, const tbx_tensor* inputs, size_t num_inputs,
                               tbx_error** error);

/* Ends runs that it is given to, at the places where a limit of time would (docs/security.md), with a
 * TBX_MODEL_ERROR: those that have begun, and all to come. To be freed behind the last of them. */
typedef struct tbx_cancellation tbx_cancellation;
TBX_C_API tbx_cancellation* tbx_cancellation_new(void);
/* From any thread. */
TBX_C_API void tbx_cancel(tbx_cancellation* cancellation);
TBX_C_API void tbx_cancellation_free(tbx_cancellation* cancellation);

/* Of sessions on a GPU (docs/gpu.md), but for the last field. Set `size` to sizeof(tbx_run_options) and the
 * rest to 0 for what is usual. */
typedef struct {
  size_t size;
  /* By place in `inputs`: -1, or the number of the GPU whose memory `data` is, that of the session. NULL: all
   * of them are on the host. */
  const int32_t* input_devices;
  /* By place in the model, names left out: memory to write to, or a NULL `data` to let the session allocate.
   * NULL: it allocates all. */
  const tbx_tensor* outputs;
  const int32_t* output_devices; /* of those, or of what the session allocates; NULL: all on the host */
  int32_t on_stream;             /* not 0: the run is work of `stream`, a cudaStream_t or CUstream */
  void* stream;                  /* NULL: the default stream */
  int32_t async; /* not 0: with on_stream, returns when the stream was asked for everything. Outputs are on
                  * the GPU; inputs there must live until the stream is there. */
  const tbx_cancellation* cancellation; /* NULL: the run goes on to its end */
} tbx_run_options;
TBX_C_API tbx_outputs* tbx_run_with(const tbx_session* session, const tbx_tensor* inputs, size_t num_inputs,
                                    const tbx_run_options* options, tbx_error** error);
/* Of a session with state: how long it is along the dimension that grows, and another one: all of its
 * tensors, dense, on the host, or none, which makes it empty. 0, or -1. */
TBX_C_API int64_t tbx_state_length(const tbx_session* session);
TBX_C_API int tbx_set_state(const tbx_session* session, const tbx_tensor* state, size_t count,
                            tbx_error** error);
/* The GPU that runs the model: its number; -1: none does. */
TBX_C_API int32_t tbx_device(const tbx_session* session);
/* Waits for all runs with `async`. 0, or -1 with the error of one that failed. */
TBX_C_API int tbx_synchronize(const tbx_session* session, tbx_error** error);
/* The number of the GPU that an output lies on; -1: it is on the host. */
TBX_C_API int32_t tbx_outputs_device(const tbx_outputs* outputs, size_t number);

/* How many outputs a run gave. */
TBX_C_API size_t tbx_outputs_count(const tbx_outputs* outputs);
/* In the model's order, valid as long as the outputs; of all zeros where there is none of this number. */
TBX_C_API tbx_tensor tbx_outputs_at(const tbx_outputs* outputs, size_t number);
TBX_C_API void tbx_outputs_free(tbx_outputs* outputs);

/* What a value is. An optional is its element, or nothing. */
typedef enum { TBX_NONE = 0, TBX_TENSOR = 1, TBX_SEQUENCE = 2, TBX_MAP = 3 } tbx_kind;

/* A value of any ONNX type. */
typedef struct tbx_value tbx_value;
struct tbx_value {
  const char* name;  /* of the input or output; of what is inside of another value NULL */
  int32_t kind;      /* tbx_kind */
  tbx_tensor tensor; /* of a tensor, on the host; its own name counts for nothing */
  size_t count;      /* of `elements` */
  /* Of a sequence; of a map two tensors of one dimension and of equal length: its keys, its values. */
  const tbx_value* elements;
};

/* What a run gave, as values. */
typedef struct tbx_values tbx_values;

/* As tbx_run, for models with inputs and outputs of any type. An optional input may be left out. */
TBX_C_API tbx_values* tbx_run_values(const tbx_session* session, const tbx_value* inputs, size_t num_inputs,
                                     tbx_error** error);
/* How many outputs a run gave. */
TBX_C_API size_t tbx_values_count(const tbx_values* values);
/* In the model's order, valid as long as the values; of all zeros where there is none of this number. */
TBX_C_API tbx_value tbx_values_at(const tbx_values* values, size_t number);
TBX_C_API void tbx_values_free(tbx_values* values);

/* "0.1.0" */
TBX_C_API const char* tbx_version(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSORBOX_C_H */
