#include "driver/plan_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "base/archive.h"
#include "base/budget.h"
#include "base/encoded.h"
#include "base/error.h"
#include "codegen/kernel_cache.h"
#include "driver/limits.h"
#include "driver/plan_key.h"
#include "driver/plan_program.h"
#include "importer/external_data.h"
#include "importer/model_bytes.h"

namespace tbx::driver {
namespace {

namespace fs = std::filesystem;
using importer::ExternalData;
using importer::ModelBytes;
using importer::SeenFiles;

/// Files of more bytes are known by their facts: to read them all takes longer than to compile most models.
constexpr size_t kMostHashed = size_t{16} << 20;
/// What was written through a mapping of such a file before is on the disk by then, and a later change tells
/// its time.
constexpr int64_t kSettledSeconds = 60;
/// Read and hashed before the time is looked at.
constexpr size_t kPiece = 1 << 20;
/// The clock of files may stand still for this long.
constexpr int64_t kClockSeconds = 2;

/// 128 bits of hash of what it was given in turn.
class Hash {
public:
  explicit Hash(uint64_t seed) : state_(XXH3_createState(), XXH3_freeState) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset_withSeed(state_.get(), seed);
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  /// With its length: what two texts are together says what each is.
  void add(const std::string& text) {
    const uint64_t size = text.size();
    add(std::as_bytes(std::span(&size, 1)));
    add(std::as_bytes(std::span(text)));
  }
  std::string digits() const {
    const XXH128_hash_t h = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }

private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

/// Why no plan is kept or looked for.
std::string why_unused(const CompileOptions& o) {
  if (!o.keep_plans) return "option keep_plans is off";
  if (const char* variable = std::getenv("TBX_CACHE_PLANS"); variable && std::string_view(variable) == "0")
    return "TBX_CACHE_PLANS is 0";
  if (o.reference) return "reference sessions are compiled each time";
  if (o.every_value) return "option every_value is given";
  if (!o.operator_libraries.empty()) return "the model has operators of a library of the user's own";
  if (build_identity().empty()) return "this build does not say which one it is (linker option --build-id)";
  return {};
}

codegen::Toolchain quiet(const CompileOptions& options) {
  codegen::Toolchain toolchain = toolchain_of(options);
  toolchain.log = nullptr; // who looks for kernels says it
  return toolchain;
}

} // namespace

struct PlanStore::Impl {
  const Source& source;
  const CompileOptions& options;
  codegen::KernelCache cache;
  std::shared_ptr<SeenFiles> seen = std::make_shared<SeenFiles>();
  std::string surroundings, model, found;

  Impl(const Source& from, const CompileOptions& with) : source(from), options(with), cache(quiet(with)) {
    surroundings = plan_surroundings(options);
    model = identity_of_model();
  }

  ModelBytes open_model() const {
    if (const auto* file = std::get_if<fs::path>(&source.from)) return {*file, seen.get()};
    return ModelBytes(std::get<std::span<const std::byte>>(source.from));
  }

  ExternalData open_external() const {
    if (const auto* file = std::get_if<fs::path>(&source.from))
      return ExternalData::beside_model(*file, options.strict_links, seen);
    return options.external_data_dir.empty()
               ? ExternalData()
               : ExternalData::below(options.external_data_dir, options.strict_links, seen);
  }

  Hash hash() const { return Hash(cache.plan_seed()); }

  std::string identity_of_model() const {
    ModelBytes bytes = open_model();
    ImportOptions limits;
    set_limits(limits, options);
    check_model_bytes(bytes.size(), limits);
    return identity_of(bytes);
  }

  /// What these bytes are told from all others by: their hash, or the facts of a large file.
  std::string identity_of(ModelBytes& bytes) const {
    const std::optional<struct stat> facts = bytes.size() > kMostHashed ? bytes.facts() : std::nullopt;
    if (!facts) return hash_of(bytes);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (std::max(facts->st_mtim.tv_sec, facts->st_ctim.tv_sec) > now.tv_sec - kSettledSeconds)
      throw_unsupported("a file of the model, of more than {} MiB, was changed less than {} seconds ago",
                        kMostHashed >> 20, kSettledSeconds);
    return fmt::format("file {} {} of {} bytes, {}.{:09} {}.{:09}", facts->st_dev, facts->st_ino,
                       facts->st_size, facts->st_mtim.tv_sec, facts->st_mtim.tv_nsec, facts->st_ctim.tv_sec,
                       facts->st_ctim.tv_nsec);
  }

  std::string hash_of(ModelBytes& bytes) const {
    Hash h = hash();
    for (size_t at = 0; at < bytes.size();) {
      check_stop();
      std::span<const std::byte> some = bytes.from(at);
      some = some.first(std::min(some.size(), kPiece));
      h.add(some);
      at += some.size();
    }
    return h.digits();
  }

  /// Of these files of external data, and of all else.
  std::string key(const std::vector<std::string>& locations) const {
    Hash h = hash();
    h.add(locations.empty() ? "plan" : "plan with external data");
    h.add(surroundings);
    h.add(model);
    const ExternalData external = open_external();
    for (const std::string& location : locations) {
      ModelBytes file = external.bytes(location);
      h.add(location);
      h.add(identity_of(file));
    }
    return h.digits();
  }

  /// Where it lies which files of external data a model names.
  std::string key_of_locations() const {
    Hash h = hash();
    h.add("locations of external data");
    h.add(model);
    return h.digits();
  }

