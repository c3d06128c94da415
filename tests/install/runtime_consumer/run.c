/* run PACKAGE: loads it, shows its signature, and runs it with elements 0, 1/8, 2/8, ... (sizes that are open: 2). */
#include <stdio.h>
#include <stdlib.h>

#include "tensorbox/c.h"

static int fail(tbx_error* error) {
  fprintf(stderr, "%d: %s\n", (int)tbx_error_kind(error), tbx_error_text(error));
  tbx_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  tbx_error* error = NULL;
  tbx_options options = {0};
  options.size = sizeof options;
  options.threads = 1;
  tbx_session* session = tbx_load(argc > 1 ? argv[1] : NULL, &options, &error);
  if (!session) return fail(error);
  tbx_info in = tbx_input(session, 0);
  int64_t dims[8], n = 1;
  for (int d = 0; d < in.rank && d < 8; ++d) {
    char* end;
    dims[d] = strtoll(in.dims[d], &end, 10);
    if (*end) dims[d] = 2;
    n *= dims[d];
  }
  float* x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; ++i) x[i] = (float)i / 8;
  tbx_tensor tensor = {in.name, in.type, in.rank, dims, x};
  tbx_outputs* outputs = tbx_run(session, &tensor, 1, &error);
  free(x);
  if (!outputs) return fail(error);
  for (size_t o = 0; o < tbx_outputs_count(outputs); ++o) {
    tbx_tensor y = tbx_outputs_at(outputs, o);
    int64_t count = 1;
    printf("%s %s", y.name, tbx_output(session, o).type_name);
    for (int d = 0; d < y.rank; ++d) count *= y.dims[d];
    for (int64_t i = 0; i < count && y.type == TBX_FLOAT; ++i) printf(" %a", ((const float*)y.data)[i]);
    printf("\n");
  }
  tbx_outputs_free(outputs);
  tbx_tensor wrong = {"no_such", TBX_FLOAT, 0, NULL, &options};
  if (tbx_run(session, &wrong, 1, &error) || tbx_error_kind(error) != TBX_MODEL_ERROR) return 2;
  tbx_error_free(error);
  if (tbx_run(session, &wrong, 1, NULL)) return 3;
  tbx_session_free(session);
  tbx_session_free(NULL);
  return 0;
}
