// Our products and convolutions of few rows of 8-bit integers against plain loops: the text runs in the
// emulator always, and on a GPU, where clusters share the terms, if there is one that has them. Sums are
// exact, so results must be equal.
#include <gtest/gtest.h>

#include "byte_kernels_helper.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::test {
namespace {

using extern_kernels::OperandInfo;

class ByteRows : public ByteKernels {
protected:
  static constexpr int kMultiprocessors = 1; ///< small products have blocks of all shapes then
  void check(const Problem& p, const std::vector<Operand>& in, const Operand& out, bool few_rows = true) {
    const auto kernel = make(p, infos_of(in), infos_of({out}), kMultiprocessors);
    expect_right(*device_, *kernel, p, in, out);
    const auto notes = dynamic_cast<const extern_kernels::LibraryKernel&>(*kernel).implementations();
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_EQ(notes[0].find("of few rows") != std::string::npos, few_rows) << notes[0];
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ByteRows, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

/// What is done with the sums of a result of such a type, and its operands: of one element, of columns
/// (`columns` are their sizes) and of all results.
std::vector<PostOp> steps_for(DType result, int form, const Dims& sizes, const Dims& columns,
                              const std::vector<int>& order, std::vector<Operand>& in) {
  std::vector<PostOp> steps;
  if (result == DType::i32) return steps;
  auto operand = [&](PostOp::Kind kind, Operand o) {
    in.push_back(std::move(o));
    steps.push_back({kind, 0, 0, static_cast<int>(in.size()) - 1});
  };
  operand(PostOp::mul, random_operand(DType::f32, form % 2 == 0 ? columns : Dims(sizes.size(), 1)));
  if (form % 3 != 0) operand(PostOp::add, random_operand(form % 4 == 1 ? DType::f16 : DType::f32, columns));
  if (form % 3 != 1) {
    const DType types[] = {DType::u8, DType::f32, DType::i8, DType::bf16, DType::i32};
    const DType t = types[form % 5];
    operand(PostOp::add, size_of(t) == 1 ? bytes_operand(t, sizes, order) : random_operand(t, sizes, order));
  }
  if (form % 2 == 1) steps.push_back({PostOp::relu});
  if (size_of(result) == 1) steps.insert(steps.end(), {{PostOp::linear, 1.0f / 64, 3}, {PostOp::round}});
  return steps;
}

struct Sizes {
  Dims a, b;
};

/// Parts of tiles in each dimension, more terms than are on their way, warps and blocks without terms.
TEST_P(ByteRows, Products) {
  std::vector<Sizes> cases{{{5, 64}, {64, 12}},
                           {{1, 16}, {16, 4}},
                           {{2, 9, 400}, {1, 400, 44}},
                           {{17, 1040}, {1040, 8}},
                           {{33, 128}, {128, 100}}};
  if (!is_fake())
    cases.insert(cases.end(), {{{128, 768}, {768, 2304}},
                               {{128, 3072}, {3072, 768}},
                               {{1, 768}, {768, 3072}},
                               {{64, 768}, {768, 768}},
                               {{129, 1040}, {1040, 520}},
                               {{3, 43, 4096}, {1, 4096, 72}},
                               {{1000, 64}, {64, 64}}});
  int form = 0;
  const DType results[] = {DType::f32, DType::u8, DType::i32, DType::i8, DType::f16, DType::bf16};
  for (const Sizes& c : cases)
    for (int i = 0; i < (is_fake() ? 2 : 4); ++i, ++form) {
      const DType left = form % 2 == 0 ? DType::u8 : DType::i8, right = form % 3 < 2 ? DType::i8 : DType::u8;
      MatMulProblem p;
      std::vector<Operand> in{bytes_operand(left, c.a), bytes_operand(right, c.b), {}};
      in[1].constant = true;
      if (form % 4 != 1)
        p.a_zero = static_cast<int>(in.size()), in.push_back(zero_point(left == DType::u8 ? 131 : -7));
      Dims sizes = c.a, row(c.a.size(), 1);
      sizes.back() = row.back() = c.b.back();
      const DType result = results[form % 6];
      p.post_ops = steps_for(result, form, sizes, row, {}, in);
      SCOPED_TRACE(testing::Message()
                   << c.a[c.a.size() - 2] << " x " << c.a.back() << " x " << c.b.back() << ", form " << form);
      check(p, in, random_operand(result, sizes));
    }
}

/// Windows that reach out of the image, on all sides, steps of one pixel, several images, few channels.
TEST_P(ByteRows, Convolutions) {
  struct Case {
    Dims x, w;
    int64_t stride, dilation, pad;
  };
  std::vector<Case> cases{{{1, 64, 5, 4}, {12, 64, 3, 3}, 1, 1, 1},
                          {{2, 64, 6, 3}, {8, 64, 1, 1}, 1, 1, 0},
                          {{2, 64, 5, 6}, {8, 64, 1, 1}, 2, 1, 0},
                          {{1, 128, 7, 5}, {4, 128, 3, 2}, 2, 2, 2},
                          {{1, 64, 9}, {20, 64, 3}, 1, 1, 1},
                          {{3, 48, 2, 2}, {40, 48, 1, 1}, 1, 1, 0},
                          // Rows that are laid out first.
                          {{1, 3, 9, 7}, {8, 3, 5, 4}, 2, 1, 2},
                          {{1, 24, 4, 5}, {12, 24, 1, 1}, 2, 1, 0},
                          {{2, 32, 5, 4}, {8, 32, 3, 3}, 1, 2, 1}};
  if (!is_fake())
    cases.insert(cases.end(), {{{1, 64, 56, 56}, {64, 64, 3, 3}, 1, 1, 1},
                               {{1, 256, 56, 56}, {512, 256, 1, 1}, 2, 1, 0},
                               {{1, 512, 7, 7}, {512, 512, 3, 3}, 1, 1, 1},
                               {{1, 3, 224, 224}, {64, 3, 7, 7}, 2, 1, 3},
                               {{1, 72, 28, 28}, {40, 72, 1, 1}, 1, 1, 0},
                               {{1, 2048, 7, 7}, {512, 2048, 1, 1}, 1, 1, 0},
                               {{2, 256, 28, 27}, {256, 256, 3, 3}, 2, 1, 1}});
  int form = 0;
  const DType results[] = {DType::u8, DType::f32, DType::i32, DType::i8, DType::f16};
  for (const Case& c : cases)
    for (int i = 0; i < 2; ++i, ++form) {
      const size_t space = c.x.size() - 2;
      ConvProblem p;
      p.spatial_rank = static_cast<int>(space);
      p.strides.assign(space, c.stride), p.dilations.assign(space, c.dilation);
      p.pads_begin.assign(space, c.pad), p.pads_end.assign(space, c.pad);
      const auto order = channels_last(c.x.size());
      std::vector<Operand> in{bytes_operand(form % 3 == 1 ? DType::i8 : DType::u8, c.x, order),
                              bytes_operand(DType::i8, c.w),
                              {}};
      in[1].constant = true;
      Dims sizes{c.x[0], c.w[0]};
      for (size_t d = 0; d < space; ++d)
        sizes.push_back((c.x[2 + d] + 2 * c.pad - (c.w[2 + d] - 1) * c.dilation - 1) / c.stride + 1);
      if (form % 2 == 0) {
        p.has_bias = true;
        in[2] = random_operand(DType::i32, {c.w[0]});
        in[2].constant = true;
      }
      if (form % 4 != 1)
        p.x_zero = static_cast<int>(in.size()), in.push_back(zero_point(form % 3 == 1 ? -5 : 121));
      Dims channel(sizes.size(), 1);
      channel[1] = sizes[1];
      const DType result = results[form % 5];
      p.post_ops = steps_for(result, form, sizes, channel, order, in);
      SCOPED_TRACE(testing::Message() << c.x[1] << " channels, " << c.w.back() << " pixels, form " << form);
      check(p, in, random_operand(result, sizes, order));
    }
}

/// One kernel for several numbers of rows that come with the run.
TEST_P(ByteRows, RowsOfTheRun) {
  MatMulProblem p;
  p.a_zero = 3;
  p.post_ops = {{PostOp::mul, 0, 0, 4}};
  std::unique_ptr<extern_kernels::ExternKernel> kernel;
  for (int64_t rows : {7, 1, 8, 20}) {
    std::vector<Operand> in{bytes_operand(DType::u8, {1, rows, 80}),
                            bytes_operand(DType::i8, {1, 80, 24}),
                            {},
                            zero_point(9),
                            random_operand(DType::f32, {1, 1, 24})};
    in[1].constant = true;
    const Operand out = random_operand(DType::f32, {1, rows, 24});
    if (!kernel) {
      std::vector<OperandInfo> infos = infos_of(in), outs = infos_of({out});
      for (OperandInfo* o : {&infos[0], &outs[0]}) o->sizes[0] = o->sizes[1] = -1, o->strides.clear();
      kernel = make(p, infos, outs, kMultiprocessors);
    }
    SCOPED_TRACE(testing::Message() << rows << " rows");
    expect_right(*device_, *kernel, p, in, out);
  }
  for (const std::string& note :
       dynamic_cast<const extern_kernels::LibraryKernel&>(*kernel).implementations())
    EXPECT_NE(note.find("of few rows"), std::string::npos) << note;
}

/// Tiles compute what rows of the kernel cannot be read of.
TEST_P(ByteRows, LeavesTheRestToTiles) {
  for (const Sizes& c : {Sizes{{5, 64}, {64, 9}}, {{5, 40}, {40, 8}}, {{2, 5, 64}, {2, 64, 8}}}) {
    std::vector<Operand> in{bytes_operand(DType::u8, c.a), bytes_operand(DType::i8, c.b), {}};
    in[1].constant = true;
    Dims sizes = c.a;
    sizes.back() = c.b.back();
    check(MatMulProblem(), in, random_operand(DType::i32, sizes), false);
  }
}

} // namespace
} // namespace tbx::test
