// Generated kernels on a device against its own copy: how much of the memory's speed they reach.
// usage: tbx_bench_device_kernels [device] (default cuda); medians of device time, and the ratio to a copy of
// as many bytes
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "codegen/device_binary.h"
#include "device/device.h"
#include "ir/kernel.h"

namespace {

using namespace tbx;
using namespace tbx::ir;

/// A kernel under construction. All buffers are read or written once.
struct Case {
  std::string name;
  KernelProgram kernel;
  int64_t bytes = 0; ///< moved at the least

  explicit Case(std::string name) : name(std::move(name)) { kernel.context = std::make_shared<Context>(); }
  Context& c() { return *kernel.context; }
  int buffer(DType t, int64_t numel, Access access) {
    KernelBuffer b;
    b.id = static_cast<int>(kernel.buffers.size());
    b.dtype = t;
    b.access = access;
    b.numel = numel;
    kernel.buffers.push_back(b);
    bytes += numel * size_of(t);
    return b.id;
  }
  Expr load(int b, SymInt at) { return c().load(b, compute_type(kernel.buffers[b].dtype), {at}); }
  void phase(SymInts inner = {}) { kernel.phases.push_back({std::move(inner), {}}); }
  void store(int b, SymInt at, Expr value) {
    Stmt s;
    s.value = value;
    s.buffer = b;
    s.address = at;
    kernel.phases.back().stmts.push_back(s);
  }
  Expr reduce(ReduceOp op, Expr value) {
    Stmt s;
    s.kind = StmtKind::reduce;
    s.value = value;
    s.reduce = op;
    s.number = kernel.num_accumulators++;
    kernel.phases.back().stmts.push_back(s);
    return c().accumulator(s.number, value->dtype);
  }
};

Case pointwise(DType t, int64_t n) {
  Case k(fmt::format("x * 2 + 1, {}", name_of(t)));
  SymInt i = k.c().var(0);
  k.kernel.outer = {n};
  int x = k.buffer(t, n, Access::read), y = k.buffer(t, n, Access::write);
  k.phase();
  k.store(y, i, add(mul(k.load(x, i), k.c().constant(DType::f32, 2)), k.c().constant(DType::f32, 1)));
  return k;
}

Case gelu(DType t, int64_t n) {
  Case k(fmt::format("gelu(x + y), {}", name_of(t)));
  Context& c = k.c();
  SymInt i = c.var(0);
  k.kernel.outer = {n};
  int x = k.buffer(t, n, Access::read), y = k.buffer(t, n, Access::read), z = k.buffer(t, n, Access::write);
  k.phase();
  Expr v = add(k.load(x, i), k.load(y, i));
  Expr e = unary(Op::erf, mul(v, c.constant(DType::f32, 0.70710678)));
  k.store(z, i, mul(mul(v, c.constant(DType::f32, 0.5)), add(e, c.constant(DType::f32, 1))));
  return k;
}

Case softmax(DType t, int64_t rows, int64_t n) {
  Case k(fmt::format("softmax {} x {}, {}", rows, n, name_of(t)));
  SymInt i = k.c().var(0), r = k.c().rvar(0);
  k.kernel.outer = {rows};
  int x = k.buffer(t, rows * n, Access::read), y = k.buffer(t, rows * n, Access::write);
  Expr v = k.load(x, i * n + r);
  k.phase({n});
  Expr most = k.reduce(ReduceOp::max, v);
  k.phase({n});
  Expr e = unary(Op::exp, sub(v, most)), sum = k.reduce(ReduceOp::sum, e);
  k.phase({n});
  k.store(y, i * n + r, div(e, sum));
  return k;
}

Case layer_norm(DType t, int64_t rows, int64_t n) {
  Case k(fmt::format("LayerNorm {} x {}, {}", rows, n, name_of(t)));
  Context& c = k.c();
  SymInt i = c.var(0), r = c.rvar(0);
  k.kernel.outer = {rows};
  int x = k.buffer(t, rows * n, Access::read), g = k.buffer(DType::f32, n, Access::read);
  int y = k.buffer(t, rows * n, Access::write);
  Expr v = k.load(x, i * n + r), over = c.constant(DType::f32, 1.0 / static_cast<double>(n));
  k.phase({n});
  Expr mean = mul(k.reduce(ReduceOp::sum, v), over), d = sub(v, mean);
  k.phase({n});
  Expr variance = mul(k.reduce(ReduceOp::sum, mul(d, d)), over);
  k.phase({n});
  Expr scale = unary(Op::rsqrt, add(variance, c.constant(DType::f32, 1e-5)));
  k.store(y, i * n + r, mul(mul(d, scale), k.load(g, r)));
  return k;
}

Case transpose(DType t, int64_t rows, int64_t columns) {
  Case k(fmt::format("transpose {} x {}, {}", rows, columns, name_of(t)));
  SymInt i = k.c().var(0), j = k.c().var(1);
  k.kernel.outer = {columns, rows};
  int x = k.buffer(t, rows * columns, Access::read), y = k.buffer(t, rows * columns, Access::write);
  k.phase();
  k.store(y, i * rows + j, k.load(x, j * columns + i));
  return k;
}

Case column_sum(DType t, int64_t rows, int64_t columns) {
  Case k(fmt::format("sum of columns {} x {}, {}", rows, columns, name_of(t)));
  SymInt j = k.c().var(0), r = k.c().rvar(0);
  k.kernel.outer = {columns};
  int x = k.buffer(t, rows * columns, Access::read), y = k.buffer(t, columns, Access::write);
  k.phase({rows});
  Expr sum = k.reduce(ReduceOp::sum, k.load(x, r * columns + j));
  k.phase();
  k.store(y, j, sum);
  return k;
}

/// Median of the device time of `work`, in ms.
double median_ms(device::Device& device, device::Stream& stream, const std::function<void()>& work) {
  auto from = device.make_event(), to = device.make_event();
  std::vector<double> times;
  for (int i = 0; i < 24; ++i) {
    stream.record(*from);
    work();
    stream.record(*to);
    stream.synchronize();
    if (i >= 3) times.push_back(device.elapsed_ms(*from, *to));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void measure(device::Device& device, const Case& k) {
  verify(k.kernel);
  const codegen::EmittedKernel emitted = codegen::emit_cuda(k.kernel);
  auto module = device.load(codegen::device_binary({emitted}, device.properties()));
  auto stream = device.make_stream();
  std::vector<std::unique_ptr<device::Memory>> memory;
  std::vector<void*> pointers, arguments;
  for (const KernelBuffer& b : k.kernel.buffers) {
    memory.push_back(device.allocate(static_cast<size_t>(*b.numel.as_constant() * size_of(b.dtype))));
    // Bytes that make small normal numbers of every type; zeros run faster than data.
    stream->fill(memory.back()->data(), 0x3c, memory.back()->bytes());
    pointers.push_back(memory.back()->data());
  }
  auto one = device.allocate(static_cast<size_t>(k.bytes) / 2),
       other = device.allocate(static_cast<size_t>(k.bytes) / 2);
  stream->fill(one->data(), 0x3c, one->bytes());
  const int64_t tasks = evaluate(emitted.tasks, {}).value();
  const device::LaunchShape shape = codegen::launch_shape(emitted, tasks, device.properties());
  auto scratch = device.allocate(static_cast<size_t>(
      codegen::scratch_of_launch(emitted, shape, evaluate(emitted.scratch_bytes, {}).value())));
  auto error = device.allocate(24);
  for (void*& p : pointers) arguments.push_back(&p);
  int64_t begin = 0, end = tasks;
  void *scratch_at = scratch->data(), *error_at = error->data();
  for (void* a : {static_cast<void*>(&begin), static_cast<void*>(&end), static_cast<void*>(&scratch_at),
                  static_cast<void*>(&error_at)})
    arguments.push_back(a);
  const double kernel =
      median_ms(device, *stream, [&] { stream->launch(module->kernel(emitted.function), shape, arguments); });
  const double copy =
      median_ms(device, *stream, [&] { stream->copy(other->data(), one->data(), one->bytes()); });
  fmt::print("{:<36} {:>8.3f} ms  copy {:>7.3f} ms  ratio {:.2f}  {:.0f} GB/s\n", k.name, kernel, copy,
             kernel / copy, static_cast<double>(k.bytes) / kernel / 1e6);
}

} // namespace

int main(int argc, char** argv) {
  try {
    auto device = device::open(argc > 1 ? argv[1] : "cuda");
    fmt::print("{}, {}\n", device->properties().name, device->properties().architecture);
    constexpr int64_t kMegabytes = int64_t{256} << 20;
    for (DType t : {DType::f32, DType::f16}) {
      const int64_t n = kMegabytes / size_of(t);
      measure(*device, pointwise(t, n));
      measure(*device, gelu(t, n));
      measure(*device, softmax(t, n / 1024, 1024));
      measure(*device, softmax(t, n / 16384, 16384));
      measure(*device, layer_norm(t, n / 1024, 1024));
      measure(*device, layer_norm(t, n / 768 / 8 * 8, 768));
      measure(*device, transpose(t, 8192, n / 8192));
      measure(*device, column_sum(t, n / 4096, 4096));
    }
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
