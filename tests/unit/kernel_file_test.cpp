// Kernels for the evaluator as bytes and back, and bytes that are no kernels.
#include "ir/kernel_file.h"

#include <gmock/gmock.h>

#include <random>

#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "ir/evaluate.h"
#include "package/evaluated_module.h"

namespace tbx::test {
namespace {

using testing::HasSubstr;

/// Rows with reductions, an index computed from data, symbols, a scatter.
std::vector<ir::NamedKernel> some_kernels() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), h.symbol("n"), 5});
  ValueId at = h.input("at", DType::i64, {h.symbol("k")});
  auto output = [&](ValueId v, const std::string& name) {
    h.output(v);
    h.graph.at(v).name = name;
    h.graph.at(v).type = {ValueType::tensor, DType::f32};
  };
  output(
      h.node("Softmax", {h.node("Gather", {x, at}, {{"axis", int64_t{1}}}, 17)}, {{"axis", int64_t{-1}}}, 17),
      "y");
  output(h.node("CumSum", {x, h.constant(ints({}, {1}))}, {}, 17), "sums");
  output(h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{2, 0, 1}}}, 17), "turned");
  h.graph.opset_imports[""] = 17;
  const std::string bytes = export_bytes(h.graph);
  CompileOptions options;
  CompileStats stats;
  const Graph graph = driver::prepare_graph(std::as_bytes(std::span(bytes)), options, {}, stats);
  return driver::compile_portable(graph, options, std::nullopt, {}).evaluated;
}

std::vector<ir::NamedKernel> read(const std::string& bytes) {
  return ir::kernels_from_bytes(std::as_bytes(std::span(bytes)));
}

TEST(KernelFile, WhatIsReadIsWhatWasWritten) {
  const std::vector<ir::NamedKernel> kernels = some_kernels();
  ASSERT_GE(kernels.size(), 3u);
  const std::string bytes = ir::to_bytes(kernels);
  const std::vector<ir::NamedKernel> back = read(bytes);
  ASSERT_EQ(back.size(), kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(back[i].first, kernels[i].first);
    EXPECT_EQ(ir::to_string(back[i].second), ir::to_string(kernels[i].second));
  }
  EXPECT_EQ(ir::to_bytes(back), bytes);
  EXPECT_EQ(ir::to_bytes(some_kernels()), bytes) << "equal kernels give equal bytes";
  EXPECT_TRUE(read(ir::to_bytes({})).empty());
}

TEST(KernelFile, SymbolsKeepTheirNumbers) {
  const std::vector<ir::NamedKernel> kernels = some_kernels();
  const std::vector<ir::NamedKernel> back = read(ir::to_bytes(kernels));
  const auto& was = kernels[0].second.context->symbols();
  const auto& is = back[0].second.context->symbols();
  ASSERT_EQ(is.size(), was.size());
  for (size_t i = 0; i < is.size(); ++i) {
    EXPECT_EQ(is[i]->name, was[i]->name);
    EXPECT_EQ(is[i]->lo, was[i]->lo);
    EXPECT_EQ(is[i]->hi, was[i]->hi);
  }
}

/// Kernel and plan lie in the same file, and either may have been changed.
TEST(KernelFile, KernelsTakeNoMoreThanTheirStepsGive) {
  const std::vector<ir::NamedKernel> kernels = some_kernels();
  const std::vector<int64_t> symbols(kernels[0].second.context->symbols().size(), 3);
  const auto module = package::evaluated_module(read(ir::to_bytes(kernels)), package::KernelsFrom::file);
  for (const auto& [name, kernel] : kernels) {
    std::vector<runtime::KernelRoom> rooms;
    for (const ir::KernelBuffer& b : kernel.buffers)
      rooms.push_back(b.access == ir::Access::row_local
                          ? runtime::KernelRoom{}
                          : runtime::KernelRoom{b.dtype, *ir::evaluate(b.numel, symbols) * size_of(b.dtype),
                                                b.access != ir::Access::read});
    const auto evaluated = module->kernel(name).evaluated;
    EXPECT_NO_THROW(evaluated->check(rooms, symbols));
    EXPECT_THROW(evaluated->check(std::span(rooms).first(rooms.size() - 1), symbols), Error);
    for (size_t b = 0; b < rooms.size(); ++b) {
      if (kernel.buffers[b].access == ir::Access::row_local) continue;
      auto refused = [&](runtime::KernelRoom other) {
        std::vector<runtime::KernelRoom> changed = rooms;
        changed[b] = other;
        EXPECT_THROW(evaluated->check(changed, symbols), Error) << name << ", buffer " << b;
      };
      refused({rooms[b].dtype, rooms[b].bytes - 1, rooms[b].writes});
      refused({DType::f64, rooms[b].bytes * 8, rooms[b].writes});
      refused({});
      if (rooms[b].writes) refused({rooms[b].dtype, rooms[b].bytes, false});
    }
  }
}

