#include "runtime/value_plan_file.h"

#include <algorithm>

#include "runtime/executable_fields.h"
#include "runtime/generation/generation.h"

namespace tbx::archive {

template <> struct Last<RuntimeValue::Kind> { static constexpr auto value = RuntimeValue::Kind::map; };
template <> struct Last<ErrorKind> { static constexpr auto value = ErrorKind::internal; };
template <> struct Last<runtime::Search> { static constexpr auto value = runtime::Search::beams; };
template <> struct Last<runtime::Family> { static constexpr auto value = runtime::Family::whisper; };

} // namespace tbx::archive

namespace tbx::runtime {
namespace {

/// A plan as it lies in a file: bodies and stages by their numbers, bodies before the plans that have them.
struct FileStage {
  int stage = -1;
};
struct FileError {
  ErrorKind kind{};
  std::string message, hint, where;
};
struct FileBody {
  int plan = -1;
  std::vector<int> captures;
  std::optional<FileError> failure;
};
struct FileIf {
  FileBody then_branch, else_branch;
};
struct FileLoop {
  FileBody body;
  int carried = 0;
  std::vector<int64_t> iteration_dims, condition_dims;
};
struct FileScan {
  FileBody body;
  int states = 0;
  std::vector<int64_t> input_axes, output_axes;
  std::vector<bool> input_backwards, output_backwards;
  bool batched = false;
};
struct FileMap {
  FileBody body;
};
struct FileGeneration {
  Generation what;
  FileBody decoder, first;
};
struct FileValue {
  RuntimeValue::Kind kind{};
  std::vector<Tensor> tensors; ///< tensor: itself; map: keys and values
  std::vector<FileValue> elements;
};
struct FileStep {
  std::variant<FileStage, ValueNode, FileIf, FileLoop, FileScan, FileMap, FileGeneration> what;
  std::vector<int> inputs, outputs;
  std::vector<bool> last_use;
  std::vector<int> release;
  std::string where;
};
struct FilePlan {
  int num_slots = 0;
  std::vector<ValueEntry> inputs, outputs;
  std::vector<std::pair<int, FileValue>> constants;
  std::vector<FileStep> steps;
};
struct File {
  std::vector<FilePlan> plans; ///< the last one is the model
};

template <class A> void fields(A& a, FileStage& v) { a.template all<FileStage>(v.stage); }
template <class A> void fields(A& a, FileError& v) {
  a.template all<FileError>(v.kind, v.message, v.hint, v.where);
}
template <class A> void fields(A& a, FileBody& v) { a.template all<FileBody>(v.plan, v.captures, v.failure); }
template <class A> void fields(A& a, FileIf& v) { a.template all<FileIf>(v.then_branch, v.else_branch); }
template <class A> void fields(A& a, FileLoop& v) {
  a.template all<FileLoop>(v.body, v.carried, v.iteration_dims, v.condition_dims);
}
template <class A> void fields(A& a, FileScan& v) {
  a.template all<FileScan>(v.body, v.states, v.input_axes, v.output_axes, v.input_backwards,
                           v.output_backwards, v.batched);
}
template <class A> void fields(A& a, FileMap& v) { a.template all<FileMap>(v.body); }
template <class A> void fields(A& a, FileGeneration& v) {
  Generation& g = v.what;
  static_assert(kArity<Generation> == 20, "a member is not saved");
  a(g.search, g.family, g.end, g.pad, g.start, g.vocabulary, g.ngram, g.early_stopping, g.temperature,
    g.presence_penalty, g.top_p, g.filtered, g.least_kept, g.from_the_top, g.no_speech, g.translate,
    g.transcribe, g.language_model, g.no_timestamps, g.first_timestamp, v.decoder, v.first);
}
template <class A> void fields(A& a, FileValue& v) {
  a.template all<FileValue>(v.kind, v.tensors, v.elements);
}
template <class A> void fields(A& a, FileStep& v) {
  a.template all<FileStep>(v.what, v.inputs, v.outputs, v.last_use, v.release, v.where);
}
template <class A> void fields(A& a, FilePlan& v) {
  a.template all<FilePlan>(v.num_slots, v.inputs, v.outputs, v.constants, v.steps);
}
template <class A> void fields(A& a, File& v) { a.template all<File>(v.plans); }

} // namespace

template <class A> void fields(A& a, ValueNode& v) {
  a.template all<ValueNode>(v.domain, v.op, v.opset, v.attributes, v.wanted, v.output_types);
}
template <class A> void fields(A& a, ElementType& v) { a.template all<ElementType>(v.dtype, v.dims, v.same); }
template <class A> void fields(A& a, ValueEntry& v) {
  a.template all<ValueEntry>(v.name, v.type, v.dtype, v.dims, v.ranked, v.slot, v.may_be_none, v.kind,
                             v.element, v.only_here);
}

namespace {

class Packer {
public:
  explicit Packer(std::span<const TensorStage* const> stages) : stages_(stages) {}
  File file;

