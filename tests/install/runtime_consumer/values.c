/* values MODEL: compiles a model with inputs of every kind, runs it, and shows its outputs; then what is refused. */
#include <stdio.h>

#include "tensorbox/c.h"

static void show_tensor(tbx_tensor t) {
  int64_t count = 1;
  printf("%d[", (int)t.type);
  for (int32_t d = 0; d < t.rank; ++d) {
    printf(d ? ", %d" : "%d", (int)t.dims[d]);
    count *= t.dims[d];
  }
  printf("]");
  for (int64_t i = 0; i < count; ++i)
    if (t.type == TBX_STRING)
      printf(" %s", ((const char* const*)t.data)[i]);
    else if (t.type == TBX_BOOL)
      printf(" %d", ((const unsigned char*)t.data)[i]);
    else
      printf(" %g", ((const float*)t.data)[i]);
}

static void show(const tbx_value* v) {
  static const char* const kinds[] = {"none", "", "sequence", "map"};
  printf("%s", kinds[v->kind]);
  if (v->kind == TBX_TENSOR) show_tensor(v->tensor);
  if (v->kind != TBX_SEQUENCE && v->kind != TBX_MAP) return;
  printf("(");
  for (size_t k = 0; k < v->count; ++k) {
    if (k) printf("; ");
    show(&v->elements[k]);
  }
  printf(")");
}

static int run(const tbx_session* session, const tbx_value* inputs, size_t count) {
  tbx_error* error = NULL;
  tbx_values* made = tbx_run_values(session, inputs, count, &error);
  if (!made) {
    printf("error %d: %s\n", (int)tbx_error_kind(error), tbx_error_text(error));
    tbx_error_free(error);
    return 0;
  }
  for (size_t o = 0; o < tbx_values_count(made); ++o) {
    tbx_value v = tbx_values_at(made, o);
    printf("%s = ", v.name);
    show(&v);
    printf("\n");
  }
  tbx_value beyond = tbx_values_at(made, tbx_values_count(made));
  tbx_values_free(made);
  return beyond.name != NULL || beyond.kind != TBX_NONE;
}

static tbx_value tensor(const char* name, int32_t type, int32_t rank, const int64_t* dims, const void* data) {
  tbx_value v = {name, TBX_TENSOR, {NULL, type, rank, dims, data}, 0, NULL};
  return v;
}

int main(int argc, char** argv) {
  tbx_error* error = NULL;
  tbx_options options = {0};
  options.size = sizeof options;
  options.evaluate = 1;
  tbx_session* session = argc > 1 ? tbx_compile(argv[1], &options, &error) : NULL;
  if (!session) return fprintf(stderr, "%s\n", error ? tbx_error_text(error) : "no model"), 1;
  for (size_t i = 0; i < tbx_num_inputs(session); ++i)
    printf("%s: %s\n", tbx_input(session, i).name, tbx_input(session, i).type_name);

  const float x[] = {1, 2, 3, 4, 5};
  const int64_t two[] = {2}, three[] = {3}, negative[] = {-1};
  const char* const words[] = {"red", "blue"};
  const char* const names[] = {"b", "a"};
  const float weights[] = {0.5f, 2};
  tbx_value parts[] = {tensor(NULL, TBX_FLOAT, 1, two, x), tensor(NULL, TBX_FLOAT, 1, three, x + 2)};
  tbx_value entries[] = {tensor(NULL, TBX_STRING, 1, two, names), tensor(NULL, TBX_FLOAT, 1, two, weights)};
  tbx_value inputs[] = {{"parts", TBX_SEQUENCE, {0}, 2, parts},
                        {"counts", TBX_MAP, {0}, 2, entries},
                        tensor("words", TBX_STRING, 1, two, words),
                        tensor("maybe", TBX_FLOAT, 1, two, x)};
  int bad = run(session, inputs, 4);
  bad |= run(session, inputs, 3); /* the optional one is left out */
  inputs[3].kind = TBX_NONE;
  inputs[0].count = 0;
  bad |= run(session, inputs, 4);

  inputs[0].count = 2;
  inputs[0].elements = NULL;
  bad |= run(session, inputs, 4);
  inputs[0].elements = parts;
  inputs[1].count = 1;
  bad |= run(session, inputs, 4);
  inputs[1].count = 2;
  inputs[2].tensor.dims = negative;
  bad |= run(session, inputs, 4);
  inputs[2].tensor.dims = two;
  inputs[2].kind = 7;
  bad |= run(session, inputs, 4);
  inputs[2].kind = TBX_TENSOR;
  parts[0].kind = TBX_SEQUENCE; /* holds itself */
  parts[0].count = 1;
  parts[0].elements = parts;
  bad |= run(session, inputs, 4);
  bad |= run(session, inputs + 1, 1);
  bad |= run(session, NULL, 1);
  bad |= run(NULL, inputs, 4);
  tbx_session_free(session);
  tbx_values_free(NULL);
  return bad || tbx_values_count(NULL) != 0;
}
