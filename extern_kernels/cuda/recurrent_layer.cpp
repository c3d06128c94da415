#include "extern_kernels/cuda/recurrent_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kLayerText =
#include "extern_kernels/cuda/recurrent_layer.inc"
    ;

int64_t parts_of(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// How the work of one layer is shared, as the text has it.
struct LayerCut {
  static constexpr int64_t kMostThreads = 512, kLargestCluster = 8, kMostRows = 8;
  static constexpr int64_t kHeldBytes = 256; ///< of weights in a thread's registers: more would not fit
  static constexpr int64_t kHeldItems = 2;   ///< of a thread that has them there: loops are unrolled
  /// Of shared memory that a block may ask for: what every GPU has, and what sm_90 has; sm_120 has less.
  static constexpr int64_t kSharedBytes = 64 << 10, kLargeSharedBytes = 224 << 10, kEmulatedBytes = 64 << 10;

  int64_t blocks = 1, rows = 1, threads = 32, split = 1, held = 0, shared = 0, shared_bytes = 0;

  /// `real`: bytes of a weight; `room`: of shared memory; `places`: multiprocessors; `clusters`: the device
  /// has them.
  LayerCut(const RecurrentProblem& p, int64_t hidden, int64_t batch, int64_t real, int64_t room,
           int64_t places, bool clusters) {
    const int64_t weights = p.gates() * hidden * hidden * real;
    while (clusters && blocks < kLargestCluster && blocks * kMostThreads * kHeldBytes < weights) blocks *= 2;
    while (rows < kMostRows && rows < batch && parts_of(batch, rows) * p.directions() * blocks > places)
      rows *= 2;
    const int64_t units = parts_of(hidden, blocks), lines = p.gates() * units;
    while (split < 32 && lines * split * 2 <= kMostThreads && split * 2 <= parts_of(hidden, 4)) split *= 2;
    threads = std::min(kMostThreads, parts_of(std::max(lines * split, units * rows), 32) * 32);
    const int64_t each = parts_of(lines * split, threads), groups = parts_of(hidden, 4 * split);
    if (each <= kHeldItems) held = std::min(each * groups, kHeldBytes / (4 * real));
    auto used = [&] { // by states and sums
      const int64_t states = (p.cell == RecurrentProblem::gru ? 3 : 2) * rows * groups * split * 4;
      return (states + parts_of(rows * lines, 4) * 4) * real;
    };
    while (rows > 1 && used() > room) rows /= 2;
    shared = std::clamp<int64_t>((room - used()) / (threads * 4 * real), 0, each * groups - held);
    shared_bytes = used() + shared * threads * 4 * real;
  }
};

/// The parameter `at` of the text.
struct LayerDistances {
  int64_t steps, batch, directions, gates[3], weights[3], lengths, h[3], c[3], peepholes[2], bias[2], y[4],
      y_h[3], y_c[3];
};

class RecurrentLayer final : public ExternKernel {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

  RecurrentLayer(device::Device& device, const RecurrentProblem& p, std::span<const OperandInfo> in,
                 DType value, Load load)
      : p_(p), value_(value), real_(in[0].dtype), load_(std::move(load)),
        places_(std::max(1, device.properties().multiprocessors)) {
    emulated_ = device::is_fake(device);
    clusters_ = has_clusters(device.properties());
    room_ = emulated_   ? LayerCut::kEmulatedBytes
            : clusters_ ? std::min(LayerCut::kLargeSharedBytes, device.properties().shared_bytes_block)
                        : LayerCut::kSharedBytes;
    if (in.size() > 2) lengths_ = in[2].constant;
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (in[0].sizes.size() != 3 || in[1].sizes.size() != 3 || in[1].strides.empty()) return;
    const int64_t batch = in[0].sizes[p.batch_first ? 0 : 1], hidden = in[1].sizes[2];
    if (batch > 0 && hidden > 0)
      compiled_for(cut(hidden, batch), hidden, is_dense(hidden, in[1].strides),
                   in.size() > 5 && in[5].dtype != DType::undefined); // for the first run
  }

  std::string description() const override {
    return fmt::format("our own {}{}", to_string(Problem(p_)), clusters_ ? " by clusters of blocks" : "");
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1];
    const int time = p_.batch_first ? 1 : 0, row = 1 - time;
    const int64_t steps = x.sizes[time], batch = x.sizes[row], hidden = w.sizes[2];
    if (batch == 0 || hidden == 0) return; // nor are there results
    check_lengths(steps);
    const LayerCut c = cut(hidden, batch);
    auto given = [&](size_t i) -> const TensorRef* {
      return args.inputs.size() > i && args.inputs[i].data ? &args.inputs[i] : nullptr;
    };
    auto data_of = [](const TensorRef* t) { return t ? t->data : nullptr; };
    auto set_state = [&](const TensorRef* t, int64_t(&to)[3]) {
      if (t) to[0] = t->strides[time], to[1] = t->strides[row], to[2] = t->strides[2];
    };
    LayerDistances at{
        .steps = steps, .batch = batch, .directions = p_.directions(), .gates = {}, .weights = {}};
    at.gates[0] = x.strides[time], at.gates[1] = x.strides[row], at.gates[2] = x.strides[2];
    std::copy_n(w.strides.begin(), 3, at.weights);
    const TensorRef *lengths = given(2), *h = given(3), *cell = given(4), *peepholes = given(5),
                    *bias = given(6);
    if (lengths) at.lengths = lengths->strides[0];
    set_state(h, at.h);
    set_state(cell, at.c);
    if (peepholes) std::copy_n(peepholes->strides.begin(), 2, at.peepholes);
    if (bias) std::copy_n(bias->strides.begin(), 2, at.bias);
    size_t next = 0;
    auto result = [&](bool gives) { return gives ? &args.outputs[next++] : nullptr; };
    const TensorRef *y = result(p_.gives_y), *y_h = result(p_.gives_h), *y_c = result(p_.gives_c);
    if (y) {
      const int64_t order[] = {time, p_.batch_first ? 2 : 1, p_.batch_first ? 0 : 2, 3};
      for (int d = 0; d < 4; ++d) at.y[d] = y->strides[order[d]];
    }
    set_state(y_h, at.y_h);
    set_state(y_c, at.y_c);
    void *from = x.data, *weights = w.data, *of_rows = data_of(lengths), *first_h = data_of(h),
         *first_c = data_of(cell), *through = data_of(peepholes), *own = data_of(bias), *to = data_of(y),
         *to_h = data_of(y_h), *to_c = data_of(y_c);
    void* arguments[] = {&from, &weights, &of_rows, &first_h, &first_c, &through,
                         &own,  &to,      &to_h,    &to_c,    &at};
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(parts_of(batch, c.rows) * p_.directions() * c.blocks);
    shape.threads = static_cast<uint32_t>(c.threads);
    shape.shared_bytes = static_cast<uint32_t>(c.shared_bytes);
    const bool aligned = reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
    args.stream->launch(compiled_for(c, hidden, aligned && is_dense(hidden, w.strides), peepholes != nullptr),
                        shape, arguments);
  }

private:
  LayerCut cut(int64_t hidden, int64_t batch) const {
    return {p_, hidden, batch, size_of(real_), room_, places_, clusters_};
  }
  static bool is_dense(int64_t hidden, std::span<const int64_t> strides) {
    return hidden % 4 == 0 && strides[2] == 1 && strides[1] % 4 == 0 && strides[0] % 4 == 0;
  }
  void check_lengths(int64_t steps) const {
    if (!lengths_) return;
    for (int64_t b = 0; b < lengths_->numel(); ++b) {
      const int64_t n = element_as_int(*lengths_, b);
      TBX_MODEL(n >= 0 && n <= steps, "sequence_lens[{}] is {}, the input has {} steps", b, n, steps);
    }
  }

  device::Kernel compiled_for(const LayerCut& c, int64_t hidden, bool dense, bool peepholes) const {
    const std::string text = fmt::format(
        "#define REAL {}\n#define VALUE {}\n#define CELL {}\n#define HIDDEN {}\n#define BLOCKS {}\n"
        "#define ROWS {}\n#define THREADS {}\n#define SPLIT {}\n#define HELD {}\n#define SHARED {}\n"
        "#define DENSE {}\n#define LENGTHS {}\n#define TURNED {}\n#define PEEPHOLES {}\n#define FORGETS {}\n"
        "#define CLIPS {}\n{}{}",
        real_ == DType::f64 ? "double" : "float", static_cast<int>(value_), static_cast<int>(p_.cell), hidden,
        c.blocks, c.rows, c.threads, c.split, c.held, c.shared, dense ? 1 : 0,
        lengths_ ? size_of(lengths_->dtype) : 0, p_.direction == RecurrentProblem::reverse ? 1 : 0,
        peepholes ? 1 : 0, p_.input_forget ? 1 : 0, std::isfinite(p_.clip) ? 1 : 0, functions(), kLayerText);
    std::scoped_lock lock(mutex_);
    std::shared_ptr<device::Module>& module = modules_[text];
    if (!module) module = load_(text);
    return module->kernel("recurrent_layer");
  }

  /// The activations of both directions, and what bounds what goes into them.
  std::string functions() const {
    std::string kinds, alphas, betas;
    for (int d = 0; d < 2; ++d)
      for (size_t k = 0; k < 3; ++k) {
        const size_t per = p_.activations_of_direction();
        const GateActivation a =
            k < per ? p_.activations[(d < p_.directions() ? static_cast<size_t>(d) : 0) * per + k]
                    : GateActivation{};
        const char* between = k == 2 ? "}, {" : ", ";
        kinds += fmt::format("{}{}", static_cast<int>(a.kind), between);
        alphas += fmt::format("(REAL){:.17g}{}", a.alpha, between);
        betas += fmt::format("(REAL){:.17g}{}", a.beta, between);
      }
    for (std::string* list : {&kinds, &alphas, &betas}) list->resize(list->size() - 3); // ", {"
    return fmt::format(
        "namespace tbx {{ namespace recurrent_layer_ {{\nconstexpr int kKind[2][3] = {{{{{}}};\n"
        "constexpr REAL kAlpha[2][3] = {{{{{}}};\nconstexpr REAL kBeta[2][3] = {{{{{}}};\n"
        "constexpr REAL kClip = {:.17g};\n}}}}\n",
        kinds, alphas, betas, std::isfinite(p_.clip) ? p_.clip : 0);
  }

  RecurrentProblem p_;
  DType value_, real_;
  Load load_;
  int64_t places_, room_ = 0;
  bool emulated_ = false, clusters_ = false;
  std::shared_ptr<const Tensor> lengths_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<device::Module>> modules_; ///< by text
};

} // namespace

