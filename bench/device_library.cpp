// Kernels of libraries on a GPU in the shapes of whole networks: the convolutions of resnet50, the products
// and the attention of bert_base, each network as one graph with weights of its own for every layer. usage:
// tbx_bench_device_library [device] (default cuda); microseconds of device time, and what was taken
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/float_formats.h"
#include "device/device.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/library_kernel.h"

namespace {

using namespace tbx;
using namespace tbx::extern_kernels;
using Dims = std::vector<int64_t>;

struct Value {
  DType type = DType::undefined;
  Dims sizes, strides;
  void* data = nullptr;
  std::shared_ptr<const Tensor> constant;
  TensorRef ref() const { return {data, type, sizes, strides}; }
};

/// A network: kernels in order, and the memory they work on.
class Network {
public:
  Network(device::Device& device, DType type) : device_(device), type_(type), stream_(device.make_stream()) {}

  /// `order` outermost first.
  Value value(Dims sizes, std::vector<int> order = {}) {
    Value v{type_, sizes, Dims(sizes.size()), nullptr, nullptr};
    if (order.empty()) {
      order.resize(sizes.size());
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      v.strides[order[i]] = step;
      step *= sizes[order[i]];
    }
    static std::mt19937 rng(1);
    std::vector<char> bytes(static_cast<size_t>(step * size_of(type_)));
    const int64_t kinds = std::min<int64_t>(step, 100003); // no power of two divides it
    for (int64_t i = 0; i < kinds; ++i) {
      const float x = static_cast<float>(rng() % 2001) * 1e-3f - 1;
      if (type_ == DType::f32) {
        std::memcpy(bytes.data() + i * 4, &x, 4);
      } else {
        const auto half = static_cast<uint16_t>(encode_float(type_, x * 0.1f));
        std::memcpy(bytes.data() + i * 2, &half, 2);
      }
    }
    for (size_t filled = static_cast<size_t>(kinds * size_of(type_)), more; filled < bytes.size();
         filled += more) {
      more = std::min(filled, bytes.size() - filled);
      std::memcpy(bytes.data() + filled, bytes.data(), more);
    }
    memory_.push_back(device_.allocate(bytes.size()));
    v.data = memory_.back()->data();
    stream_->upload(v.data, bytes.data(), bytes.size());
    stream_->synchronize();
    return v;
  }

  /// Weights that the kernel may know ahead.
  Value constant(Dims sizes, std::vector<int> order = {}) {
    Value v = value(std::move(sizes), std::move(order));
    Tensor t = Tensor::make(type_, v.sizes);
    stream_->download(const_cast<std::byte*>(t.data), v.data, t.bytes());
    stream_->synchronize();
    v.constant = std::make_shared<const Tensor>(std::move(t));
    return v;
  }

  Value add(const Problem& problem, const std::vector<Value>& in, const Value& out) {
    std::vector<OperandInfo> infos, outs{{out.type, out.sizes, out.strides, nullptr}};
    for (const Value& v : in) infos.push_back({v.type, v.sizes, v.strides, v.constant});
    Step s{select_on(device_, problem, infos, outs), in, out};
    std::vector<TensorRef> refs, result{out.ref()};
    for (const Value& v : in) refs.push_back(v.ref());
    workspace_bytes_ = std::max(workspace_bytes_, s.selection.kernel->workspace_bytes(refs, result));
    steps_.push_back(std::move(s));
    return out;
  }

