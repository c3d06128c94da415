#include "importer/export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <onnx/defs/schema.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/write_file.h"
#include "graph/metadata.h"
#include "graph/names.h"
#include "importer/attributes.h"
#include "importer/schemas.h"
#include "importer/tensors.h"
#include "ir/symint.h"

namespace tbx {
namespace {

using namespace importer;
namespace fs = std::filesystem;

void for_each_graph(const Graph& graph, const std::function<void(const Graph&)>& fn) {
  fn(graph);
  for (const Node& node : graph.nodes)
    for_each_body(node, [&](const Graph& body) { for_each_graph(body, fn); });
}

/// A file must say all of a type, or nothing: runtimes refuse a sequence of unknown elements.
bool is_told(const ValueType& type) {
  if (type.kind == ValueType::unknown) return false;
  const bool of_numbers = type.kind == ValueType::tensor || type.kind == ValueType::sparse_tensor;
  return of_numbers ? type.dtype != DType::undefined : type.element && is_told(*type.element);
}

/// A version of each domain under which every node means what it means under its own.
std::map<std::string, int> choose_opsets(const Graph& graph) {
  std::map<std::string, std::set<int>> wanted;
  std::map<std::string, std::map<std::pair<std::string, int>, const Node*>> forms;
  for_each_graph(graph, [&](const Graph& g) {
    for (const Node& n : g.nodes) {
      wanted[n.domain].insert(n.opset);
      forms[n.domain].emplace(std::pair(n.op_type, n.opset), &n);
    }
  });
  std::map<std::string, int> result = graph.opset_imports;
  for (const auto& [domain, versions] : wanted) {
    auto fits = [&, &domain = domain](int version) {
      return std::all_of(forms[domain].begin(), forms[domain].end(), [&](const auto& form) {
        const auto& [op, own] = form.first;
        return own == version || find_onnx_schema(domain, op, own) == find_onnx_schema(domain, op, version);
      });
    };
    std::vector<int> candidates(versions.rbegin(), versions.rend());
    if (auto it = result.find(domain); it != result.end()) candidates.insert(candidates.begin(), it->second);
    auto found = std::find_if(candidates.begin(), candidates.end(), fits);
    if (found == candidates.end())
      throw_unsupported("the graph mixes versions {} of the operator set {}, under which operators differ",
                        fmt::join(versions, ", "), shown(shown_domain(domain)));
    result[domain] = *found;
  }
  if (result.empty())
    result[""] = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
  return result;
}

/// The first IR version that has the element type.
int ir_version_of(DType dtype) {
  switch (dtype) {
  case DType::f8e4m3fn:
  case DType::f8e4m3fnuz:
  case DType::f8e5m2:
  case DType::f8e5m2fnuz: return 9;
  case DType::i4:
  case DType::u4: return 10;
  case DType::f4e2m1: return 11;
  case DType::f8e8m0: return 12;
  case DType::i2:
  case DType::u2: return 13;
  case DType::f6e2m3:
  case DType::f6e3m2: return 14;
  default: return 8;
  }
}

/// Sizes that callers know by name keep it; those that only arise inside stay open.
std::string exported_dim(ir::SymInt e) { return ir::has_unbacked(e) ? "" : ir::to_string(e); }

/// Where large constants go: appended to a second file, in the order they are met.
class DataFile {
public:
  DataFile(fs::path path, int64_t external_from) : path_(std::move(path)), external_from_(external_from) {}

  bool takes(const Tensor& t) const {
    // Sub-byte types are packed in files, which only the inline form does.
    return t.dtype != DType::string && bits_of(t.dtype) >= 8 && t.bytes() >= external_from_;
  }
  void add(const Tensor& t, onnx::TensorProto& p) {
    constexpr int64_t kAlignment = 4096; // so that readers can map each tensor
    size_ = (size_ + kAlignment - 1) / kAlignment * kAlignment;
    auto set = [&](const char* key, const std::string& value) {
      auto* e = p.add_external_data();
      e->set_key(key);
      e->set_value(value);
    };
    p.set_data_location(onnx::TensorProto::EXTERNAL);
    set("location", path_.filename().string());
    set("offset", std::to_string(size_));
    set("length", std::to_string(t.bytes()));
    parts_.emplace_back(size_, &t);
    size_ += t.bytes();
  }
  const fs::path& path() const { return path_; }
  const std::vector<std::pair<int64_t, const Tensor*>>& parts() const { return parts_; }

private:
  fs::path path_;
  int64_t external_from_;
  int64_t size_ = 0;
  std::vector<std::pair<int64_t, const Tensor*>> parts_;
};

class Writer {
public:
  explicit Writer(DataFile* data) : data_(data) {}