  int add(const ValuePlan& plan) {
    FilePlan f{plan.num_slots, plan.inputs, plan.outputs, {}, {}};
    for (const auto& [slot, value] : plan.constants) f.constants.emplace_back(slot, pack(value));
    for (const ValueStep& s : plan.steps)
      f.steps.push_back(
          {std::visit([&](const auto& what) -> decltype(FileStep::what) { return pack(what); }, s.what),
           s.inputs, s.outputs, s.last_use, s.release, s.where});
    file.plans.push_back(std::move(f));
    return static_cast<int>(file.plans.size()) - 1;
  }

private:
  static FileValue pack(const RuntimeValue& v) {
    FileValue f{v.kind, {}, {}};
    if (v.is_tensor()) f.tensors = {v.tensor};
    if (v.is_map()) f.tensors = {v.map->keys, v.map->values};
    if (v.is_sequence())
      for (const RuntimeValue& e : *v.elements) f.elements.push_back(pack(e));
    return f;
  }
  FileBody pack(const BodyCall& call) {
    FileBody f{call.plan ? add(*call.plan) : -1, call.captures, {}};
    if (const auto& e = call.failure) f.failure = FileError{e->kind(), e->message(), e->hint(), e->where()};
    return f;
  }
  FileStage pack(const StageStep& s) const {
    auto it = std::find(stages_.begin(), stages_.end(), s.stage.get());
    TBX_INTERNAL(it != stages_.end());
    return {static_cast<int>(it - stages_.begin())};
  }
  static ValueNode pack(const OpStep& s) { return s.node; }
  FileIf pack(const IfStep& s) { return {pack(s.then_branch), pack(s.else_branch)}; }
  FileLoop pack(const LoopStep& s) { return {pack(s.body), s.carried, s.iteration_dims, s.condition_dims}; }
  FileScan pack(const ScanStep& s) {
    return {pack(s.body),      s.states,           s.input_axes, s.output_axes,
            s.input_backwards, s.output_backwards, s.batched};
  }
  FileMap pack(const SequenceMapStep& s) { return {pack(s.body)}; }
  FileGeneration pack(const GenerationStep& s) { return {*s.what, pack(s.decoder), pack(s.first)}; }

  std::span<const TensorStage* const> stages_;
};

class Unpacker {
public:
  Unpacker(const File& file, std::span<const std::shared_ptr<const TensorStage>> stages) : stages_(stages) {
    for (const FilePlan& f : file.plans) plans_.push_back(unpack(f));
  }
  std::shared_ptr<const ValuePlan> last() const {
    if (plans_.empty()) archive::damaged("a plan is missing");
    return plans_.back();
  }

private:
  static void check(bool sound) {
    if (!sound) archive::damaged("a step of values does not fit its plan");
  }

