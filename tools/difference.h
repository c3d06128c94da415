// How two tensors of the same name differ, in numbers and in words.
#pragma once

#include <string>
#include <vector>

#include "tools/common.h"

namespace tbx::tools {

struct Tolerance {
  double rtol = 1e-3, atol = -1; ///< atol below 0: `spread` of the wanted value's standard deviation
  double spread = 1e-4;
};

struct Difference {
  std::string value, node; ///< node: "name (OpType)" that computes it, where known
  std::vector<int64_t> shape, wanted_shape;
  int32_t type = 0, wanted_type = 0;
  std::string what = "values"; ///< what differs if `bad`: "type", "shape", "strings" or "values"
  double max_abs = 0, max_rel = 0;
  double rel_l2 = 0; ///< norm of the difference over the norm of what is wanted, of finite elements
  uint64_t max_ulp =
      0; ///< floats: representable numbers between the two, at most; NaN against a number: 2^64-1
  int64_t worst = -1, differing = 0;
  double got = 0, want = 0;
  bool bad = false;
};

/// Two types are a difference, but not floats where `by_value`: they are compared as numbers then, and ulps
/// are those of the shorter type.
Difference difference(const OwnedTensor& got, const OwnedTensor& want, const Tolerance& tolerance,
                      bool by_value = false);
Json to_json(const Difference& d);
/// How large the difference is, or what is another.
std::string measures(const Difference& d);
/// One line for people: where the worst element is and what it is.
std::string explain(const Difference& d);

} // namespace tbx::tools