  onnx::ModelProto write(const Graph& graph) {
    onnx::ModelProto model;
    for (const auto& [domain, version] : choose_opsets(graph)) {
      auto* import = model.add_opset_import();
      import->set_domain(domain);
      import->set_version(version);
    }
    for (ValueId id : graph.inputs) taken_.insert(graph.at(id).name);
    for (ValueId id : graph.outputs) taken_.insert(graph.at(id).name);
    write(graph, *model.mutable_graph(), nullptr);
    write_metadata(graph, model);
    return model;
  }

private:
  using Names = std::vector<std::string>;

  /// `by_name`: who reads the graph knows its inputs and outputs by name.
  void write(const Graph& g, onnx::GraphProto& p, const Names* outer, bool by_name = true) {
    p.set_name(g.name.empty() ? "graph" : g.name);
    Names names(g.values.size());
    for (const auto& c : g.captures) names[c.inner] = outer->at(c.outer);
    auto keep = [&](ValueId id) {
      if (by_name && names[id].empty()) taken_.insert(names[id] = g.at(id).name);
    };
    for (ValueId id : g.inputs) keep(id);
    for (ValueId id : g.outputs) keep(id);
    std::unordered_set<ValueId> io(g.inputs.begin(), g.inputs.end());
    io.insert(g.outputs.begin(), g.outputs.end());
    std::vector<bool> used(g.values.size());
    for (const Node& n : g.nodes)
      for (ValueId id : n.inputs)
        if (id >= 0) used[id] = true;
    for (const Node& n : g.nodes) mark_captured(n, used);
    for (ValueId id : g.outputs) used[id] = true;
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].empty()) names[i] = unique(g.values[i].name);

    for (ValueId id : g.inputs) write_info(g.at(id), names[id], *p.add_input());
    std::unordered_set<ValueId> captured;
    for (const auto& c : g.captures) captured.insert(c.inner);
    for (size_t i = 0; i < g.values.size(); ++i) {
      const Value& v = g.values[i];
      auto id = static_cast<ValueId>(i);
      if (captured.contains(id)) continue;
      if (v.constant && v.producer < 0) {
        if (used[i]) write_tensor(*v.constant, names[i], *p.add_initializer());
      } else if (v.producer >= 0 && !io.contains(id) && is_told(v.type)) {
        write_info(v, names[i], *p.add_value_info());
      }
    }
    for (const Node& n : g.nodes) write(n, *p.add_node(), names);

    // ONNX wants each output made in its own graph, and under a name of its own.
    std::unordered_set<ValueId> done = captured;
    for (ValueId id : g.outputs) {
      std::string name = names[id];
      if (!done.insert(id).second) {
        name = unique(name);
        auto* copy = p.add_node();
        copy->set_op_type("Identity");
        copy->add_input(names[id]);
        copy->add_output(name);
      }
      write_info(g.at(id), name, *p.add_output());
    }
  }

  static void mark_captured(const Node& n, std::vector<bool>& used) {
    for_each_capture(n, [&](const Graph::Capture& c) { used[c.outer] = true; });
  }