  std::shared_ptr<const ValuePlan> unpack(const FilePlan& f) {
    auto plan = std::make_shared<ValuePlan>();
    plan->num_slots = f.num_slots;
    plan->inputs = f.inputs;
    plan->outputs = f.outputs;
    for (const auto& [slot, value] : f.constants) plan->constants.emplace_back(slot, unpack(value));
    for (const FileStep& s : f.steps) {
      try {
        plan->steps.push_back({std::visit([&](const auto& what) { return unpack(what); }, s.what), s.inputs,
                               s.outputs, s.last_use, s.release, s.where});
      } catch (Error& e) {
        e.set_where(s.where);
        throw;
      }
    }
    if (const std::string defect = defect_of(*plan); !defect.empty()) archive::damaged(defect.c_str());
    return plan;
  }

  static RuntimeValue unpack(const FileValue& f) {
    using Kind = RuntimeValue::Kind;
    check(f.tensors.size() == (f.kind == Kind::tensor ? 1u : f.kind == Kind::map ? 2u : 0u));
    switch (f.kind) {
    case Kind::tensor: return RuntimeValue(f.tensors[0]);
    case Kind::map: return RuntimeValue::of_map(f.tensors[0], f.tensors[1]);
    case Kind::sequence: {
      std::vector<RuntimeValue> elements;
      for (const FileValue& e : f.elements) elements.push_back(unpack(e));
      return RuntimeValue::sequence(std::move(elements));
    }
    case Kind::none: break;
    }
    return {};
  }

  BodyCall unpack(const FileBody& f) const {
    BodyCall call;
    call.captures = f.captures;
    if (f.failure) {
      auto failure = std::make_shared<Error>(f.failure->kind, f.failure->message, f.failure->hint);
      if (!f.failure->where.empty()) failure->set_where(f.failure->where);
      call.failure = std::move(failure);
    }
    if (f.plan >= 0) {
      check(static_cast<size_t>(f.plan) < plans_.size()); // bodies come first
      call.plan = plans_[static_cast<size_t>(f.plan)];
    }
    return call;
  }

  using What = decltype(ValueStep::what);
  What unpack(const FileStage& f) const {
    check(f.stage >= 0 && static_cast<size_t>(f.stage) < stages_.size());
    return StageStep{stages_[static_cast<size_t>(f.stage)]};
  }
  What unpack(const ValueNode& node) const {
    auto make = find_value_op(node.domain, node.op, node.opset);
    if (!make) archive::damaged("it has an operator that this version has not");
    return OpStep{node, make(node)};
  }
  What unpack(const FileIf& f) const { return IfStep{unpack(f.then_branch), unpack(f.else_branch)}; }
  What unpack(const FileLoop& f) const {
    return LoopStep{unpack(f.body), f.carried, f.iteration_dims, f.condition_dims};
  }
  What unpack(const FileScan& f) const {
    return ScanStep{unpack(f.body),    f.states,           f.input_axes, f.output_axes,
                    f.input_backwards, f.output_backwards, f.batched};
  }
  What unpack(const FileMap& f) const { return SequenceMapStep{unpack(f.body)}; }
  What unpack(const FileGeneration& f) const {
    return GenerationStep{std::make_shared<const Generation>(f.what), unpack(f.decoder), unpack(f.first)};
  }

  std::span<const std::shared_ptr<const TensorStage>> stages_;
  std::vector<std::shared_ptr<const ValuePlan>> plans_;
};

} // namespace

std::string to_bytes(const ValuePlan& plan, std::span<const TensorStage* const> stages, TensorPool& tensors) {
  Packer packer(stages);
  packer.add(plan);
  return archive::write(packer.file, tensors);
}

std::shared_ptr<const ValuePlan>
value_plan_from_bytes(std::span<const std::byte> bytes, TensorMemory tensors,
                      std::span<const std::shared_ptr<const TensorStage>> stages) {
  return Unpacker(archive::read<File>(bytes, std::move(tensors)), stages).last();
}

} // namespace tbx::runtime
