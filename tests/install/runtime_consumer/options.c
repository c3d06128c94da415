/* options MODEL PACKAGE: compiles, saves and loads with what tbx_options and tbx_save_options have; prints what is
 * logged, how the first input is shown, and the errors of options that cannot be. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tensorbox/c.h"

static void print_line(const char* message, void* context) { printf("%s: %s\n", (const char*)context, message); }

static int fail(tbx_error* error) {
  fprintf(stderr, "%d: %s\n", (int)tbx_error_kind(error), tbx_error_text(error));
  return 1;
}

static void print_error(tbx_error* error) {
  printf("error %d: %s\n", (int)tbx_error_kind(error), tbx_error_text(error));
  tbx_error_free(error);
}

/* The model takes float x[rows, 4] and the axes of a sum. */
static int run(tbx_session* session, int64_t axis, tbx_error** error) {
  float x[12];
  int64_t dims[] = {3, 4}, one = 1;
  for (int i = 0; i < 12; ++i) x[i] = (float)i;
  tbx_tensor in[] = {{"x", TBX_FLOAT, 2, dims, x}, {"axes", TBX_INT64, 1, &one, &axis}};
  tbx_outputs* out = tbx_run(session, in, 2, error);
  if (!out) return 1;
  tbx_tensor y = tbx_outputs_at(out, 0);
  printf("sums");
  for (int64_t i = 0; i < y.dims[0] * y.dims[1]; ++i) printf(" %g", ((const float*)y.data)[i]);
  printf("\n");
  tbx_outputs_free(out);
  return 0;
}

/* A run that is to end before it begins, and one that is not. */
static int cancelled(tbx_session* session) {
  float x[12] = {0};
  int64_t dims[] = {3, 4}, one = 1, axis = 1;
  tbx_tensor in[] = {{"x", TBX_FLOAT, 2, dims, x}, {"axes", TBX_INT64, 1, &one, &axis}};
  tbx_run_options options = {0};
  tbx_error* error = NULL;
  tbx_cancellation* cancellation = tbx_cancellation_new();
  options.size = sizeof options;
  options.cancellation = cancellation;
  tbx_outputs* out = tbx_run_with(session, in, 2, &options, &error);
  if (!out) return fail(error);
  tbx_outputs_free(out);
  tbx_cancel(cancellation);
  out = tbx_run_with(session, in, 2, &options, &error);
  tbx_cancellation_free(cancellation);
  if (out) return 1;
  print_error(error);
  return 0;
}

/* The model in memory, with the options of models from strangers. */
static int strangers(const char* file, tbx_options* options) {
  static char bytes[1 << 16];
  FILE* model = fopen(file, "rb");
  if (!model) return 9;
  const size_t size = fread(bytes, 1, sizeof bytes, model);
  fclose(model);
  tbx_error* error = NULL;
  const int64_t seed = 7;
  const char* libraries[] = {"none.so", NULL};
  options->seed = &seed;
  options->untrusted = 1;
  options->limits = "max_nodes=1,max_tensors=10";
  tbx_session* session = tbx_compile_bytes(bytes, size, options, &error);
  if (!session) return fail(error);
  memset(bytes, 0, sizeof bytes);
  if (run(session, 1, &error)) return fail(error);
  if (cancelled(session)) return 14;
  tbx_session_free(session);
  const char* wrong[] = {"max_model_bytes=10", "no_such=1", "max_nodes"};
  for (int i = 0; i < 3; ++i) {
    options->limits = wrong[i];
    if (tbx_compile(file, options, &error)) return 10;
    print_error(error);
  }
  options->limits = NULL;
  options->operator_libraries = libraries;
  if (tbx_compile(file, options, &error)) return 11;
  print_error(error);
  options->untrusted = 0;
  if (tbx_compile(file, options, &error)) return 12;
  print_error(error);
  options->operator_libraries = NULL;
  options->external_data_dir = ".";
  if (tbx_compile(file, options, &error)) return 13;
  print_error(error);
  options->external_data_dir = NULL;
  options->untrusted = 1;
  options->size = 0; /* forgotten: the model would be trusted */
  if (tbx_compile(file, options, &error)) return 15;
  print_error(error);
  if (tbx_load(file, options, &error)) return 16;
  print_error(error);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  tbx_error* error = NULL;
  tbx_options options = {0};
  options.size = sizeof options;
  options.threads = 1;
  options.isa = "sse";
  options.dims = "rows=3";
  options.precision = "bf16"; /* not in a package for another instruction set: a note says so */
  options.disabled_passes = "fold_constants,eliminate_no_ops";
  options.log = print_line;
  options.log_context = "log";
  tbx_session* session = tbx_compile(argv[1], &options, &error);
  if (!session) return fail(error);
  printf("rows %s\n", tbx_input(session, 0).dims[0]);
  if (run(session, 0, &error)) return fail(error);

  if (tbx_save_with(session, argv[2], NULL, &error) == 0) return 3;
  print_error(error);
  tbx_save_options save = {0};
  save.size = sizeof save;
  save.isas = "sse,avx2";
  save.for_inputs_seen = 1;
  if (tbx_save_with(session, argv[2], &save, &error)) return fail(error);
  tbx_session_free(session);

  tbx_options load = {0};
  load.size = offsetof(tbx_options, dims); /* of a program that was compiled before there were more */
  load.dims = "rows=3";
  load.threads = 1;
  tbx_session* loaded = tbx_load(argv[2], &load, &error);
  if (!loaded) return fail(error);
  if (run(loaded, 0, &error)) return fail(error);
  if (!run(loaded, 1, &error)) return 4;
  print_error(error);
  tbx_session_free(loaded);

  load.size = sizeof load;
  if (tbx_load(argv[2], &load, &error)) return 5;
  print_error(error);
  load.dims = NULL;
  load.tiered = 1;
  if (tbx_load(argv[2], &load, &error)) return 5;
  print_error(error);
  load.tiered = 0;
  load.no_kept_plans = 1;
  if (tbx_load(argv[2], &load, &error)) return 5;
  print_error(error);
  load.no_kept_plans = 0;
  load.state = "a=b";
  if (tbx_load(argv[2], &load, &error)) return 5;
  print_error(error);
  const char* wrong[] = {"rows", "rows=three", "no_such=1"};
  for (int i = 0; i < 3; ++i) {
    options.dims = wrong[i];
    if (tbx_compile(argv[1], &options, &error)) return 6;
    print_error(error);
  }
  options.dims = NULL;
  options.disabled_passes = "no_such";
  if (tbx_compile(argv[1], &options, &error)) return 7;
  print_error(error);
  options.disabled_passes = NULL;
  options.precision = "f8";
  if (tbx_compile(argv[1], &options, &error)) return 8;
  print_error(error);
  options.precision = NULL;
  return strangers(argv[1], &options);
}
