/* Two operators of the domain "example.signal":
 *
 *   FirFilter(x [..., n], taps [k], bias [] (optional)) -> y [..., n - k + 1], float32
 *     y[..., i] = sum over j of taps[j] * x[..., i + j] (+ bias); attribute gain (float, 1): y is multiplied
 * by it. Peaks(x [n]) -> positions [number of peaks], int64 the positions of the elements that are larger
 * than both neighbours.
 *
 * FirFilter shows shape inference with unknown sizes, an attribute, an optional input, a state that is
 * prepared once per node, and the threads of the session. Peaks shows an output whose size only the data
 * tells. */
#include <stdlib.h>
#include <tensorbox/custom_op.h>

/* --- FirFilter --- */

static TbxStatus fir_infer(TbxInferContext* ctx) {
  const TbxTensor *x = &ctx->inputs[0], *taps = &ctx->inputs[1];
  TbxShape* y = &ctx->outputs[0];
  if (x->dtype != TBX_FLOAT || taps->dtype != TBX_FLOAT)
    return TBX_FAIL(ctx, TBX_MODEL_ERROR, "x and taps have the types %d and %d, expected float32",
                    (int)x->dtype, (int)taps->dtype);
  if (x->rank < 1 || taps->rank != 1)
    return TBX_FAIL(ctx, TBX_MODEL_ERROR, "x and taps have the ranks %d and %d, expected 1 or more and 1",
                    (int)x->rank, (int)taps->rank);
  tbx_set_like(y, x); /* passes on what is known of the other dimensions, unknown ones included */
  const int64_t n = x->dims[x->rank - 1], k = taps->dims[0];
  if (n < 0 || k < 0) {
    y->dims[x->rank - 1] = TBX_UNKNOWN;
    return TBX_OK;
  }
  if (k < 1 || k > n)
    return TBX_FAIL(ctx, TBX_MODEL_ERROR, "%lld taps do not fit into %lld samples", (long long)k,
                    (long long)n);
  y->dims[x->rank - 1] = n - k + 1;
  return TBX_OK;
}

typedef struct Fir {
  float gain;
} Fir;

static TbxStatus fir_create(TbxCreateContext* ctx) {
  Fir* fir = malloc(sizeof *fir);
  if (!fir) return TBX_FAIL(ctx, TBX_BACKEND_ERROR, "out of memory");
  fir->gain = tbx_float(ctx->node, "gain", 1.0f);
  ctx->state = fir;
  return TBX_OK;
}

static void fir_destroy(const TbxOperator* op, void* state) {
  (void)op;
  free(state);
}

typedef struct FirRows {
  const float *x, *taps;
  float* y;
  int64_t n, k;
  float bias, gain;
} FirRows;

static void fir_rows(void* data, int64_t begin, int64_t end) {
  const FirRows* f = data;
  const int64_t out = f->n - f->k + 1;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t i = 0; i < out; ++i) {
      float sum = f->bias;
      for (int64_t j = 0; j < f->k; ++j) sum += f->taps[j] * f->x[row * f->n + i + j];
      f->y[row * out + i] = f->gain * sum;
    }
}

static TbxStatus fir_compute(TbxComputeContext* ctx) {
  const TbxTensor *x = &ctx->inputs[0], *taps = &ctx->inputs[1];
  const int has_bias = ctx->num_inputs > 2 && ctx->inputs[2].dtype != TBX_UNDEFINED;
  FirRows f;
  f.x = x->data;
  f.taps = taps->data;
  f.y = ctx->outputs[0].data;
  f.n = x->dims[x->rank - 1];
  f.k = taps->dims[0];
  f.bias = has_bias ? *(const float*)ctx->inputs[2].data : 0.0f;
  f.gain = ((const Fir*)ctx->state)->gain;
  const int64_t rows = tbx_numel(x) / f.n; /* n >= k >= 1: infer was called with these sizes */
  const int64_t work = (f.n - f.k + 1) * f.k;
  ctx->parallel_for(ctx, rows, 1 + 65536 / (work + 1), fir_rows, &f);
  return TBX_OK;
}

/* --- Peaks --- */

static TbxStatus peaks_infer(TbxInferContext* ctx) {
  const TbxTensor* x = &ctx->inputs[0];
  if (x->dtype != TBX_FLOAT || x->rank != 1)
    return TBX_FAIL(ctx, TBX_MODEL_ERROR, "x has the type %d and the rank %d, expected float32 of rank 1",
                    (int)x->dtype, (int)x->rank);
  ctx->outputs[0].dtype = TBX_INT64;
  ctx->outputs[0].rank = 1;
  ctx->outputs[0].dims[0] = TBX_UNKNOWN; /* in a run, too: compute allocates */
  return TBX_OK;
}

static int is_peak(const float* x, int64_t n, int64_t i) {
  return i > 0 && i + 1 < n && x[i] > x[i - 1] && x[i] > x[i + 1];
}

static TbxStatus peaks_compute(TbxComputeContext* ctx) {
  const float* x = ctx->inputs[0].data;
  const int64_t n = ctx->inputs[0].dims[0];
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += is_peak(x, n, i);
  const TbxStatus status = ctx->allocate(ctx, 0, 1, &count);
  if (status != TBX_OK) return status;
  int64_t* positions = ctx->outputs[0].data;
  for (int64_t i = 0; i < n; ++i)
    if (is_peak(x, n, i)) *positions++ = i;
  return TBX_OK;
}

/* --- what the library exports --- */

TBX_EXPORT TbxStatus tensorbox_register_operators(const TbxOperatorRegistry* registry) {
  TbxOperator fir = TBX_OPERATOR("example.signal", "FirFilter", 1);
  fir.min_inputs = 2;
  fir.max_inputs = 3;
  fir.infer = fir_infer;
  fir.create = fir_create;
  fir.destroy = fir_destroy;
  fir.compute = fir_compute;
  const TbxStatus status = registry->add(registry, &fir);
  if (status != TBX_OK) return status;

  TbxOperator peaks = TBX_OPERATOR("example.signal", "Peaks", 1);
  peaks.min_inputs = peaks.max_inputs = 1;
  peaks.infer = peaks_infer;
  peaks.compute = peaks_compute;
  return registry->add(registry, &peaks);
}