TEST(KernelFile, AKernelThatLeavesItsBuffersIsTheFilesFault) {
  std::vector<ir::NamedKernel> kernels = some_kernels();
  const std::vector<int64_t> symbols(kernels[0].second.context->symbols().size(), 3);
  for (auto& [name, kernel] : kernels)
    for (ir::KernelBuffer& b : kernel.buffers) b.numel = ir::SymInt(0);
  std::vector<double> memory(1 << 12);
  for (const auto from : {package::KernelsFrom::here, package::KernelsFrom::file}) {
    const auto module = package::evaluated_module(read(ir::to_bytes(kernels)), from);
    for (const auto& [name, kernel] : kernels) {
      std::vector<void*> buffers(kernel.buffers.size(), memory.data());
      try {
        module->kernel(name).evaluated->run(buffers, symbols, 0, 1);
        ADD_FAILURE() << name;
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), from == package::KernelsFrom::here ? ErrorKind::internal : ErrorKind::model)
            << e.what();
      }
    }
  }
}

/// Values in the address of a store are no operands of its expressions.
TEST(KernelFile, AddressesAreOfBuffersThatAreThere) {
  std::vector<ir::NamedKernel> kernels = some_kernels();
  ir::KernelProgram& kernel = kernels[0].second;
  ir::Context& c = *kernel.context;
  const ir::SymInt zero = 0;
  for (const int beyond : {0, 1, 100}) {
    const int buffer = beyond == 0 ? 0 : static_cast<int>(kernel.buffers.size()) + beyond - 1;
    const DType type = compute_type(kernel.buffers[0].dtype);
    for (ir::Phase& phase : kernel.phases)
      for (ir::Stmt& s : phase.stmts)
        if (s.kind == ir::StmtKind::store)
          s.address = c.indirect(c.cast(c.load(buffer, type, {zero}), DType::i64), 1, false);
    if (beyond == 0)
      EXPECT_EQ(read(ir::to_bytes(kernels)).size(), kernels.size());
    else
      EXPECT_THAT(error_of([&] { read(ir::to_bytes(kernels)); }), HasSubstr("is damaged"));
  }
}

/// Each takes kilobytes, so that a number in the file would be gigabytes of a run.
TEST(KernelFile, ValuesAreThoseThatStatementsMake) {
  for (const bool locals : {false, true}) {
    std::vector<ir::NamedKernel> kernels = some_kernels();
    ir::KernelProgram& kernel = kernels[0].second;
    int& count = locals ? kernel.num_locals : kernel.num_accumulators;
    EXPECT_EQ(read(ir::to_bytes(kernels)).size(), kernels.size());
    for (const int more : {1, 1 << 19}) {
      count += more;
      EXPECT_THAT(error_of([&] { read(ir::to_bytes(kernels)); }), HasSubstr("is damaged"));
      count -= more;
    }
  }
}

/// What is read is an error of the file or kernels that can be prepared, never a crash.
TEST(KernelFile, SpoiltBytesAreRefusedOrSound) {
  const std::string bytes = ir::to_bytes(some_kernels());
  for (size_t n = 0; n < bytes.size(); n += 1 + n / 16)
    EXPECT_THAT(error_of([&] { read(bytes.substr(0, n)); }), HasSubstr("is damaged")) << n;
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string spoilt = bytes;
    for (int k = 0, n = 1 + static_cast<int>(random() % 3); k < n; ++k)
      spoilt[random() % spoilt.size()] = static_cast<char>(random() % 4 ? random() % 4 : random() % 256);
    try {
      for (const auto& [name, kernel] : read(spoilt)) ir::to_string(kernel);
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::internal) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

} // namespace
} // namespace tbx::test
