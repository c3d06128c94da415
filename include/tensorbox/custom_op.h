/* Custom operators: the C interface between tensorbox and shared libraries that bring operators of their own.
 *
 * A library exports one function, tensorbox_register_operators, which describes its operators with
 * `registry->add`. Libraries are loaded when the user names them (CompileOptions::operator_libraries,
 * Session(..., operator_libraries=[...]), tbx --operators), never because a model asks for one.
 *
 *     static TbxStatus infer(TbxInferContext* ctx) {
 *       tbx_set_like(&ctx->outputs[0], &ctx->inputs[0]);
 *       return TBX_OK;
 *     }
 *     static TbxStatus compute(TbxComputeContext* ctx) {
 *       ... ctx->inputs[0].data ... ctx->outputs[0].data ...
 *     }
 *     TBX_EXPORT TbxStatus tensorbox_register_operators(const TbxOperatorRegistry* registry) {
 *       TbxOperator op = TBX_OPERATOR("my.domain", "Twice", 1);
 *       op.min_inputs = op.max_inputs = 1;
 *       op.infer = infer;
 *       op.compute = compute;
 *       return registry->add(registry, &op);
 *     }
 *
 * Everything here is C99 and plain data. Structs only ever grow at their end; `size` says how much of a
 * struct the other side knows. Tensors are dense and row-major. bool, and every type of less than a byte,
 * takes one byte per element (int4: sign-extended); float16 and its kin are their bits.
 * docs/custom_operators.md is the guide. */
#ifndef TENSORBOX_CUSTOM_OP_H
#define TENSORBOX_CUSTOM_OP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define TBX_EXPORT __declspec(dllexport)
#else
#define TBX_EXPORT __attribute__((visibility("default")))
#endif

/* Version of this interface: raised when a library built for an older one would no longer work. */
#define TBX_OPERATOR_ABI 1u
#define TBX_OPERATOR_ENTRY "tensorbox_register_operators"

/* What callbacks return. The user gets an error of this kind with the message, the node, the operator and the
 * library. */
typedef int32_t TbxStatus;
enum {
  TBX_OK = 0,
  TBX_MODEL_ERROR = 1,  /* the model or an input is wrong: rank, type, attribute, value */
  TBX_UNSUPPORTED = 2,  /* right, but not done by this operator */
  TBX_BACKEND_ERROR = 3 /* the operator failed: memory, a device, a library */
};

/* Element types; the numbers of onnx.TensorProto.DataType. Strings and complex numbers are not passed. */
enum {
  TBX_UNDEFINED = 0, /* an input that is left out */
  TBX_FLOAT = 1,
  TBX_UINT8 = 2,
  TBX_INT8 = 3,
  TBX_UINT16 = 4,
  TBX_INT16 = 5,
  TBX_INT32 = 6,
  TBX_INT64 = 7,
  TBX_BOOL = 9,
  TBX_FLOAT16 = 10,
  TBX_DOUBLE = 11,
  TBX_UINT32 = 12,
  TBX_UINT64 = 13,
  TBX_BFLOAT16 = 16,
  TBX_FLOAT8E4M3FN = 17,
  TBX_FLOAT8E4M3FNUZ = 18,
  TBX_FLOAT8E5M2 = 19,
  TBX_FLOAT8E5M2FNUZ = 20,
  TBX_UINT4 = 21,
  TBX_INT4 = 22,
  TBX_FLOAT4E2M1 = 23,
  TBX_FLOAT8E8M0 = 24,
  TBX_UINT2 = 25,
  TBX_INT2 = 26,
  TBX_FLOAT6E2M3 = 27,
  TBX_FLOAT6E3M2 = 28
};

/* A size that is not known yet. Any negative size of an input is unknown; equal negative numbers are equal
 * sizes, so an infer function that copies sizes passes on what is known. Calculate with sizes that are >= 0
 * only, and give TBX_UNKNOWN for the rest. */
#define TBX_UNKNOWN (-1)
#define TBX_VARIADIC (-1)
#define TBX_MAX_RANK 64

/* An input or output of a call. */
typedef struct TbxTensor {
  int32_t dtype; /* TBX_UNDEFINED: left out */
  int32_t rank;
  const int64_t* dims;
  void* data; /* inputs: not to be written. NULL where the elements are not known (yet) */
} TbxTensor;