  void write(const Node& n, onnx::NodeProto& p, const Names& names) {
    const bool by_name = !n.domain.empty(); // such as the decoder of a BeamSearch
    p.set_name(n.name);
    p.set_op_type(n.op_type);
    p.set_domain(n.domain);
    for (ValueId id : n.inputs) p.add_input(id < 0 ? "" : names[id]);
    for (ValueId id : n.outputs) p.add_output(id < 0 ? "" : names[id]);
    for (const auto& [name, attribute] : n.attributes) {
      onnx::AttributeProto& a = *p.add_attribute();
      a = to_proto(name, attribute, exported_dim);
      if (auto* g = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        a.set_type(onnx::AttributeProto::GRAPH);
        write(**g, *a.mutable_g(), &names, by_name);
      } else if (auto* list = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute)) {
        a.set_type(onnx::AttributeProto::GRAPHS);
        for (const auto& g : *list) write(*g, *a.add_graphs(), &names, by_name);
      }
    }
  }

  void write_info(const Value& v, const std::string& name, onnx::ValueInfoProto& p) {
    p.set_name(name);
    *p.mutable_type() = to_type_proto(v.type, exported_dim);
  }

  void write_tensor(const Tensor& t, const std::string& name, onnx::TensorProto& p) {
    ir_version_ = std::max(ir_version_, ir_version_of(t.dtype));
    if (data_ && data_->takes(t)) {
      p.set_name(name);
      p.set_data_type(static_cast<int32_t>(t.dtype));
      for (int64_t d : t.dims) p.add_dims(d);
      data_->add(t, p);
    } else {
      p = importer::to_proto(t, name);
    }
  }

  std::string unique(const std::string& wanted) {
    std::string name = wanted.empty() ? "value" : wanted;
    for (int n = 2; !taken_.insert(name).second; ++n)
      name = fmt::format("{}_{}", wanted.empty() ? "value" : wanted, n);
    return name;
  }

  void write_metadata(const Graph& graph, onnx::ModelProto& model) {
    model.set_producer_name("tensorbox");
    model.set_producer_version(TBX_VERSION);
    for (const auto& [key, value] : graph.metadata) {
      if (key == "doc_string") {
        model.set_doc_string(value);
      } else if (key == "domain") {
        model.set_domain(value);
      } else if (key == "model_version") {
        model.set_model_version(std::strtoll(value.c_str(), nullptr, 10));
      } else if (key == "graph_description") {
        model.mutable_graph()->set_doc_string(value);
      } else if (key == "ir_version") {
        ir_version_ = std::max(ir_version_, std::clamp(std::atoi(value.c_str()), 8, int{onnx::IR_VERSION}));
      } else if (key.starts_with(kCustomMetadata)) {
        auto* entry = model.add_metadata_props();
        entry->set_key(key.substr(kCustomMetadata.size()));
        entry->set_value(value);
      }
    }
    model.set_ir_version(ir_version_);
  }

  DataFile* data_;
  std::unordered_set<std::string> taken_;
  int ir_version_ = 8;
};

std::string serialize(const onnx::ModelProto& model) {
  if (model.ByteSizeLong() > INT32_MAX)
    throw Error(ErrorKind::model, "the model is larger than protobuf's limit of 2 GB",
                "lower ExportOptions::max_inline_bytes");
  return model.SerializeAsString();
}

} // namespace

void export_model(const Graph& graph, const fs::path& file, const ExportOptions& options) {
  int64_t constant_bytes = 0;
  for_each_graph(graph, [&](const Graph& g) {
    for (const Value& v : g.values)
      if (v.constant && v.producer < 0)
        constant_bytes += v.constant->dtype == DType::string ? 0 : v.constant->bytes();
  });
  fs::path data_path = file;
  data_path += ".data";
  DataFile data(data_path, options.external_from);
  bool external = constant_bytes > options.max_inline_bytes;
  std::string bytes = serialize(Writer(external ? &data : nullptr).write(graph));
  if (!data.parts().empty())
    write_whole(data.path(), [&](int fd) {
      return std::all_of(data.parts().begin(), data.parts().end(), [&](const auto& part) {
        return write_at(fd, part.second->data, part.second->bytes(), part.first);
      });
    });
  write_whole(file, [&](int fd) {
    return write_at(fd, reinterpret_cast<const std::byte*>(bytes.data()), static_cast<int64_t>(bytes.size()),
                    0);
  });
}

std::string export_bytes(const Graph& graph) { return serialize(Writer(nullptr).write(graph)); }

} // namespace tbx
