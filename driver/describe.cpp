#include "driver/describe.h"

#include "graph/metadata.h"

namespace tbx::driver {

TensorInfo info_of(const runtime::SignatureEntry& e) {
  TensorInfo info{e.name, static_cast<int32_t>(e.dtype), std::string(name_of(e.dtype)), e.dims};
  info.any_rank = !e.ranked;
  return info;
}

TensorInfo info_of(const runtime::ValueEntry& e) {
  bool tensor = e.kind == RuntimeValue::Kind::tensor && !e.may_be_none;
  TensorInfo info{e.name, tensor ? static_cast<int32_t>(e.dtype) : 0,
                  tensor ? std::string(name_of(e.dtype)) : e.type, e.dims};
  info.any_rank = tensor && !e.ranked;
  return info;
}

TensorInfo info_of(const InputDefault& d) {
  TensorInfo info{d.name, static_cast<int32_t>(d.value->dtype), std::string(name_of(d.value->dtype)), d.dims};
  info.any_rank = !d.ranked;
  info.has_default = true;
  return info;
}

ModelMetadata metadata_of(const Graph& graph) {
  auto get = [&](const char* key) {
    auto it = graph.metadata.find(key);
    return it == graph.metadata.end() ? std::string() : it->second;
  };
  ModelMetadata m{get("producer_name"), get("producer_version"),  graph.name, get("domain"),
                  get("doc_string"),    get("graph_description"), {},         {}};
  if (std::string version = get("model_version"); !version.empty()) m.version = std::stoll(version);
  for (const auto& [key, value] : graph.metadata)
    if (key.starts_with(kCustomMetadata)) m.custom[key.substr(kCustomMetadata.size())] = value;
  return m;
}

} // namespace tbx::driver
