// ai.onnx.ml operators on maps: ZipMap, CastMap, DictVectorizer.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "base/budget.h"
#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

const MapValue& map_of(const ValueCall& call, int i) {
  const RuntimeValue& v = call.value(i);
  TBX_MODEL(v.is_map() && v.map, "input {} is {}, not a map", i, name_of(v.kind));
  return *v.map;
}

/// One element, between tensors of one type.
void copy_element(const Tensor& from, int64_t i, Tensor& to, int64_t k) {
  if (from.strings) {
    (*to.strings)[k] = (*from.strings)[i];
    return;
  }
  int64_t width = size_of(from.dtype);
  std::memcpy(to.mutable_data() + k * width, from.data + i * width, static_cast<size_t>(width));
}

Tensor& make_like(const ValueCall& call, DType type, std::vector<int64_t> dims) {
  if (type == DType::string)
    call.make_strings(0, std::move(dims));
  else
    call.make(0, type, std::move(dims));
  return call.outputs[0].tensor;
}

} // namespace

/// f32 [C] or [N, C] -> a sequence of N maps from label to value.
ValueFunction make_zip_map(const ValueNode& node) {
  std::vector<int64_t> ints = node.integers("classlabels_int64s");
  std::vector<std::string> strings = node.texts("classlabels_strings");
  TBX_MODEL(ints.empty() != strings.empty(),
            "exactly one of the attributes 'classlabels_int64s' and 'classlabels_strings' must be given");
  auto count = static_cast<int64_t>(strings.empty() ? ints.size() : strings.size());
  Tensor keys = strings.empty() ? Tensor::of_ints(ints) : Tensor::of_strings({count}, std::move(strings));
  return [keys, count](const ValueCall& call) {
    const Tensor& x = call.tensor(0);
    TBX_MODEL(x.dims.size() == 1 || x.dims.size() == 2, "the input has rank {}, expected 1 or 2",
              x.dims.size());
    TBX_MODEL(x.dims.back() == count, "{} labels for {} columns", count, x.dims.back());
    int64_t rows = x.dims.size() == 1 ? 1 : x.dims[0];
    TBX_MODEL(!x.strings, "the input is of type {}", name_of(x.dtype));
    call.need(rows, static_cast<int64_t>(sizeof(RuntimeValue) + sizeof(MapValue)) + count * size_of(x.dtype));
    Tensor all = Tensor::make(x.dtype, {rows, count}); // of which each map has a row
    if (all.bytes() > 0) std::memcpy(all.mutable_data(), x.data, static_cast<size_t>(all.bytes()));
    std::vector<RuntimeValue> maps;
    maps.reserve(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      check_stop_often();
      Tensor values = all;
      values.dims = {count};
      values.data += r * count * size_of(x.dtype);
      maps.push_back(RuntimeValue::of_map(keys, std::move(values)));
    }
    call.outputs[0] = RuntimeValue::sequence(std::move(maps));
  };
}

/// A map of int64 keys -> [1, n]: the values in the order of their keys (DENSE), or each at its key (SPARSE).
ValueFunction make_cast_map(const ValueNode& node) {
  std::string form = node.text("map_form", "DENSE"), to = node.text("cast_to", "TO_FLOAT");
  TBX_MODEL(form == "DENSE" || form == "SPARSE", "map_form is '{}', expected DENSE or SPARSE", form);
  TBX_MODEL(to == "TO_FLOAT" || to == "TO_STRING" || to == "TO_INT64",
            "cast_to is '{}', expected TO_FLOAT, TO_STRING or TO_INT64", to);
  int64_t length = node.integer("max_map", 1);
  bool sparse = form == "SPARSE";
  TBX_MODEL(!sparse || (length > 0 && length < int64_t{1} << 31), "max_map is {}", length);
  DType type = to == "TO_FLOAT" ? DType::f32 : to == "TO_INT64" ? DType::i64 : DType::string;
  MakeValueFunction make_cast = find_value_op("", "Cast", 21);
  TBX_INTERNAL(make_cast);
  ValueNode inner{"", "Cast", 21, {{"to", static_cast<int64_t>(type)}}, {true}, {type}};
  ValueFunction cast = make_cast(inner);
  return [=](const ValueCall& call) {
    const MapValue& map = map_of(call, 0);
    TBX_MODEL(map.keys.dtype == DType::i64, "the keys of the map are of type {}", name_of(map.keys.dtype));
    auto keys = map.keys.as<int64_t>();
    RuntimeValue values = map.values, converted;
    ValueArgument argument{&values, false};
    if (map.values.dtype == type) {
      converted = values;
    } else if (is_float(map.values.dtype) && type == DType::i64) { // decimals are cut
      std::vector<int64_t> whole(keys.size());
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = element_as_int(map.values, static_cast<int64_t>(i));
      converted = Tensor::of_ints(whole);
    } else {
      cast({{&argument, 1}, {&converted, 1}});
    }
    std::vector<int64_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    Tensor& y = make_like(call, type, {1, sparse ? length : static_cast<int64_t>(keys.size())});
    for (size_t i = 0; i < order.size(); ++i) {
      int64_t key = keys[order[i]];
      TBX_MODEL(!sparse || (key >= 0 && key < length), "key {} does not fit max_map {}", key, length);
      copy_element(converted.tensor, order[i], y, sparse ? key : static_cast<int64_t>(i));
    }
  };
}

/// A map -> [1, n]: each value at the position of its key in the vocabulary, zero or "" elsewhere.
ValueFunction make_dict_vectorizer(const ValueNode& node) {
  std::vector<int64_t> ints = node.integers("int64_vocabulary");
  std::vector<std::string> strings = node.texts("string_vocabulary");
  TBX_MODEL(ints.empty() != strings.empty(),
            "exactly one of the attributes 'int64_vocabulary' and 'string_vocabulary' must be given");
  std::unordered_map<int64_t, int64_t> by_int;
  std::unordered_map<std::string, int64_t> by_string;
  for (size_t i = 0; i < ints.size(); ++i) by_int.emplace(ints[i], static_cast<int64_t>(i));
  for (size_t i = 0; i < strings.size(); ++i) by_string.emplace(strings[i], static_cast<int64_t>(i));
  auto count = static_cast<int64_t>(ints.empty() ? strings.size() : ints.size());
  return [=, texts = !strings.empty()](const ValueCall& call) {
    const MapValue& map = map_of(call, 0);
    TBX_MODEL((map.keys.dtype == DType::string) == texts, "keys of type {} for a vocabulary of {}",
              name_of(map.keys.dtype), texts ? "strings" : "ints");
    Tensor& y = make_like(call, map.values.dtype, {1, count});
    for (int64_t i = 0; i < map.keys.numel(); ++i) {
      int64_t at = -1;
      if (texts) {
        auto it = by_string.find((*map.keys.strings)[i]);
        if (it != by_string.end()) at = it->second;
      } else {
        auto it = by_int.find(map.keys.as<int64_t>()[i]);
        if (it != by_int.end()) at = it->second;
      }
      if (at >= 0) copy_element(map.values, i, y, at);
    }
  };
}

} // namespace tbx::runtime
