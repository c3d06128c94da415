// Which variable of a kernel becomes the lanes of its vectors.
#include "codegen/plan_loops.h"

#include <gtest/gtest.h>

#include "schedule_helper.h"

namespace tbx::test {
namespace {

/// Of the last kernel of a segmentation: scores of `classes` on `size` x `size` pixels, enlarged and reduced.
codegen::LoopShape shape_of(const std::string& reduction, int64_t classes, int64_t size, int64_t enlarged) {
  GraphHelper h;
  const ValueId x = h.input("x", DType::f32, {1, classes, size, size});
  const ValueId sizes = h.constant(ints({4}, {1, classes, enlarged, enlarged}));
  const ValueId large = h.node("Resize", {x, -1, -1, sizes}, {{"mode", std::string("linear")}});
  if (reduction == "ArgMax")
    h.output(h.node("ArgMax", {large}, {{"axis", int64_t{1}}}));
  else
    h.output(h.node(reduction, {large, h.constant(ints({1}, {1}))}));
  const fusion::Schedule s = schedule_of(h);
  Target target;
  target.isa = Isa::avx512;
  return codegen::plan_loops(std::get<ir::KernelProgram>(s.groups.back().what), target).shape;
}

// Lanes along the classes would read one element of each image for a vector; the images of 64 x 64 pixels are
// a multiple of a page apart, so that all of these meet in one set of the first-level cache.
TEST(PlanLoops, ClassesOfAnEnlargedImageAreComparedAcrossPixels) {
  EXPECT_EQ(shape_of("ArgMax", 21, 65, 513), codegen::LoopShape::vertical);
  EXPECT_EQ(shape_of("ArgMax", 21, 64, 512), codegen::LoopShape::vertical);
  EXPECT_EQ(shape_of("ReduceMax", 21, 64, 512), codegen::LoopShape::vertical);
  EXPECT_EQ(shape_of("ReduceSum", 64, 64, 512), codegen::LoopShape::vertical);
}

// The best of a row that lies as its elements follow each other is found along it.
TEST(PlanLoops, TheBestOfALongRowIsFoundAlongIt) {
  GraphHelper h;
  h.output(h.node("ArgMax", {h.input("x", DType::f32, {64, 1000})}, {{"axis", int64_t{-1}}}));
  const fusion::Schedule s = schedule_of(h);
  EXPECT_EQ(codegen::plan_loops(std::get<ir::KernelProgram>(s.groups.back().what), Target{}).shape,
            codegen::LoopShape::horizontal);
}

} // namespace
} // namespace tbx::test
