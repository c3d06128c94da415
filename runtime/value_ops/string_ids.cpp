// Strings as numbers: what lets operators that only move or compare elements run compiled. 0 is the empty
// string, which padding stands for.
#include <algorithm>
#include <unordered_map>

#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

/// Positions in the inputs one after the other, from 1.
void number_by_position(const ValueCall& call) {
  int64_t next = 1;
  for (int k = 0; k < call.num_inputs(); ++k) {
    auto ids = call.make(k, DType::i64, call.tensor(k, DType::string).dims).as_mutable<int64_t>();
    for (int64_t& id : ids) id = next++;
  }
}

/// Equal numbers for equal strings, ordered as the strings are; the last output is the string of each,
/// from 1.
void number_by_order(const ValueCall& call) {
  std::vector<std::string> table;
  for (int k = 0; k < call.num_inputs(); ++k)
    table.insert(table.end(), call.strings(k).begin(), call.strings(k).end());
  std::sort(table.begin(), table.end());
  table.erase(std::unique(table.begin(), table.end()), table.end());
  std::unordered_map<std::string, int64_t> number;
  number.reserve(table.size());
  for (size_t i = 0; i < table.size(); ++i) number[table[i]] = static_cast<int64_t>(i) + 1;
  for (int k = 0; k < call.num_inputs(); ++k) {
    const Tensor& x = call.tensor(k, DType::string);
    auto ids = call.make(k, DType::i64, x.dims).as_mutable<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = number.at((*x.strings)[i]);
  }
  auto n = static_cast<int64_t>(table.size());
  call.make_strings(call.num_inputs(), {n}) = std::move(table);
}

/// 0 for empty strings, 1 for the others.
void number_by_truth(const ValueCall& call) {
  for (int k = 0; k < call.num_inputs(); ++k) {
    const auto& strings = call.strings(k);
    auto ids = call.make(k, DType::i64, call.tensor(k).dims).as_mutable<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = !strings[i].empty();
  }
}

} // namespace

/// "numbers": 0 position, 1 order, 2 truth.
ValueFunction make_string_ids(const ValueNode& node) {
  int64_t numbers = node.integer("numbers", 0);
  return numbers == 0 ? number_by_position : numbers == 1 ? number_by_order : number_by_truth;
}

/// (numbers, strings...) -> strings of the shape of the numbers, which count through all inputs.
ValueFunction make_string_take(const ValueNode&) {
  return [](const ValueCall& call) {
    std::vector<const std::vector<std::string>*> tables;
    for (int k = 1; k < call.num_inputs(); ++k) tables.push_back(&call.strings(k));
    const Tensor& ids = call.tensor(0, DType::i64);
    auto& out = call.make_strings(0, ids.dims);
    int64_t bytes = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      int64_t at = ids.as<int64_t>()[i] - 1;
      if (at == -1) continue;
      auto table = tables.begin();
      while (table != tables.end() && at >= static_cast<int64_t>((*table)->size()))
        at -= static_cast<int64_t>((*table++)->size());
      TBX_MODEL(at >= 0 && table != tables.end(), "an element is none of the inputs'");
      bytes += static_cast<int64_t>(sizeof(std::string) + (**table)[at].size());
      call.need(bytes, 1);
      out[i] = (**table)[at];
    }
  };
}

} // namespace tbx::runtime
