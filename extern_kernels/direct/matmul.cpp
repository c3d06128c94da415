// Matrix products without a library: f64, integers, and f32 where the library has only a plain loop.
#include <tbb/blocked_range.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/weight_memory.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/direct/tile.h"
#include "extern_kernels/stack.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {
namespace direct {
namespace {

int64_t panels_of(int64_t columns, int panel) { return (columns + panel - 1) / panel; }

/// Rows [k, kPanel] of panel `p` of a matrix; columns beyond the last one are 0.
template <class T> void pack_panel(const TensorRef& b, int64_t at, const Stack& m, int64_t p, T zero, T* to) {
  const int64_t begin = p * kPanel<T>, width = std::min<int64_t>(kPanel<T>, m.columns() - begin);
  const int64_t k = m.rows(), down = m.row_step(), along = m.column_step();
  with_storage(b.dtype, [&]<class S>(S) {
    const S* from = static_cast<const S*>(b.data) + at + begin * along;
    auto value = [&](int64_t l, int64_t j) { return static_cast<T>(from[l * down + j * along]) - zero; };
    if (width < kPanel<T>) std::fill_n(to, k * kPanel<T>, T(0));
    if (along == 1) {
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < width; ++j) to[l * kPanel<T> + j] = value(l, j);
      return;
    }
    // Stored by columns: blocks of rows keep the lines of all columns of the panel in the cache.
    constexpr int64_t kTogether = 16;
    for (int64_t first = 0; first < k; first += kTogether)
      for (int64_t j = 0; j < width; ++j)
        for (int64_t l = first; l < std::min(first + kTogether, k); ++l) to[l * kPanel<T> + j] = value(l, j);
  });
}

/// All panels of all matrices of a stack: [matrix, panel, k, kPanel].
template <class T> void pack_all(const TensorRef& b, T zero, T* to) {
  const Stack m{b};
  const int64_t panels = panels_of(m.columns(), kPanel<T>), size = m.rows() * kPanel<T>;
  in_pieces(m.count() * panels, static_cast<double>(m.count()) * panels * size,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i)
                pack_panel<T>(b, m.at(i / panels), m, i % panels, zero, to + i * size);
            });
}

class DirectMatMul : public ExternKernel {
public:
  DirectMatMul(const MatMulProblem& p, const OperandInfo& b, DType result) : p_(p) {
    if (!b.constant || b.strides.empty() || p_.b_zero >= 0) return;
    with_element(result, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) {
        std::shared_ptr<const Tensor> t = widened(b.constant);
        const TensorRef ref{const_cast<std::byte*>(t->data), t->dtype, b.sizes, b.strides};
        packed_bytes_ = packed_elements<T>(ref) * static_cast<int64_t>(sizeof(T));
        packed_ = allocate_weights(packed_bytes_);
        pack_all<T>(ref, T(0), static_cast<T*>(packed_.get()));
        drop_pages(*b.constant);
      }
    });
  }

  std::string description() const override { return "own " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }
  bool reads(size_t input) const override { return input != 1 || !packed_; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    Memory memory(nullptr);
    with_element(outputs[0].dtype, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) take<T>(memory, inputs, outputs[0]);
    });
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    with_element(args.outputs[0].dtype, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) compute<T>(args);
    });
  }

