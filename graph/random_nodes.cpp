#include "graph/random_nodes.h"

#include <set>
#include <string_view>

namespace tbx {

bool draws_random_numbers(const Node& node) {
  static const std::set<std::string_view> kOnnx = {
      "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
      "Bernoulli",    "Multinomial",      "Dropout"};
  return node.domain.empty() ? kOnnx.contains(node.op_type)
                             : node.domain == "com.microsoft" && node.op_type == "BiasDropout";
}

} // namespace tbx