std::string supports_cuda_recurrent(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<RecurrentProblem>(problem);
  const DType real = inputs[0].dtype;
  if ((real != DType::f32 && real != DType::f64) || inputs[1].dtype != real)
    return fmt::format("{} gates and {} weights", name_of(real), name_of(inputs[1].dtype));
  auto type_of = [&](size_t i) { return inputs.size() > i ? inputs[i].dtype : DType::undefined; };
  if (type_of(2) != DType::undefined && !inputs[2].constant)
    return "lengths of sequences that are no constants: the host tells which of them is wrong";
  const DType value = outputs.empty() ? real : outputs[0].dtype;
  if (value != DType::f32 && value != DType::f64 && !is_half(value))
    return fmt::format("results of {}", name_of(value));
  for (size_t i : {3, 4, 5})
    if (type_of(i) != DType::undefined && type_of(i) != value)
      return fmt::format("states of {} and results of {}", name_of(type_of(i)), name_of(value));
  if (type_of(6) != DType::undefined && type_of(6) != real) return "a bias of another type";
  for (const GateActivation& a : p.activations)
    if (!std::isfinite(a.alpha) || !std::isfinite(a.beta)) return "parameters of activations without end";
  if (inputs[1].sizes.size() != 3 || inputs[1].sizes[2] < 0)
    return "a number of hidden units that is not known";
  if (const int64_t hidden = inputs[1].sizes[2];
      hidden * (3 + p.gates()) * size_of(real) > LayerCut::kSharedBytes)
    return fmt::format("the states of {} hidden units do not fit into the memory of a block", hidden);
  return {};
}

std::unique_ptr<ExternKernel>
make_recurrent_layer(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                     DType value, std::function<std::shared_ptr<device::Module>(const std::string&)> load) {
  return std::make_unique<RecurrentLayer>(device, std::get<RecurrentProblem>(problem), inputs, value,
                                          std::move(load));
}

std::unique_ptr<ExternKernel> make_cuda_recurrent(device::Device& device, const Problem& problem,
                                                  std::span<const OperandInfo> inputs,
                                                  std::span<const OperandInfo> outputs) {
  return make_recurrent_layer(device, problem, inputs, outputs.empty() ? inputs[0].dtype : outputs[0].dtype);
}

} // namespace tbx::extern_kernels
