/* Operators that behave as the tests of custom operators need it. One source, several libraries: WRONG_ABI,
 * DUPLICATE, TAKEN_DOMAIN, REFUSES and EMPTY make libraries that cannot be loaded. */
#include <stdatomic.h>
#include <tensorbox/custom_op.h>

static atomic_int states_alive, computes;

TBX_EXPORT int test_states_alive(void) { return atomic_load(&states_alive); }
TBX_EXPORT int test_computes(void) { return atomic_load(&computes); }

static TbxStatus copy_compute(TbxComputeContext* ctx) {
  atomic_fetch_add(&computes, 1);
  memcpy(ctx->outputs[0].data, ctx->inputs[0].data, (size_t)tbx_numel(&ctx->inputs[0]) * sizeof(float));
  return TBX_OK;
}

/* y = start + the sum of all inputs that are given, with a state that holds `start`. */
static float starts[1024];
static atomic_int next_start;
static TbxStatus sum_create(TbxCreateContext* ctx) {
  int i = atomic_fetch_add(&next_start, 1) % 1024;
  starts[i] = tbx_float(ctx->node, "start", 0);
  ctx->state = &starts[i];
  atomic_fetch_add(&states_alive, 1);
  return TBX_OK;
}
static void sum_destroy(const TbxOperator* op, void* state) {
  (void)op;
  (void)state;
  atomic_fetch_sub(&states_alive, 1);
}
static TbxStatus sum_infer(TbxInferContext* ctx) {
  for (int32_t i = 0; i < ctx->num_inputs; ++i) {
    if (ctx->inputs[i].dtype == TBX_UNDEFINED) continue;
    if (ctx->inputs[i].dtype != TBX_FLOAT)
      return TBX_FAIL(ctx, TBX_MODEL_ERROR, "input %d is of type %d", (int)i, (int)ctx->inputs[i].dtype);
    tbx_set_like(&ctx->outputs[0], &ctx->inputs[i]);
  }
  return TBX_OK;
}
static TbxStatus sum_compute(TbxComputeContext* ctx) {
  float* y = ctx->outputs[0].data;
  const int64_t n = tbx_numel(&ctx->outputs[0]);
  for (int64_t i = 0; i < n; ++i) y[i] = *(const float*)ctx->state;
  for (int32_t k = 0; k < ctx->num_inputs; ++k)
    for (int64_t i = 0; ctx->inputs[k].dtype != TBX_UNDEFINED && i < n; ++i)
      y[i] += ((const float*)ctx->inputs[k].data)[i];
  return TBX_OK;
}

/* Reshape to the integers of input 1: known while compiling when that is a constant, in a run else. */
static TbxStatus shaped_infer(TbxInferContext* ctx) {
  const TbxTensor* shape = &ctx->inputs[1];
  const int64_t* sizes = shape->data;
  ctx->outputs[0].dtype = ctx->inputs[0].dtype;
  ctx->outputs[0].rank = (int32_t)shape->dims[0];
  for (int32_t d = 0; d < ctx->outputs[0].rank; ++d) ctx->outputs[0].dims[d] = sizes ? sizes[d] : TBX_UNKNOWN;
  return TBX_OK;
}

/* All attributes as text, in the model's order: [bytes] of uint8. */
static TbxStatus describe(const TbxNode* node, char* text, size_t size) {
  int at = snprintf(text, size, "%s %s.%s %d:", node->name, node->domain, node->op_type, (int)node->opset);
  for (size_t i = 0; i < node->num_attributes; ++i) {
    const TbxAttribute* a = &node->attributes[i];
    at += snprintf(text + at, size - (size_t)at, " %s=", a->name);
    if (a->kind == TBX_ATTRIBUTE_INT) at += snprintf(text + at, size - (size_t)at, "%d", (int)a->i);
    if (a->kind == TBX_ATTRIBUTE_FLOAT) at += snprintf(text + at, size - (size_t)at, "%g", a->f);
    if (a->kind == TBX_ATTRIBUTE_STRING) at += snprintf(text + at, size - (size_t)at, "'%s'", a->s.data);
    for (size_t k = 0; a->kind == TBX_ATTRIBUTE_INTS && k < a->count; ++k)
      at += snprintf(text + at, size - (size_t)at, "%d,", (int)a->ints[k]);
    for (size_t k = 0; a->kind == TBX_ATTRIBUTE_FLOATS && k < a->count; ++k)
      at += snprintf(text + at, size - (size_t)at, "%g,", a->floats[k]);
    for (size_t k = 0; a->kind == TBX_ATTRIBUTE_STRINGS && k < a->count; ++k)
      at += snprintf(text + at, size - (size_t)at, "'%s',", a->strings[k].data);
    if (a->kind == TBX_ATTRIBUTE_TENSOR)
      at += snprintf(text + at, size - (size_t)at, "%g", ((const float*)a->tensor->data)[0]);
  }
  return TBX_OK;
}
static TbxStatus describe_infer(TbxInferContext* ctx) {
  char text[512];
  describe(ctx->node, text, sizeof text);
  ctx->outputs[0].dtype = TBX_UINT8;
  ctx->outputs[0].rank = 1;
  ctx->outputs[0].dims[0] = (int64_t)strlen(text);
  return TBX_OK;
}
static TbxStatus describe_compute(TbxComputeContext* ctx) {
  char text[512];
  describe(ctx->node, text, sizeof text);
  memcpy(ctx->outputs[0].data, text, strlen(text));
  return TBX_OK;
}

