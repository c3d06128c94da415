#include "importer/schemas.h"

#include <onnx/defs/operator_sets.h>
#include <onnx/defs/operator_sets_ml.h>
#include <onnx/defs/operator_sets_preview.h>
#include <onnx/defs/operator_sets_training.h>

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tbx::importer {
namespace {

/// ONNX's names of the lists, which stand for a domain or two.
enum class List { Onnx, OnnxML, OnnxTraining, OnnxPreview };

struct Form {
  std::string_view op;
  List list;
  int version;
  onnx::OpSchema (*make)();
};

constexpr Form kForms[] = {
#define TBX_OPERATOR(list, version, op)                                                                      \
  {#op, List::list, version, onnx::GetOpSchema<onnx::ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(list, version, op)>},
#include "onnx_operators.inc"
#undef TBX_OPERATOR
};

class Schemas final : public onnx::ISchemaRegistry {
public:
  Schemas() {
    for (const Form& form : kForms) forms_[form.op].push_back({&form, nullptr});
  }

  // NOLINTNEXTLINE(google-default-arguments): the default is that of the function it overrides
  const onnx::OpSchema* GetSchema(const std::string& op, int version,
                                  const std::string& domain = onnx::ONNX_DOMAIN) const override {
    std::lock_guard lock(mutex_);
    const auto found = forms_.find(op);
    if (found == forms_.end()) return nullptr;
    Entry* newest = nullptr;
    for (Entry& entry : found->second)
      if (entry.form->version <= version && (!newest || entry.form->version > newest->form->version) &&
          is_of(entry, domain))
        newest = &entry;
    return newest ? &schema_of(*newest) : nullptr;
  }

private:
  struct Entry {
    const Form* form;
    std::unique_ptr<const onnx::OpSchema> schema; ///< once it was asked for
  };

  static const onnx::OpSchema& schema_of(Entry& entry) {
    if (!entry.schema) {
      onnx::OpSchema made = entry.form->make();
      made.Finalize();
      entry.schema = std::make_unique<const onnx::OpSchema>(std::move(made));
    }
    return *entry.schema;
  }

  static bool is_of(Entry& entry, const std::string& domain) {
    switch (entry.form->list) {
    case List::Onnx: return domain == onnx::ONNX_DOMAIN;
    case List::OnnxML: return domain == onnx::AI_ONNX_ML_DOMAIN;
    default: return schema_of(entry).domain() == domain; // few operators, of more than one domain
    }
  }

  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string_view, std::vector<Entry>> forms_; ///< by operator
};

} // namespace

const onnx::ISchemaRegistry& onnx_schemas() {
  static const auto* schemas = new Schemas; // never destroyed: nodes of a static graph may point to it
  return *schemas;
}

const onnx::OpSchema* find_onnx_schema(const std::string& domain, const std::string& op, int version) {
  return onnx_schemas().GetSchema(op, version, domain);
}

} // namespace tbx::importer
