// Loading of operator libraries and registration of their operators.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "extern_kernels/custom/custom_impl.h"

namespace tbx::extern_kernels {
namespace {

using Operators = std::vector<std::shared_ptr<const CustomOperator>>;

struct Registration {
  const std::string& file;
  Operators operators;
  std::string refusal; ///< of `add`
};

/// Empty, or what is wrong with a descriptor.
std::string refusal_of(const TbxOperator& op) {
  std::string domain = op.domain, name = op.name;
  if (name.empty()) return "an operator has no name";
  if (domain.empty() || domain == "ai.onnx" || domain.starts_with("ai.onnx.") || domain == "tensorbox")
    return fmt::format("operator '{}' is of the domain '{}', which is taken; operators of libraries need a "
                       "domain of their own",
                       name, domain);
  if (op.since_version < 1)
    return fmt::format("operator {}.{} is of version {}", domain, name, op.since_version);
  auto bad = [](int32_t min, int32_t max) {
    return min < 0 || (max != TBX_VARIADIC && max < min) || max < TBX_VARIADIC;
  };
  if (bad(op.min_inputs, op.max_inputs) || bad(op.min_outputs, op.max_outputs) || op.max_outputs == 0)
    return fmt::format("operator {}.{} takes {} to {} inputs and gives {} to {} outputs, which cannot be",
                       domain, name, op.min_inputs, op.max_inputs, op.min_outputs, op.max_outputs);
  if (!op.compute) return fmt::format("operator {}.{} has no compute function", domain, name);
  if (!op.infer && op.min_inputs == 0)
    return fmt::format("operator {}.{} has neither an infer function nor an input to be like", domain, name);
  return {};
}

TbxStatus add_operator(const TbxOperatorRegistry* registry, const TbxOperator* op) {
  auto& r = *static_cast<Registration*>(registry->runtime);
  auto refuse = [&](std::string why) {
    if (r.refusal.empty()) r.refusal = std::move(why);
    return TBX_BACKEND_ERROR;
  };
  try {
    if (!op) return refuse("an operator without a descriptor is registered");
    // Nothing else of the descriptor means anything before these two are right.
    if (op->abi != TBX_OPERATOR_ABI)
      return refuse(fmt::format("it is built for version {} of the operator interface, this tensorbox has {}",
                                op->abi, TBX_OPERATOR_ABI));
    if (op->size != sizeof(TbxOperator))
      return refuse(
          fmt::format("an operator's descriptor has {} bytes, expected {}", op->size, sizeof(TbxOperator)));
    if (!op->domain || !op->name) return refuse("an operator has no domain or no name");
    if (std::string why = refusal_of(*op); !why.empty()) return refuse(std::move(why));
    for (const auto& other : r.operators)
      if (other->domain() == op->domain && other->name() == op->name &&
          other->descriptor().since_version == op->since_version)
        return refuse(fmt::format("operator {}.{} of version {} is registered twice", op->domain, op->name,
                                  op->since_version));
    r.operators.push_back(std::make_shared<const CustomOperator>(*op, r.file));
    return TBX_OK;
  } catch (const std::exception& e) { // must not pass through the library's frames
    return refuse(e.what());
  }
}

Operators load(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw_backend_error("operator library {} cannot be loaded: {}", file, ::dlerror());
  auto* entry =
      reinterpret_cast<TbxStatus (*)(const TbxOperatorRegistry*)>(::dlsym(library, TBX_OPERATOR_ENTRY));
  if (!entry)
    throw Error(ErrorKind::backend,
                fmt::format("operator library {} does not export {}", file, TBX_OPERATOR_ENTRY),
                ::dlsym(library, "RegisterCustomOps")
                    ? "it is built for ONNX Runtime's interface; docs/custom_operators.md shows this one"
                    : "docs/custom_operators.md shows what a library needs");
  Registration r{file, {}, {}};
  char message[kMessageSize] = "";
  TbxOperatorRegistry registry{};
  registry.abi = TBX_OPERATOR_ABI;
  registry.size = sizeof registry;
  registry.tensorbox_version = TBX_VERSION;
  registry.add = add_operator;
  registry.message = message;
  registry.message_size = sizeof message;
  registry.runtime = &r;
  TbxStatus status = TBX_BACKEND_ERROR;
  try {
    status = entry(&registry);
  } catch (...) {
    throw_backend_error("operator library {}: {} threw a C++ exception", file, TBX_OPERATOR_ENTRY);
  }
  message[sizeof message - 1] = '\0';
  if (!r.refusal.empty()) throw_backend_error("operator library {}: {}", file, r.refusal);
  if (status != TBX_OK)
    throw_backend_error("operator library {}: {}", file,
                        message[0] ? std::string(message)
                                   : fmt::format("{} gives the status {}", TBX_OPERATOR_ENTRY, status));
  if (r.operators.empty()) throw_backend_error("operator library {} registers no operator", file);
  return std::move(r.operators);
}

} // namespace

std::shared_ptr<const CustomOperator> CustomOperators::find(std::string_view domain, std::string_view op,
                                                            int opset) const {
  auto it = forms_.find(std::pair<std::string, std::string>(domain, op));
  if (it == forms_.end()) return nullptr;
  auto form = it->second.upper_bound(opset);
  return form == it->second.begin() ? nullptr : std::prev(form)->second;
}

void CustomOperators::add(std::shared_ptr<const CustomOperator> op) {
  int since = op->descriptor().since_version;
  auto& slot = forms_[{op->domain(), op->name()}][since];
  if (slot)
    throw_backend_error("operator {}.{} of version {} is registered by {} and by {}", op->domain(),
                        op->name(), since, slot->file(), op->file());
  slot = std::move(op);
}

std::shared_ptr<const CustomOperators> load_custom_operators(std::span<const std::string> files) {
  if (files.empty()) return nullptr;
  // Libraries stay loaded: their code may run threads, and states of theirs live in sessions.
  static std::mutex mutex;
  static std::map<std::string, Operators> loaded;
  std::lock_guard lock(mutex);
  auto all = std::make_shared<CustomOperators>();
  std::vector<std::string> seen;
  for (const std::string& file : files) {
    // A whole path, since dlopen looks for a bare name in the system's folders.
    std::error_code error;
    std::string path = std::filesystem::canonical(file, error).string();
    if (error) throw_backend_error("operator library {} cannot be opened: {}", file, error.message());
    if (std::find(seen.begin(), seen.end(), path) != seen.end()) continue;
    seen.push_back(path);
    auto it = loaded.find(path);
    if (it == loaded.end()) it = loaded.emplace(path, load(path)).first;
    for (const auto& op : it->second) all->add(op);
  }
  return all;
}

} // namespace tbx::extern_kernels
