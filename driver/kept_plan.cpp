#include "driver/kept_plan.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "driver/kept_plan_fields.h"
#include "runtime/executable_file.h"
#include "runtime/value_plan_file.h"
#include "runtime/verify.h"

namespace tbx::driver {
namespace {

using importer::TensorPlace;

/// What a file begins with; then the constants, then the index, which begins with the places of the others.
struct Header {
  uint64_t constants = 0, index = 0; ///< bytes
  std::array<std::byte, kTensorAlignment - 16> unused{};
};
static_assert(sizeof(Header) == kTensorAlignment);

struct Index {
  std::vector<TensorPlace> elsewhere;
  std::string plan;
};

} // namespace
} // namespace tbx::driver

namespace tbx::archive {
template <class A> void fields(A& a, driver::Index& v) { a(v.elsewhere, v.plan); }
} // namespace tbx::archive

namespace tbx::driver {

PlanRecorder::PlanRecorder(std::shared_ptr<const importer::TensorPlaces> places)
    : places_(std::move(places)), tensors_([this](const Tensor& t) -> std::optional<uint64_t> {
        std::optional<TensorPlace> place = places_->place_of(t);
        if (!place) return std::nullopt;
        const auto [it, fresh] = numbers_.try_emplace(*place, elsewhere_.size());
        if (fresh) elsewhere_.push_back(std::move(*place));
        return it->second;
      }) {}

void PlanRecorder::refuse(std::string why) {
  if (!refused_.empty()) return;
  refused_ = std::move(why);
  tensors_ = TensorPool(); // what is not kept holds no memory
}

/// What `write` gives, where all constants so far are within the bound.
template <class Write> std::string PlanRecorder::bounded(Write write) {
  if (!refused_.empty()) return {};
  try {
    std::string bytes = write();
    uint64_t elsewhere = 0;
    for (const TensorPlace& place : elsewhere_) elsewhere += place.bytes;
    if (const uint64_t most = most_kept_bytes(elsewhere); tensors_.bytes() > most)
      refuse(fmt::format("compiling made constants of {} MiB, and {} MiB are kept at most",
                         tensors_.bytes() >> 20, most >> 20));
    else
      return bytes;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    refuse(e.message());
  }
  return {};
}

std::optional<KeptProgram> PlanRecorder::record(const PlanResult& plan) {
  KeptProgram kept;
  kept.executable = bounded([&] { return runtime::to_bytes(plan.executable, tensors_); });
  if (!refused_.empty()) return std::nullopt;
  if (!plan.evaluated.empty()) kept.evaluated = ir::to_bytes(plan.evaluated);
  kept.steps = plan.steps;
  for (const runtime::SignatureEntry& e : plan.executable.inputs) kept.inputs.push_back(e.name);
  return kept;
}

void PlanRecorder::record(const runtime::ValuePlan& values) {
  plan.values = bounded([&] { return runtime::to_bytes(values, tensors_); });
}

std::string PlanRecorder::to_bytes() {
  Index index;
  index.plan = bounded([&] { return archive::write(plan, tensors_); });
  if (!refused_.empty()) return {};
  index.elsewhere = elsewhere_;
  TensorPool none;
  const std::string text = archive::write(index, none), constants = tensors_.to_string();
  const Header header{constants.size(), text.size(), {}};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes + constants + text;
}

namespace {

ReadProgram read_program(KeptProgram kept, const TensorMemory& memory, Steps steps) {
  ReadProgram read{std::move(kept.made_for),
                   std::move(kept.inputs),
                   {},
                   std::move(kept.native),
                   std::move(kept.device_kernels)};
  PlanResult& plan = read.plan;
  plan.executable = runtime::from_bytes(std::as_bytes(std::span(kept.executable)), memory);
  if (!kept.evaluated.empty())
    plan.evaluated = ir::kernels_from_bytes(std::as_bytes(std::span(kept.evaluated)));
  plan.steps = std::move(kept.steps);
  const size_t n = plan.executable.inputs.size();
  if (plan.steps.size() != plan.executable.steps.size() || read.inputs.size() != n || !read.made_for.is_of(n))
    archive::damaged("a program is not of the inputs and steps that it has");
  if (steps == Steps::of_device) return read;
  if (!read.device_kernels.empty()) archive::damaged("it has kernels of a device");
  for (const runtime::Step& step : plan.executable.steps)
    if (step.device != runtime::DeviceKind::cpu) archive::damaged("a step is for another device");
  for (const runtime::BufferPlan& buffer : plan.executable.buffers)
    if (buffer.device != runtime::DeviceKind::cpu) archive::damaged("a buffer lies on another device");
  return read;
}

void verify(const ReadPlan& read) {
  if (read.programs.empty() && !read.values) archive::damaged("it has no program");
  std::vector<runtime::StageParts> parts;
  for (const ReadProgram& p : read.programs)
    parts.push_back(
        {p.plan.executable.inputs.size(), p.plan.executable.outputs.size(), {&p.plan.executable}});
  if (const std::string defect = runtime::defect_of({std::move(parts), read.values.get()}); !defect.empty())
    archive::damaged(defect.c_str());
  const size_t inputs = read.plan.inputs.size(), outputs = read.plan.outputs.size();
  const bool fits = read.values
                        ? read.values->inputs.size() == inputs && read.values->outputs.size() == outputs
                        : read.programs[0].plan.executable.inputs.size() >= inputs &&
                              read.programs[0].plan.executable.outputs.size() == outputs;
  if (!fits) archive::damaged("its signature is another one");
  for (const TensorInfo& input : read.plan.inputs) {
    const auto given = read.plan.defaults.find(input.name);
    if (input.has_default && given == read.plan.defaults.end()) archive::damaged("a default is missing");
  }
}

} // namespace

ReadPlan read_plan(const TensorMemory& memory, const ReadPlace& read_place, Steps steps) {
  Header header;
  const std::span<const std::byte> bytes = memory.bytes;
  if (bytes.size() < sizeof header) archive::damaged("it ends too early");
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  const size_t rest = bytes.size() - sizeof header;
  if (header.constants > rest || header.index != rest - header.constants)
    archive::damaged("its parts are not as long as it is");
  Index index = archive::read<Index>(bytes.last(header.index), {});
  // Constants of several programs may be one.
  std::vector<std::optional<TensorMemory>> found(index.elsewhere.size());
  const TensorMemory tensors{bytes.subspan(sizeof header, header.constants), memory.owner, false,
                             [&](uint64_t number, uint64_t size) {
                               if (number >= found.size() || index.elsewhere[number].bytes_read() != size)
                                 archive::damaged("a constant lies nowhere");
                               if (!found[number]) found[number] = read_place(index.elsewhere[number]);
                               return *found[number];
                             }};
  ReadPlan result;
  result.plan = archive::read<KeptPlan>(std::as_bytes(std::span(index.plan)), tensors);
  for (KeptProgram& program : result.plan.programs)
    result.programs.push_back(read_program(std::move(program), tensors, steps));
  result.plan.programs.clear();
  if (!result.plan.values.empty())
    result.values = std::make_shared<const runtime::ValuePlan>(
        runtime::value_plan_from_bytes(std::as_bytes(std::span(result.plan.values)), tensors));
  verify(result);
  return result;
}

} // namespace tbx::driver