private:
  /// Rows of a that are done with one panel of b after the other.
  static constexpr int64_t kBlock = int64_t{8} * kRows;

  template <class T> struct Space {
    T *a, *b; ///< copies, where needed
  };

  template <class T> static int64_t packed_elements(const TensorRef& b) {
    const Stack m{b};
    return m.count() * panels_of(m.columns(), kPanel<T>) * m.rows() * kPanel<T>;
  }

  template <class T> bool is_ready_a(const TensorRef& a) const {
    return p_.a_zero < 0 && size_of(a.dtype) == static_cast<int64_t>(sizeof(T)) &&
           (Stack{a}.column_step() == 1 || Stack{a}.columns() == 1);
  }
  /// Few rows do not pay for packing: panels are read where they lie, but for a last one that is not full.
  template <class T> bool is_ready_b(const TensorRef& b, int64_t rows) const {
    return p_.b_zero < 0 && rows <= kRows && size_of(b.dtype) == static_cast<int64_t>(sizeof(T)) &&
           Stack{b}.column_step() == 1;
  }

  template <class T>
  Space<T> take(Memory& memory, std::span<const TensorRef> in, const TensorRef& out) const {
    const TensorRef &a = in[0], &b = in[1];
    Space<T> space{nullptr, nullptr};
    if (!is_ready_a<T>(a)) space.a = memory.take<T>(a.numel());
    if (!packed_)
      space.b =
          memory.take<T>(is_ready_b<T>(b, Stack{out}.rows()) ? Stack{b}.count() * Stack{b}.rows() * kPanel<T>
                                                             : packed_elements<T>(b));
    return space;
  }

  template <class T> static void copy_rows(const TensorRef& a, T zero, T* to) {
    const Stack m{a};
    const int64_t k = m.columns();
    with_storage(a.dtype, [&]<class S>(S) {
      in_pieces(m.count() * m.rows(), static_cast<double>(a.numel()), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const S* from = static_cast<const S*>(a.data) + m.at(i / m.rows()) + i % m.rows() * m.row_step();
          for (int64_t l = 0; l < k; ++l) to[i * k + l] = static_cast<T>(from[l * m.column_step()]) - zero;
        }
      });
    });
  }

  template <class T> void compute(const RunArgs& args) const {
    const TensorRef &a = args.inputs[0], &b = args.inputs[1], &c = args.outputs[0];
    const Stack left{a}, right{b}, result{c};
    Memory memory(args.workspace);
    const Space<T> space = take<T>(memory, args.inputs, c);
    const int64_t m = result.rows(), n = result.columns(), k = left.columns(), batches = result.count();
    const int64_t panels = panels_of(n, kPanel<T>), size = k * kPanel<T>;
    const bool in_place = !packed_ && is_ready_b<T>(b, m);
    if (space.a) copy_rows<T>(a, zero_point<T>(args.inputs, p_.a_zero), space.a);
    if (in_place && n % kPanel<T> != 0)
      for (int64_t i = 0; i < right.count(); ++i)
        pack_panel<T>(b, right.at(i), right, panels - 1, T(0), space.b + i * size);
    else if (!packed_ && !in_place)
      pack_all<T>(b, zero_point<T>(args.inputs, p_.b_zero), space.b);

    const int64_t blocks = (m + kBlock - 1) / kBlock;
    int64_t cuts = 1; // few rows: threads share the columns
    const int64_t wanted = int64_t{2} * tbb::this_task_arena::max_concurrency();
    if (batches * blocks < wanted)
      cuts = std::min(panels, (wanted + batches * blocks - 1) / (batches * blocks));
    auto piece = [&](int64_t i) {
      const int64_t cut = i % cuts, block = i / cuts % blocks, batch = i / cuts / blocks;
      const int64_t ia = broadcast_index(batch, result.batch(), left.batch()),
                    ib = broadcast_index(batch, result.batch(), right.batch());
      const int64_t first = block * kBlock, end = std::min(m, first + kBlock);
      const T* rows[kBlock];
      for (int64_t r = first; r < end; ++r)
        rows[r - first] = space.a ? space.a + (ia * m + r) * k
                                  : static_cast<const T*>(a.data) + left.at(ia) + r * left.row_step();
      for (int64_t p = panels * cut / cuts; p < panels * (cut + 1) / cuts; ++p) {
        const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, n - p * kPanel<T>));
        const bool there = in_place && width == kPanel<T>;
        const T* panel = packed_    ? static_cast<const T*>(packed_.get()) + (ib * panels + p) * size
                         : there    ? static_cast<const T*>(b.data) + right.at(ib) + p * kPanel<T>
                         : in_place ? space.b + ib * size
                                    : space.b + (ib * panels + p) * size;
        for (int64_t r = first; r < end; r += kRows) {
          alignas(64) T sums[kRows * kPanel<T>];
          const int count = static_cast<int>(std::min<int64_t>(kRows, end - r));
          tiles<T>().multiply(rows + (r - first), count, 1, 0, k, panel, there ? right.row_step() : kPanel<T>,
                              width, sums);
          for (int i = 0; i < count; ++i)
            write(args, batch, r + i, p * kPanel<T>, width, sums + i * kPanel<T>);
        }
      }
    };
    in_pieces(batches * blocks * cuts, 2.0 * static_cast<double>(c.numel()) * k,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) piece(i);
              });
  }

  template <class T>
  void write(const RunArgs& args, int64_t batch, int64_t row, int64_t first, int width, T* sums) const {
    const TensorRef& c = args.outputs[0];
    const Stack m{c};
    if (p_.alpha != 1) {
      const T alpha = std::is_floating_point_v<T> ? static_cast<T>(p_.alpha)
                                                  : static_cast<T>(static_cast<int64_t>(p_.alpha));
      for (int j = 0; j < width; ++j) sums[j] *= alpha;
    }
    if (p_.has_bias) {
      const TensorRef& bias = args.inputs[2];
      const Stack d{bias};
      const T* from = static_cast<const T*>(bias.data) + d.at(broadcast_index(batch, m.batch(), d.batch())) +
                      (d.rows() == 1 ? 0 : row) * d.row_step();
      const int64_t step = d.columns() == 1 ? 0 : d.column_step();
      for (int j = 0; j < width; ++j) sums[j] += from[(first + j) * step];
    }
    T* to = static_cast<T*>(c.data) + m.at(batch) + row * m.row_step() + first * m.column_step();
    const int64_t step = m.column_step();
    if (step == 1)
      std::copy_n(sums, width, to);
    else
      for (int j = 0; j < width; ++j) to[j * step] = sums[j];
  }

  MatMulProblem p_;
  std::shared_ptr<void> packed_;
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace direct

std::string supports_direct_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                   std::span<const OperandInfo> outputs, const Target&) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (!p.post_ops.empty()) return "post-operations";
  if (std::string reason = direct::refused_types(inputs, outputs[0].dtype); !reason.empty()) return reason;
  if (p.has_bias && inputs[2].dtype != outputs[0].dtype) return "a bias of another type";
  return {};
}

std::unique_ptr<ExternKernel> make_direct_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs) {
  return std::make_unique<direct::DirectMatMul>(std::get<MatMulProblem>(problem), inputs[1],
                                                outputs[0].dtype);
}

} // namespace tbx::extern_kernels