/* What goes wrong is what the attribute `how` says. */
static int is_run(const TbxTensor* x) { return x->data != NULL; }
static TbxStatus wrong_infer(TbxInferContext* ctx) {
  const char* how = tbx_string(ctx->node, "how", "");
  TbxShape* y = &ctx->outputs[0];
  tbx_set_like(y, &ctx->inputs[0]);
  if (strcmp(how, "infer") == 0) return TBX_FAIL(ctx, TBX_MODEL_ERROR, "how is '%s'", how);
  if (strcmp(how, "unsupported") == 0) return TBX_FAIL(ctx, TBX_UNSUPPORTED, "not this way");
  if (strcmp(how, "silent") == 0) return TBX_BACKEND_ERROR;
  if (strcmp(how, "dtype") == 0) y->dtype = 99;
  if (strcmp(how, "string") == 0) y->dtype = 8;
  if (strcmp(how, "rank") == 0) y->rank = 65;
  if (strcmp(how, "other dtype") == 0 && is_run(&ctx->inputs[0])) y->dtype = TBX_INT32;
  if (strcmp(how, "other size") == 0 && is_run(&ctx->inputs[0])) y->dims[0] += 1;
  if (strcmp(how, "calculates") == 0) y->dims[0] = y->dims[0] * 2 + 1; /* with an unknown size, too */
  if (strcmp(how, "huge") == 0) y->dims[0] = is_run(&ctx->inputs[0]) ? INT64_MAX / 2 : TBX_UNKNOWN;
  if (strncmp(how, "allocate", 8) == 0) y->dims[0] = TBX_UNKNOWN;
  return TBX_OK;
}
static TbxStatus wrong_compute(TbxComputeContext* ctx) {
  const char* how = tbx_string(ctx->node, "how", "");
  int64_t sizes[2] = {-5, 1};
  if (strcmp(how, "compute") == 0) return TBX_FAIL(ctx, TBX_MODEL_ERROR, "the %s fails", "computation");
  if (strcmp(how, "allocate negative") == 0) return ctx->allocate(ctx, 0, 1, sizes);
  if (strcmp(how, "allocate rank") == 0) return ctx->allocate(ctx, 0, 2, sizes);
  if (strcmp(how, "allocate other") == 0) return ctx->allocate(ctx, 7, 1, sizes);
  if (strcmp(how, "calculates") == 0)
    memset(ctx->outputs[0].data, 0, (size_t)tbx_numel(&ctx->outputs[0]) * sizeof(float));
  return TBX_OK;
}

/* How often it was computed: equal nodes must stay two. */
static TbxStatus count_compute(TbxComputeContext* ctx) {
  static atomic_int count;
  *(float*)ctx->outputs[0].data = (float)atomic_fetch_add(&count, 1);
  return TBX_OK;
}

static TbxStatus add(const TbxOperatorRegistry* registry, const char* name,
                     TbxStatus (*infer)(TbxInferContext*), TbxStatus (*compute)(TbxComputeContext*),
                     int inputs) {
  TbxOperator op = TBX_OPERATOR("test.custom", name, 1);
  op.min_inputs = op.max_inputs = inputs;
  op.infer = infer;
  op.compute = compute;
  if (strcmp(name, "Count") == 0) op.flags = TBX_NOT_A_FUNCTION;
#if defined(WRONG_ABI)
  op.abi += 1;
#elif defined(TAKEN_DOMAIN)
  op.domain = "ai.onnx.ml";
#endif
  return registry->add(registry, &op);
}

TBX_EXPORT TbxStatus tensorbox_register_operators(const TbxOperatorRegistry* registry) {
#if defined(REFUSES)
  return TBX_FAIL(registry, TBX_UNSUPPORTED, "tensorbox %s is not for us", "of today");
#elif defined(EMPTY)
  (void)add;
  return TBX_OK;
#endif
  TbxStatus status = add(registry, "Copy", NULL, copy_compute, 1);
#if defined(DUPLICATE)
  if (status == TBX_OK) status = add(registry, "Copy", NULL, copy_compute, 1);
#endif
  if (status == TBX_OK) status = add(registry, "Shaped", shaped_infer, copy_compute, 2);
  if (status == TBX_OK) status = add(registry, "Describe", describe_infer, describe_compute, 0);
  if (status == TBX_OK) status = add(registry, "Wrong", wrong_infer, wrong_compute, 1);
  if (status == TBX_OK) status = add(registry, "Count", NULL, count_compute, 1);
  if (status != TBX_OK) return status;
  TbxOperator sum = TBX_OPERATOR("test.custom", "Sum", 3);
  sum.min_inputs = 2;
  sum.max_inputs = TBX_VARIADIC;
  sum.optional_inputs = 1u << 1;
  sum.infer = sum_infer;
  sum.create = sum_create;
  sum.destroy = sum_destroy;
  sum.compute = sum_compute;
  return registry->add(registry, &sum);
}