  void measure(const std::string& name) {
    auto workspace = device_.allocate(static_cast<size_t>(workspace_bytes_));
    auto run = [&] {
      for (const Step& s : steps_) {
        std::vector<TensorRef> refs, result{s.out.ref()};
        for (const Value& v : s.in) refs.push_back(v.ref());
        s.selection.kernel->run({refs, result, nullptr, workspace->data(), stream_.get()});
      }
    };
    const auto before = std::chrono::steady_clock::now();
    run();
    stream_->synchronize();
    const double first =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
    stream_->begin_capture();
    run();
    const auto graph = stream_->end_capture();
    std::vector<double> times;
    auto from = device_.make_event(), to = device_.make_event();
    for (int i = 0; i < 25; ++i) {
      constexpr int kRuns = 10; // side by side, so that the host is ahead
      stream_->launch(*graph);
      stream_->record(*from);
      for (int j = 0; j < kRuns; ++j) stream_->launch(*graph);
      stream_->record(*to);
      stream_->synchronize();
      times.push_back(device_.elapsed_ms(*from, *to) * 1e3 / kRuns);
    }
    std::nth_element(times.begin(), times.begin() + 12, times.end());
    fmt::print("{}: {:.1f} us, {} nodes of {} kernels, first run {:.0f} ms\n", name, times[12],
               graph->nodes(), steps_.size(), first);
    std::map<std::string, int> notes;
    for (const Step& s : steps_)
      if (const auto* l = dynamic_cast<const LibraryKernel*>(s.selection.kernel.get())) {
        for (const std::string& n : l->implementations())
          ++notes[l->description().substr(0, l->description().find(' ', 7)) + " " + n];
      } else {
        ++notes[s.selection.chosen];
      }
    for (const auto& [note, count] : notes) fmt::print("  {} x {}\n", count, note);
  }

private:
  struct Step {
    Selection selection;
    std::vector<Value> in;
    Value out;
  };
  device::Device& device_;
  DType type_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::Memory>> memory_;
  std::vector<Step> steps_;
  int64_t workspace_bytes_ = 0;
};

const std::vector<int> kLast{0, 2, 3, 1};

Value conv(Network& net, const Value& x, int64_t channels, int64_t kernel, int64_t stride, bool relu,
           const Value* residual = nullptr) {
  const int64_t pad = kernel / 2, size = (x.sizes[2] + 2 * pad - kernel) / stride + 1;
  ConvProblem p;
  p.has_bias = true;
  p.strides = {stride, stride}, p.dilations = {1, 1}, p.pads_begin = p.pads_end = {pad, pad};
  std::vector<Value> in{x, net.value({channels, x.sizes[1], kernel, kernel}, kLast), net.value({channels})};
  if (residual) {
    p.post_ops.push_back({PostOp::add, 0, 0, 3});
    in.push_back(*residual);
  }
  if (relu) p.post_ops.push_back({PostOp::relu});
  return net.add(p, in, net.value({x.sizes[0], channels, size, size}, kLast));
}

/// Without the two poolings.
void resnet50(device::Device& device, DType type, int64_t batch) {
  Network net(device, type);
  conv(net, net.value({batch, 3, 224, 224}, kLast), 64, 7, 2, true);
  Value x = net.value({batch, 64, 56, 56}, kLast);
  const int64_t widths[] = {64, 128, 256, 512}, blocks[] = {3, 4, 6, 3};
  for (int g = 0; g < 4; ++g)
    for (int64_t b = 0; b < blocks[g]; ++b) {
      const int64_t stride = g > 0 && b == 0 ? 2 : 1;
      Value y = conv(net, conv(net, x, widths[g], 1, 1, true), widths[g], 3, stride, true);
      const Value shortcut = b == 0 ? conv(net, x, widths[g] * 4, 1, stride, false) : x;
      x = conv(net, y, widths[g] * 4, 1, 1, true, &shortcut);
    }
  MatMulProblem p;
  p.has_bias = true;
  net.add(p, {net.value({batch, 2048}), net.value({2048, 1000}), net.value({1, 1000})},
          net.value({batch, 1000}));
  net.measure(fmt::format("resnet50 {} b{}", name_of(type), batch));
}

void bert(device::Device& device, DType type, int64_t batch, bool with_products, bool with_attention) {
  Network net(device, type);
  const int64_t tokens = 128, width = 768, heads = 12, depth = 64, m = batch * tokens;
  auto product = [&](const Value& a, int64_t n, std::vector<PostOp> ops, const Value* residual) {
    MatMulProblem p;
    p.has_bias = true;
    p.post_ops = std::move(ops);
    std::vector<Value> in{a, net.value({a.sizes[1], n}), net.value({1, n})};
    if (residual) in.push_back(*residual);
    return net.add(p, in, net.value({m, n}));
  };
  Value x = net.value({m, width});
  const Value mask = net.value({batch, 1, 1, tokens});
  for (int layer = 0; layer < 12; ++layer) {
    Value joined = with_products ? product(x, 3 * width, {}, nullptr) : net.value({m, 3 * width}), mixed = x;
    if (with_attention) {
      auto part = [&](int i) {
        return Value{type,
                     {batch, heads, tokens, depth},
                     {tokens * 3 * width, depth, 3 * width, 1},
                     static_cast<char*>(joined.data) + i * width * size_of(type),
                     nullptr};
      };
      AttentionProblem p;
      p.scale = 0.125f, p.has_mask = true, p.tokens_first = true;
      mixed = net.value({m, width});
      Value out = mixed;
      out.sizes = {batch, tokens, heads, depth}, out.strides = {tokens * width, width, depth, 1};
      net.add(p, {part(0), part(1), part(2), mask}, out);
    }
    if (!with_products) continue;
    const Value y = product(mixed, width, {{PostOp::add, 0, 0, 3}}, &x);
    x = product(product(y, 4 * width, {{PostOp::gelu_tanh}}, nullptr), width, {{PostOp::add, 0, 0, 3}}, &y);
  }
  net.measure(fmt::format("bert_base {} b{}{}{}", name_of(type), batch, with_products ? " products" : "",
                          with_attention ? " attention" : ""));
}

/// The last layer of gpt2: an odd number of columns.
void logits(device::Device& device, int64_t rows, bool constant) {
  Network net(device, DType::f16);
  const Dims sizes{768, 50257};
  net.add(
      MatMulProblem{},
      {net.value({rows, 768}), constant ? net.constant(sizes, {1, 0}) : net.value(sizes, {1, 0}), Value{}},
      net.value({rows, 50257}));
  net.measure(fmt::format("gpt2 logits of {} rows{}", rows, constant ? ", constant" : ""));
}

} // namespace

int main(int argc, char** argv) {
  try {
    const auto device = device::open(argc > 1 ? argv[1] : "cuda");
    fmt::print("{}\n", device->properties().name);
    for (int64_t batch : {1, 32}) {
      resnet50(*device, DType::f16, batch);
      bert(*device, DType::f16, batch, true, false);
      bert(*device, DType::f16, batch, false, true);
      bert(*device, DType::f16, batch, true, true);
    }
    for (int64_t rows : {1, 64})
      for (bool constant : {false, true}) logits(*device, rows, constant);
    resnet50(*device, DType::f32, 1);
    bert(*device, DType::f32, 1, true, false);
    bert(*device, DType::f32, 1, false, true);
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
