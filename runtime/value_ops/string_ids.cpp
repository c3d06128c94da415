// Strings as numbers: what lets operators that only move or compare elements run compiled. The table's entry
// 0 is the empty string, which padding stands for.
#include <algorithm>
#include <unordered_map>

#include "runtime/value_op.h"

namespace tbx::runtime {

/// Strings s0, s1, ... -> table, ids of s0, ids of s1, ... Ids of equal strings are equal with attribute
/// `distinct`, and then in the order of the strings.
ValueFunction make_string_ids(const ValueNode& node) {
  bool distinct = node.integer("distinct", 0) != 0;
  return [distinct](const ValueCall& call) {
    std::vector<std::string> table(1);
    std::unordered_map<std::string, int64_t> number;
    if (distinct) {
      for (int k = 0; k < call.num_inputs(); ++k)
        table.insert(table.end(), call.strings(k).begin(), call.strings(k).end());
      std::sort(table.begin(), table.end());
      table.erase(std::unique(table.begin(), table.end()), table.end());
      number.reserve(table.size());
      for (size_t i = 0; i < table.size(); ++i) number[table[i]] = static_cast<int64_t>(i);
    }
    for (int k = 0; k < call.num_inputs(); ++k) {
      const Tensor& x = call.tensor(k, DType::string);
      auto ids = call.make(k + 1, DType::i64, x.dims).as_mutable<int64_t>();
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::string& s = (*x.strings)[i];
        ids[i] = distinct ? number.at(s) : static_cast<int64_t>(table.size());
        if (!distinct) table.push_back(s);
      }
    }
    auto n = static_cast<int64_t>(table.size());
    call.make_strings(0, {n}) = std::move(table);
  };
}

/// (table, ids) -> strings of the shape of the ids.
ValueFunction make_string_take(const ValueNode&) {
  return [](const ValueCall& call) {
    const std::vector<std::string>& table = call.strings(0);
    const Tensor& ids = call.tensor(1, DType::i64);
    auto& out = call.make_strings(0, ids.dims);
    for (size_t i = 0; i < out.size(); ++i) {
      int64_t id = ids.as<int64_t>()[i];
      TBX_MODEL(id >= 0 && id < static_cast<int64_t>(table.size()), "an element is none of the inputs'");
      out[i] = table[id];
    }
  };
}

} // namespace tbx::runtime
