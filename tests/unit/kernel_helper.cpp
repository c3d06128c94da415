#include "kernel_helper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float_formats.h"

namespace tbx::test {

using namespace ir;

KernelCase::KernelCase(std::string name) : name(std::move(name)) {
  kernel.context = std::make_shared<Context>();
}

int KernelCase::buffer(DType t, int64_t numel, Access access) { return buffer(t, SymInt(numel), access); }

int KernelCase::buffer(DType t, SymInt numel, Access access) {
  KernelBuffer b;
  b.id = access == Access::row_local ? -1 : static_cast<int>(kernel.buffers.size());
  b.dtype = t;
  b.access = access;
  b.numel = numel;
  kernel.buffers.push_back(b);
  return static_cast<int>(kernel.buffers.size()) - 1;
}

Expr KernelCase::load(int b, SymInt address, Expr mask) {
  return c().load(b, compute_type(kernel.buffers[b].dtype), {address}, mask);
}

Phase& KernelCase::phase(SymInts inner) {
  kernel.phases.push_back({std::move(inner), {}});
  return kernel.phases.back();
}

void KernelCase::store(int b, SymInt address, Expr value, Expr mask, StoreMode mode) {
  Stmt s;
  s.value = value;
  s.mask = mask;
  s.buffer = b;
  s.address = address;
  s.mode = mode;
  kernel.phases.back().stmts.push_back(s);
}

Expr KernelCase::reduce(ReduceOp op, Expr value) {
  Stmt s;
  s.kind = StmtKind::reduce;
  s.value = value;
  s.reduce = op;
  s.number = kernel.num_accumulators++;
  kernel.phases.back().stmts.push_back(s);
  bool arg = op == ReduceOp::argmax || op == ReduceOp::argmin || op == ReduceOp::argmax_last ||
             op == ReduceOp::argmin_last;
  return c().accumulator(s.number, arg ? DType::i64 : value->dtype);
}

Expr KernelCase::let(Expr value) {
  Stmt s;
  s.kind = StmtKind::let;
  s.value = value;
  s.number = kernel.num_locals++;
  kernel.phases.back().stmts.push_back(s);
  return c().local(s.number, value->dtype);
}

void KernelCase::scan(ReduceOp op, int b, SymInt address, Expr value, bool exclusive) {
  Stmt s;
  s.kind = StmtKind::scan;
  s.value = value;
  s.reduce = op;
  s.exclusive = exclusive;
  s.buffer = b;
  s.address = address;
  s.number = kernel.num_accumulators++;
  kernel.phases.back().stmts.push_back(s);
}

SymInt KernelCase::symbol(const std::string& symbol_name, int64_t value) {
  SymInt s = c().symbol(symbol_name);
  auto number = static_cast<size_t>(s.node()->number);
  if (symbols.size() <= number) symbols.resize(number + 1);
  symbols[number] = value;
  return s;
}

namespace {

constexpr unsigned char kGuardByte = 0xA5;

/// Bytes with guard zones on both sides.
class Guarded {
public:
  explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuard, kGuardByte) {}
  void* data() { return memory_.data() + kGuard; }
  const void* data() const { return memory_.data() + kGuard; }
  size_t size() const { return bytes_; }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (memory_[i] != kGuardByte || memory_[kGuard + bytes_ + i] != kGuardByte) return false;
    return true;
  }

private:
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

template <class T> void put(void* data, int64_t i, T v) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

template <class T> T get(const void* data, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

void put_element(DType t, void* data, int64_t i, double v) {
  if (t == DType::f32) return put(data, i, static_cast<float>(v));
  if (t == DType::f64) return put(data, i, v);
  if (is_low_precision_float(t)) {
    uint32_t bits = encode_float(t, static_cast<float>(v));
    return size_of(t) == 2 ? put(data, i, static_cast<uint16_t>(bits))
                           : put(data, i, static_cast<uint8_t>(bits));
  }
  auto n = static_cast<int64_t>(v);
  switch (size_of(t)) {
  case 1: return put(data, i, t == DType::boolean ? static_cast<uint8_t>(n != 0) : static_cast<uint8_t>(n));
  case 2: return put(data, i, static_cast<uint16_t>(n));
  case 4: return put(data, i, static_cast<uint32_t>(n));
  default: return put(data, i, n);
  }
}

double random_value(DType t, std::mt19937& rng) {
  switch (t) {
  case DType::boolean: return rng() & 1;
  case DType::i4: return static_cast<int>(rng() % 16) - 8;
  case DType::u4: return rng() % 16;
  case DType::i8: return static_cast<int>(rng() % 256) - 128;
  case DType::u8: return rng() % 256;
  default: break;
  }
  if (is_integer(t))
    return rng() % 8 == 0 ? static_cast<double>(rng() % 60000)
                          : static_cast<double>(rng() % 20) - (is_signed(t) ? 10 : 0);
  switch (rng() % 64) {
  case 0: return 0.0;
  case 1: return -0.0;
  case 2: return bits_of(t) < 8 || t == DType::f8e8m0 ? 1 : INFINITY;
  case 3: return bits_of(t) < 8 ? 1 : NAN;
  default: return std::uniform_real_distribution<double>(-4, 4)(rng);
  }
}

/// Empty when the elements agree.
std::string difference(const KernelCase& k, DType t, const void* want, const void* got, int64_t i) {
  double a = 0, b = 0;
  if (t == DType::f64)
    a = get<double>(want, i), b = get<double>(got, i);
  else if (t == DType::f32)
    a = get<float>(want, i), b = get<float>(got, i);
  else if (is_low_precision_float(t)) {
    auto bits = [&](const void* p) -> uint32_t {
      return size_of(t) == 2 ? get<uint16_t>(p, i) : get<uint8_t>(p, i);
    };
    a = decode_float(t, bits(want)), b = decode_float(t, bits(got));
  } else {
    auto size = static_cast<size_t>(size_of(t));
    const char *x = static_cast<const char*>(want) + i * size_of(t),
               *y = static_cast<const char*>(got) + i * size_of(t);
    if (std::memcmp(x, y, size) == 0) return "";
    int64_t m = 0, n = 0;
    std::memcpy(&m, x, size), std::memcpy(&n, y, size);
    return fmt::format("want {:#x}, got {:#x}", m, n);
  }
  if (std::isnan(a) && std::isnan(b)) return "";
  if (a == b || std::fabs(a - b) <= k.absolute + k.relative * std::fabs(a)) return "";
  return fmt::format("want {:.9g}, got {:.9g}", a, b);
}

int64_t value_of(const KernelCase& k, SymInt e) { return evaluate(e, k.symbols).value(); }

struct Memory {
  std::vector<Guarded> buffers;
  std::vector<void*> pointers;
};

Memory make_memory(const KernelCase& k, uint32_t seed) {
  std::mt19937 rng(seed);
  Memory m;
  for (size_t b = 0; b < k.kernel.buffers.size(); ++b) {
    const KernelBuffer& kb = k.kernel.buffers[b];
    int64_t n = kb.access == Access::row_local ? 0 : value_of(k, kb.numel);
    m.buffers.emplace_back(static_cast<size_t>(n * size_of(kb.dtype)));
    for (int64_t i = 0; i < n; ++i)
      put_element(kb.dtype, m.buffers[b].data(), i,
                  k.fill ? k.fill(static_cast<int>(b), i) : random_value(kb.dtype, rng));
  }
  for (Guarded& g : m.buffers) m.pointers.push_back(g.data());
  return m;
}

int64_t run_on_cpu(runtime::KernelFunction f, const KernelRun& run) {
  Guarded scratch(static_cast<size_t>(run.scratch_bytes) + 64);
  auto aligned = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
  int64_t result = 0;
  // Any split into ranges must do.
  for (int64_t begin = 0; begin < run.tasks && result == 0;) {
    int64_t end = run.rng() % 3 == 0 ? run.tasks : std::min<int64_t>(run.tasks, begin + 1 + run.rng() % 3);
    result = f(run.buffers.data(), run.sizes.data(), begin, end, reinterpret_cast<void*>(aligned));
    begin = end;
  }
  EXPECT_TRUE(scratch.intact()) << "wrote beyond its scratch";
  return result;
}

} // namespace

void compare_with_evaluator(const KernelCase& k, const codegen::EmittedKernel& e,
                            const std::function<int64_t(const KernelRun&)>& run, uint32_t seed) {
  SCOPED_TRACE(k.name + "\n" + e.text);
  Memory want = make_memory(k, seed), got = make_memory(k, seed);
  int64_t points = value_of(k, product(k.kernel.outer));
  bool threw = false;
  try {
    evaluate_kernel(k.kernel, want.pointers, k.symbols, 0, points);
  } catch (const Error& error) {
    threw = error.kind() == ErrorKind::model;
    if (!threw) throw;
  }
  EXPECT_EQ(threw, k.fails);

  std::mt19937 rng(seed);
  std::vector<size_t> bytes;
  for (const Guarded& g : got.buffers) bytes.push_back(g.size());
  KernelRun r{
      got.pointers, bytes, {}, value_of(k, e.tasks), value_of(k, e.scratch_bytes), value_of(k, e.state_bytes),
      rng};
  for (SymInt s : e.size_args) r.sizes.push_back(value_of(k, s));
  EXPECT_EQ(run(r) != 0, k.fails);
  if (k.fails) return;
  for (size_t b = 0; b < k.kernel.buffers.size(); ++b) {
    DType t = k.kernel.buffers[b].dtype;
    EXPECT_TRUE(got.buffers[b].intact()) << "wrote beyond buffer " << b;
    auto n = static_cast<int64_t>(got.buffers[b].size()) / size_of(t);
    for (int64_t i = 0; i < n; ++i) {
      std::string d = difference(k, t, want.buffers[b].data(), got.buffers[b].data(), i);
      if (d.empty()) continue;
      ADD_FAILURE() << "buffer " << b << " element " << i << " of " << n << ": " << d << "\n"
                    << to_string(k.kernel);
      return;
    }
  }
}

std::vector<Isa> runnable_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512})
    if (isa <= host_isa()) isas.push_back(isa);
  return isas;
}

void run_cases(const std::vector<std::shared_ptr<KernelCase>>& cases, Isa isa, uint32_t seed) {
  SCOPED_TRACE(name_of(isa));
  Target target;
  target.isa = isa;
  std::vector<codegen::EmittedKernel> emitted;
  for (const auto& k : cases) {
    verify(k->kernel);
    emitted.push_back(codegen::emit_cpp(k->kernel, target));
    EXPECT_EQ(emitted.back().text, codegen::emit_cpp(k->kernel, target).text) << k->name;
  }
  std::shared_ptr<codegen::Module> module;
  try {
    module = codegen::build_module(emitted, isa);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  for (size_t i = 0; i < cases.size(); ++i)
    compare_with_evaluator(
        *cases[i], emitted[i],
        [&](const KernelRun& run) { return run_on_cpu(module->find(emitted[i].function), run); }, seed);
}

void run_cases(const std::vector<std::shared_ptr<KernelCase>>& cases) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  for (Isa isa : runnable_isas()) run_cases(cases, isa);
}

} // namespace tbx::test