/* Type and shape of an output. */
typedef struct TbxShape {
  int32_t dtype;
  int32_t rank;
  int64_t dims[TBX_MAX_RANK];
} TbxShape;

/* Bytes; a zero byte follows that `size` does not count. */
typedef struct TbxString {
  const char* data;
  size_t size;
} TbxString;

/* Kinds of attributes. */
enum {
  TBX_ATTRIBUTE_INT = 1,
  TBX_ATTRIBUTE_FLOAT = 2,
  TBX_ATTRIBUTE_STRING = 3,
  TBX_ATTRIBUTE_TENSOR = 4,
  TBX_ATTRIBUTE_INTS = 5,
  TBX_ATTRIBUTE_FLOATS = 6,
  TBX_ATTRIBUTE_STRINGS = 7
};

/* An attribute of a node: the functions tbx_int, tbx_float, ... find and read one. */
typedef struct TbxAttribute {
  const char* name;
  int32_t kind; /* which of the following is set */
  size_t count; /* elements of ints, floats, strings; else 1 */
  int64_t i;
  float f;
  TbxString s;
  const int64_t* ints;
  const float* floats;
  const TbxString* strings;
  const TbxTensor* tensor;
} TbxAttribute;

/* A node of a model. Attributes are those the model gives; defaults are the operator's business. */
typedef struct TbxNode {
  uint32_t size;
  int32_t opset;    /* version of `domain` that the model imports */
  const char* name; /* may be empty */
  const char* op_type;
  const char* domain;
  int32_t num_inputs, num_outputs;
  size_t num_attributes;
  const TbxAttribute* attributes;
} TbxNode;

/* What a library registers; see below. */
typedef struct TbxOperator TbxOperator;

/* infer: types and shapes of the outputs. Called while a model is imported and compiled, with every size and
 * element that is known then (constants have `data`), and again in every run, with all sizes and all
 * elements. May be called by many threads at once. What it gave as known must be the same later. */
typedef struct TbxInferContext {
  uint32_t size;
  const TbxOperator* op;
  const TbxNode* node;
  int32_t num_inputs, num_outputs;
  const TbxTensor* inputs;
  TbxShape* outputs; /* to be filled in; dtype comes as TBX_UNDEFINED */
  char* message;     /* for TBX_FAIL */
  size_t message_size;
} TbxInferContext;

/* create: prepares what all runs of a node need (tables, packed weights). Called when a model is compiled,
 * perhaps several times for one node; every state goes to `destroy` in the end. */
typedef struct TbxCreateContext {
  uint32_t size;
  const TbxOperator* op;
  const TbxNode* node;
  int32_t num_inputs;
  const TbxTensor* inputs; /* as for infer; the data of constants outlives the state */
  void* state;             /* to be set */
  char* message;
  size_t message_size;
} TbxCreateContext;

/* compute: one run of a node. Called by many threads at once, with the same state, which it must not change
 * without a lock of its own. `outputs` have memory (64-byte aligned unless the caller of the model gave his
 * own), save those of which infer did not know a size even now: those are made with `allocate`. */
typedef struct TbxComputeContext {
  uint32_t size;
  const TbxOperator* op;
  const TbxNode* node;
  void* state; /* of create; NULL without one */
  int32_t num_inputs, num_outputs;
  const TbxTensor* inputs;
  TbxTensor* outputs;
  /* Memory for an output whose size only compute knows; sets outputs[output]. Once per output. */
  TbxStatus (*allocate)(struct TbxComputeContext* ctx, int32_t output, int32_t rank, const int64_t* dims);
  /* Calls `body` with parts of [0, count), each of at least `grain` (>= 1), on the threads of the session;
   * returns when all are done. */
  void (*parallel_for)(struct TbxComputeContext* ctx, int64_t count, int64_t grain,
                       void (*body)(void* data, int64_t begin, int64_t end), void* data);
  char* message;
  size_t message_size;
  void* runtime; /* tensorbox's own */
} TbxComputeContext;

/* Flags of an operator. */
enum {
  TBX_NOT_A_FUNCTION =
      1u /* equal inputs may give other outputs (random numbers, time): equal nodes stay apart */
};