  std::optional<TensorMemory> read(const std::string& key) {
    size_t size = 0;
    std::string wrong;
    const std::shared_ptr<const std::byte> bytes = cache.find_plan(key, size, wrong);
    if (!wrong.empty()) say(wrong);
    if (!bytes) return std::nullopt;
    return TensorMemory{{bytes.get(), size}, bytes, false, {}};
  }

  /// What lies under the key of the model, in `found` then.
  std::optional<TensorMemory> find() {
    found = key({});
    if (std::optional<TensorMemory> memory = read(found)) return memory;
    const std::optional<TensorMemory> locations = read(key_of_locations());
    if (!locations) return std::nullopt;
    found = key(archive::read<std::vector<std::string>>(locations->bytes, {}));
    return read(found);
  }

  /// The files are what they were when they were hashed.
  bool unchanged() const {
    const ModelBytes again = open_model(); // throws where it is another
    return !seen->changed_lately(kClockSeconds) || identity_of_model() == model;
  }

  void say(const std::string& wrong) const {
    if (options.log) options.log(wrong + ": the model is compiled anew");
  }

  /// The bytes of a place in the model's files.
  static TensorMemory bytes_at(const importer::TensorPlace& place, ModelBytes& model,
                               ExternalData& external) {
    if (place.file.empty()) {
      if (place.bytes == 0 || place.at > model.size() || place.bytes > model.size() - place.at)
        archive::damaged("a constant lies outside of the model");
      const auto copy = model.copy(place.at, place.bytes);
      return {{copy.get(), place.bytes}, copy, false, {}};
    }
    const auto file = external.file(place.file);
    const auto all = file->bytes();
    if (place.at > all.size() || place.bytes > all.size() - place.at)
      archive::damaged("a constant lies outside of the external data");
    return {all.subspan(place.at, place.bytes), file, true, {}};
  }

  static TensorMemory elements_at(const importer::TensorPlace& place, ModelBytes& model,
                                  ExternalData& external) {
    TensorMemory memory = bytes_at(place, model, external);
    if (place.encoded == DType::undefined) return memory;
    const auto count = static_cast<int64_t>(place.bytes / sizeof(float));
    const Tensor from{DType::f32, {count}, memory.bytes.data(), memory.owner};
    std::optional<Tensor> to = is_half(place.encoded) && place.bytes % sizeof(float) == 0
                                   ? encoded(place.encoded, from)
                                   : std::nullopt;
    if (!to) archive::damaged("a constant is not what it was made of");
    return {{static_cast<const std::byte*>(to->data), place.bytes_read()}, to->owner, false, {}};
  }

  ReadPlan read_kept(const TensorMemory& memory) const {
    ModelBytes model_bytes = open_model();
    ExternalData external = open_external();
    return read_plan(
        memory, [&](const importer::TensorPlace& place) { return elements_at(place, model_bytes, external); },
        options.device.empty() ? Steps::of_host : Steps::of_device);
  }
};

PlanStore::PlanStore(const Source& source, const CompileOptions& options) : unused_(why_unused(options)) {
  if (!unused_.empty()) return;
  try {
    impl_ = std::make_unique<Impl>(source, options);
  } catch (const Error& e) { // who compiles the model says what is wrong with it
    if (e.kind() == ErrorKind::internal) throw;
    unused_ = e.message();
  }
}

PlanStore::~PlanStore() = default;

std::optional<ReadPlan> PlanStore::find(std::shared_ptr<SeenFiles>& seen) {
  if (!impl_) return std::nullopt;
  try {
    const std::optional<TensorMemory> memory = impl_->find();
    if (!memory) return std::nullopt;
    std::optional<ReadPlan> plan;
    try {
      plan = impl_->read_kept(*memory);
    } catch (const Error& e) {
      drop(e.message());
    }
    if (!plan || !impl_->unchanged()) return std::nullopt;
    seen = impl_->seen;
    return plan;
  } catch (const Error& e) { // of the model's files: who compiles it says so
    if (e.kind() == ErrorKind::internal) throw;
    return std::nullopt;
  }
}

void PlanStore::drop(const std::string& why) {
  impl_->cache.evict_plan(impl_->found);
  impl_->say(fmt::format("the kept plan {}/{}.plan cannot be used ({})", impl_->cache.folder().string(),
                         impl_->found, why));
}

std::string PlanStore::keep(PlanRecorder& recorder, const SeenFiles& seen) {
  if (!impl_) return unused_;
  if (!recorder.refused().empty()) return recorder.refused();
  if (!impl_->cache.can_write())
    return fmt::format("cannot write to the kernel cache {}", impl_->cache.folder().string());
  try {
    const std::vector<std::string> locations = seen.locations();
    std::string bytes = recorder.to_bytes();
    if (!recorder.refused().empty()) return recorder.refused();
    if (!locations.empty() && seen.changed_lately(kClockSeconds))
      return "the model's external data was changed just now";
    const std::string key = impl_->key(locations);
    if (!impl_->unchanged() || !impl_->seen->has_same_as(seen))
      return "the model's files were changed while it was compiled";
    if (!locations.empty()) {
      TensorPool none;
      std::string wrong =
          impl_->cache.insert_plan(impl_->key_of_locations(), archive::write(locations, none));
      if (!wrong.empty()) return wrong;
    }
    return impl_->cache.insert_plan(key, std::move(bytes));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return e.message();
  }
}

} // namespace tbx::driver
