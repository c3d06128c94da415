// Kernels that write their result over a tensor that nobody reads later: which do, and which must not.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule_helper.h"

namespace tbx::test {
namespace {

using fusion::Group;
using fusion::Schedule;

/// Nothing reads an element of shared memory once the result lies there.
void expect_store_behind_loads(const ir::KernelProgram& kernel) {
  for (const ir::Phase& phase : kernel.phases) {
    bool stored = false;
    for (const ir::Stmt& s : phase.stmts) {
      ir::visit(ir::values_of(s), [&](ir::Expr e) {
        EXPECT_FALSE(stored && e->op == ir::Op::load && kernel.buffers[e->buffer].may_alias)
            << to_string(kernel);
      });
      stored |= s.buffer >= 0 && kernel.buffers[s.buffer].may_alias;
    }
  }
}

/// Kernels whose result takes the memory of what they read.
int in_place(const Schedule& s) {
  int n = 0;
  for (const Group& g : s.groups)
    if (const auto* kernel = std::get_if<ir::KernelProgram>(&g.what)) {
      n += std::any_of(kernel->buffers.begin(), kernel->buffers.end(), [&](const ir::KernelBuffer& b) {
        return b.id >= 0 && s.program.at(b.id).overwrites >= 0 && b.access == ir::Access::write;
      });
      const auto aliases = std::count_if(kernel->buffers.begin(), kernel->buffers.end(),
                                         [](const ir::KernelBuffer& b) { return b.may_alias; });
      EXPECT_TRUE(aliases == 0 || aliases == 2);
      expect_store_behind_loads(*kernel);
    }
  return n;
}

/// conv(silu(conv(x))), whose activation is a kernel of its own.
struct Activated {
  GraphHelper h;
  ValueId conv, active, y;

  explicit Activated(int64_t side, int64_t channels = 16) {
    const Tensor w = weights({channels, channels, 1, 1});
    conv = h.node("Conv", {h.input("x", DType::f32, {1, channels, side, side}), h.constant(w)});
    active = h.node("Mul", {conv, h.node("Sigmoid", {conv})});
    y = h.node("Conv", {active, h.constant(w)});
    h.output(y);
  }
};

TEST(WriteInPlace, AKernelWritesOverWhatNobodyReadsLater) {
  EXPECT_EQ(in_place(schedule_of(Activated(32).h)), 1);
  EXPECT_EQ(in_place(schedule_of(Activated(8).h)), 0) << "inside of the convolution";
  fusion::ScheduleOptions off;
  off.disabled = {"write_in_place"};
  EXPECT_EQ(in_place(schedule_of(Activated(32).h, off)), 0);
  Target gpu;
  gpu.cuda = true;
  EXPECT_EQ(in_place(schedule_of(Activated(32).h, {}, gpu)), 0);

  Activated read_later(32);
  read_later.h.output(
      read_later.h.node("Conv", {read_later.conv, read_later.h.constant(weights({16, 16, 1, 1}))}));
  EXPECT_EQ(in_place(schedule_of(read_later.h)), 0) << "another convolution reads it";

  Activated given_out(32);
  given_out.h.output(given_out.conv);
  EXPECT_LE(in_place(schedule_of(given_out.h)), 1);
  for (const Schedule s = schedule_of(given_out.h); const ir::ProgramOutput& out : s.program.outputs)
    for (const ir::Buffer& b : s.program.buffers) EXPECT_NE(b.overwrites, out.buffer) << to_string(s);
}

TEST(WriteInPlace, AllThatReadsAnElementDoesBeforeItIsWrittenOver) {
  GraphHelper h;
  const Tensor w = weights({16, 16, 1, 1});
  const ValueId x = h.node("Conv", {h.input("x", DType::f32, {1, 16, 32, 32}), h.constant(w)});
  for (const char* op : {"Sigmoid", "Tanh", "Softplus"})
    h.output(h.node("Conv", {h.node(op, {x}), h.constant(w)}));
  const Schedule s = schedule_of(h);
  EXPECT_EQ(in_place(s), 1) << to_string(s); // one kernel stores all three
}

TEST(WriteInPlace, AKernelThatReadsMoreThanItsOwnElementHasAPlaceOfItsOwn) {
  auto count = [](auto&& then) {
    GraphHelper h;
    const Tensor w = weights({16, 16, 1, 1});
    const ValueId x = h.node("Conv", {h.input("x", DType::f32, {1, 16, 32, 32}), h.constant(w)});
    h.output(h.node("Conv", {then(h, x), h.constant(w)}));
    return in_place(schedule_of(h));
  };
  EXPECT_EQ(count([](GraphHelper& h, ValueId x) {
              return h.node("Softmax", {x}, {{"axis", int64_t{1}}});
            }),
            0);
  EXPECT_EQ(count([](GraphHelper& h, ValueId x) {
              return h.node("CumSum", {x, h.constant(ints({}, {2}))});
            }),
            0);
  EXPECT_EQ(
      count([](GraphHelper& h, ValueId x) {
        return h.node("Mul", {x, h.node("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})});
      }),
      0);
}

/// A short row ends with a vector that overlaps the one before, which must still be as it was.
TEST(WriteInPlace, OnlyWholeVectors) {
  auto count = [](int64_t channels, Isa isa) {
    GraphHelper h;
    const Tensor w = weights({channels, channels, 1, 1});
    ValueId x = h.node("Conv", {h.input("x", DType::f32, {1, channels, 20, 20}), h.constant(w)});
    const ValueId scale = h.input("scale", DType::f32, {1, channels, 1, 1});
    x = h.node("Mul", {x, h.node("Tanh", {h.node("Add", {x, scale})})});
    h.output(h.node("Conv", {x, h.constant(w)}));
    Target target;
    target.isa = isa;
    return in_place(schedule_of(h, {}, target));
  };
  EXPECT_EQ(count(48, Isa::avx512), 1);
  EXPECT_EQ(count(40, Isa::avx512), 0);
  EXPECT_EQ(count(40, Isa::avx2), 1);
}

} // namespace
} // namespace tbx::test