/* An operator, as of one version of its domain. Set it up with TBX_OPERATOR; `add` copies it. */
struct TbxOperator {
  uint32_t abi;       /* TBX_OPERATOR_ABI */
  uint32_t size;      /* sizeof(TbxOperator) */
  const char* domain; /* not one of ONNX's own ("", "ai.onnx...") */
  const char* name;
  int32_t since_version; /* a node is read by the newest one that is not newer than its opset */
  uint32_t flags;
  int32_t min_inputs, max_inputs;   /* max: TBX_VARIADIC for any number */
  int32_t min_outputs, max_outputs; /* likewise */
  uint64_t optional_inputs;         /* bit i: input i may be left out although i < min_inputs */
  void* user_data;
  TbxStatus (*infer)(TbxInferContext* ctx);   /* NULL: all outputs are like input 0 */
  TbxStatus (*create)(TbxCreateContext* ctx); /* NULL: no state */
  void (*destroy)(const TbxOperator* op, void* state);
  TbxStatus (*compute)(TbxComputeContext* ctx); /* needed */
};

/* Where a library registers its operators. */
typedef struct TbxOperatorRegistry {
  uint32_t abi; /* TBX_OPERATOR_ABI of the tensorbox that loads */
  uint32_t size;
  const char* tensorbox_version;
  /* Not TBX_OK for a descriptor that cannot be; return what it gives. */
  TbxStatus (*add)(const struct TbxOperatorRegistry* registry, const TbxOperator* op);
  char* message;
  size_t message_size;
  void* runtime; /* tensorbox's own */
} TbxOperatorRegistry;

/* What a library exports, under this name. Called once per process. */
TBX_EXPORT TbxStatus tensorbox_register_operators(const TbxOperatorRegistry* registry);

/* --- helpers --- */

/* return TBX_FAIL(ctx, TBX_MODEL_ERROR, "axis is %d", axis); */
#define TBX_FAIL(ctx, status, ...)                                                                           \
  (snprintf((ctx)->message, (ctx)->message_size, __VA_ARGS__), (TbxStatus)(status))

/* A descriptor with one output and without flags. */
static inline TbxOperator tbx_operator(const char* domain, const char* name, int32_t since_version) {
  TbxOperator op;
  memset(&op, 0, sizeof op);
  op.abi = TBX_OPERATOR_ABI;
  op.size = (uint32_t)sizeof op;
  op.domain = domain;
  op.name = name;
  op.since_version = since_version;
  op.min_outputs = op.max_outputs = 1;
  return op;
}
#define TBX_OPERATOR(domain, name, since_version) tbx_operator(domain, name, since_version)

/* The attribute, or NULL where the model gives none of this name and kind. */
static inline const TbxAttribute* tbx_attribute(const TbxNode* node, const char* name, int32_t kind) {
  for (size_t i = 0; i < node->num_attributes; ++i)
    if (node->attributes[i].kind == kind && strcmp(node->attributes[i].name, name) == 0)
      return &node->attributes[i];
  return NULL; /* NOLINT(modernize-use-nullptr): C has none */
}
static inline int64_t tbx_int(const TbxNode* node, const char* name, int64_t otherwise) {
  const TbxAttribute* a = tbx_attribute(node, name, TBX_ATTRIBUTE_INT);
  return a ? a->i : otherwise;
}
static inline float tbx_float(const TbxNode* node, const char* name, float otherwise) {
  const TbxAttribute* a = tbx_attribute(node, name, TBX_ATTRIBUTE_FLOAT);
  return a ? a->f : otherwise;
}
static inline const char* tbx_string(const TbxNode* node, const char* name, const char* otherwise) {
  const TbxAttribute* a = tbx_attribute(node, name, TBX_ATTRIBUTE_STRING);
  return a ? a->s.data : otherwise;
}

/* The number of elements; all sizes must be known. */
static inline int64_t tbx_numel(const TbxTensor* t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->rank; ++d) n *= t->dims[d];
  return n;
}

/* The output has type and shape of this tensor. */
static inline void tbx_set_like(TbxShape* out, const TbxTensor* t) {
  out->dtype = t->dtype;
  out->rank = t->rank;
  for (int32_t d = 0; d < t->rank && d < TBX_MAX_RANK; ++d) out->dims[d] = t->dims[d];
}

#ifdef __cplusplus
}
#endif

#endif
