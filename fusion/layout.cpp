#include "fusion/layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "extern_kernels/catalogue.h"
#include "fusion/dependencies.h"
#include "fusion/operand_infos.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::LayoutWish;

SymInts strides_in_order(const SymInts& sizes, const std::vector<int>& order) {
  SymInts strides(sizes.size(), SymInt(0));
  SymInt step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step = step * sizes[order[i]];
  }
  return strides;
}

std::vector<int> channels_last_order(int rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (rank >= 3) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

namespace {

enum class Order : uint8_t { undecided, row_major, channels_last };

bool can_be_channels_last(const Buffer& b) {
  return b.sizes.size() >= 3 && b.sizes.size() <= 5 && b.kind == BufferKind::computed && b.slice_of < 0 &&
         b.overwrites < 0;
}

/// True when index k of the load moves with variable k only, for every dimension: the load walks the buffer
/// in the same dimension order as the result.
bool same_dimension_order(const SymInts& indices, const SymInts& ranges, Context& c) {
  if (indices.size() != ranges.size()) return false;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (ranges[k].is(1)) continue;
    for (size_t j = 0; j < ranges.size(); ++j) {
      if (ranges[j].is(1)) continue;
      bool uses = depends_on(indices[k], c.var(static_cast<int>(j)).node());
      if (uses != (j == k) && (uses || !indices[k].is_constant())) return false;
    }
  }
  return true;
}

class LayoutPass {
public:
  explicit LayoutPass(Program& program)
      : program_(program), order_(program.buffers.size(), Order::undecided) {}

  void run() {
    for (const ProgramOutput& out : program_.outputs) order_[out.buffer] = Order::row_major;
    for (const Operation& op : program_.operations)
      if (const auto* call = std::get_if<ExternCall>(&op.what); call && !call->output_sizes.empty())
        order_[call->outputs[0]] = Order::row_major;
    seed();
    forward();
    backward();
    forward();
    freeze();
    insert_copies();
  }

private:
  bool settle(BufferId id, Order order) {
    if (order_[id] != Order::undecided || !can_be_channels_last(program_.at(id))) return false;
    order_[id] = order;
    return true;
  }

  bool wants_channels_last(const ExternCall& call) const {
    if (program_.target.cuda || call.inputs.size() < 2) return true;
    const OperandInfos infos = operand_infos(program_, call, program_.at(call.outputs[0]).sizes);
    return !extern_kernels::takes_planes(call.problem, infos.inputs, infos.outputs, program_.target);
  }

  /// Operand `i` is an image, and who convolves it copies what it needs: a copy before would be a second one.
  bool is_copied_there(const ExternCall& call, size_t i) const {
    if (i != 0 || program_.target.cuda || call.inputs.size() < 2) return false;
    const OperandInfos infos = operand_infos(program_, call, program_.at(call.outputs[0]).sizes);
    return extern_kernels::copies_image(call.problem, infos.inputs, infos.outputs, program_.target);
  }

  void seed() {
    for (const Operation& op : program_.operations) {
      const auto* call = std::get_if<ExternCall>(&op.what);
      if (!call) continue;
      for (size_t i = 0; i < call->inputs.size(); ++i) {
        const ExternOperand& in = call->inputs[i];
        if (in.buffer >= 0 && is_whole(in) &&
            input_layout(call->problem, static_cast<int>(i), wants_channels_last(*call)) ==
                LayoutWish::channels_last)
          settle(in.buffer, Order::channels_last);
      }
      if (output_layout(call->problem, wants_channels_last(*call)) == LayoutWish::channels_last)
        for (BufferId out : call->outputs) settle(out, Order::channels_last);
    }
  }

  /// An operand that is its buffer unchanged.
  bool is_whole(const ExternOperand& in) const {
    const Buffer& b = program_.at(in.buffer);
    if (in.sizes.size() != b.sizes.size()) return false;
    size_t r = b.sizes.size();
    for (size_t d = 0; d < r; ++d) {
      if (!provably_equal(in.sizes[d], b.sizes[d]) || !in.start[d].is(0)) return false;
      for (size_t k = 0; k < r; ++k)
        if (!in.coefficients[d * r + k].is(d == k ? 1 : 0)) return false;
    }
    return true;
  }

  /// Results of loop nests take the order of the largest thing they read in the same dimension order.
  void forward() {
    for (const Operation& op : program_.operations) {
      const auto* compute = std::get_if<Compute>(&op.what);
      if (!compute) continue;
      BufferId target =
          owner_of(program_, compute->output); // a slice of a concatenation decides for the whole
      if (order_[target] != Order::undecided) continue;
      visit(compute->loops.body, [&](Expr n) {
        if (n->op == Op::load && order_[owner_of(program_, n->buffer)] == Order::channels_last &&
            same_dimension_order(n->indices, compute->loops.ranges, *program_.context))
          settle(target, Order::channels_last);
      });
    }
  }

  /// What a channels-last pointwise result is made of becomes channels-last too, so that no kernel
  /// transposes.
  void backward() {
    for (size_t i = program_.operations.size(); i-- > 0;) {
      const auto* compute = std::get_if<Compute>(&program_.operations[i].what);
      if (!compute || order_[owner_of(program_, compute->output)] != Order::channels_last) continue;
      visit(compute->loops.body, [&](Expr n) {
        if (n->op == Op::load && same_dimension_order(n->indices, compute->loops.ranges, *program_.context))
          settle(n->buffer, Order::channels_last);
      });
    }
  }

  void freeze() {
    for (Buffer& b : program_.buffers) {
      if (!b.is_flexible() || b.slice_of >= 0 || b.overwrites >= 0) continue;
      if (order_[b.id] == Order::channels_last) {
        b.strides = strides_in_order(b.sizes, channels_last_order(static_cast<int>(b.sizes.size())));
      } else {
        b.strides = contiguous_strides(b.sizes);
      }
    }
    // Bound buffers see their owner's memory.
    for (Buffer& b : program_.buffers)
      if (b.is_flexible()) b.strides = program_.at(owner_of(program_, b.id)).strides;
  }

  SymInts operand_strides(const ExternOperand& in) const {
    const Buffer& b = program_.at(in.buffer);
    size_t r = b.sizes.size();
    SymInts strides;
    for (size_t d = 0; d < in.sizes.size(); ++d) {
      SymInt s = 0;
      for (size_t k = 0; k < r; ++k) s += in.coefficients[d * r + k] * b.strides[k];
      strides.push_back(s);
    }
    return strides;
  }

  bool satisfies(const ExternOperand& in, LayoutWish wish) const {
    if (wish == LayoutWish::any) return true;
    SymInts strides = operand_strides(in);
    auto dense = [&](const std::vector<int>& order) {
      SymInts want = strides_in_order(in.sizes, order);
      for (size_t d = 0; d < want.size(); ++d)
        if (!in.sizes[d].is(1) && !provably_equal(want[d], strides[d])) return false;
      return true;
    };
    int rank = static_cast<int>(in.sizes.size());
    std::vector<int> row(rank);
    std::iota(row.begin(), row.end(), 0);
    switch (wish) {
    case LayoutWish::any: return true;
    case LayoutWish::row_major: return dense(row);
    case LayoutWish::channels_last: return dense(channels_last_order(rank)) || (rank < 3 && dense(row));
    case LayoutWish::matrix: {
      if (rank < 2) return dense(row);
      // One of the two matrix dimensions is contiguous and the other one steps over it without overlap.
      auto fits = [&](int fast, int slow) {
        return (strides[fast].is(1) || in.sizes[fast].is(1)) &&
               (in.sizes[slow].is(1) || provably_nonnegative(strides[slow] - in.sizes[fast]) ||
                provably_divisible(strides[slow], in.sizes[fast]));
      };
      return fits(rank - 1, rank - 2) || fits(rank - 2, rank - 1);
    }
    }
    return false;
  }

  void insert_copies() {
    std::vector<Operation> result;
    result.reserve(program_.operations.size());
    for (Operation& op : program_.operations) {
      if (auto* call = std::get_if<ExternCall>(&op.what)) {
        for (size_t i = 0; i < call->inputs.size(); ++i) {
          ExternOperand& in = call->inputs[i];
          if (in.buffer < 0 || program_.at(in.buffer).kind == BufferKind::constant) continue;
          LayoutWish wish = input_layout(call->problem, static_cast<int>(i), wants_channels_last(*call));
          if (satisfies(in, wish) || is_copied_there(*call, i)) continue;
          if (i == 0) leave_out_pixels(*call);
          if (take_copy(in, wish)) continue;
          const ExternOperand from = in;
          result.push_back(copy_operand(in, wish, op.origins));
          copies_.push_back({from, in, wish});
        }
        if (auto copy = copy_result(*call, op.origins)) {
          result.push_back(std::move(op));
          result.push_back(std::move(*copy));
          continue;
        }
      }
      result.push_back(std::move(op));
    }
    program_.operations = std::move(result);
  }

  /// An image that will be copied for a convolution has no pixels that it steps over: with a kernel of one
  /// element these are all between two steps. Padding would be among the pixels that are left.
  void leave_out_pixels(ExternCall& call) {
    auto* conv = std::get_if<extern_kernels::ConvProblem>(&call.problem);
    if (!conv || conv->transposed) return;
    ExternOperand& image = call.inputs[0];
    const size_t r = program_.at(image.buffer).sizes.size();
    for (size_t s = 0; s < conv->strides.size(); ++s) {
      const size_t d = s + 2;
      if (!call.inputs[1].sizes[d].is(1) || conv->pads_begin[s] != 0 || conv->pads_end[s] != 0) continue;
      image.sizes[d] = program_.at(call.outputs[0]).sizes[d];
      for (size_t k = 0; k < r; ++k)
        image.coefficients[d * r + k] = image.coefficients[d * r + k] * SymInt(conv->strides[s]);
      conv->strides[s] = 1;
    }
  }

  /// An operand that was copied for another call is shown there.
  bool take_copy(ExternOperand& in, LayoutWish wish) const {
    auto same = [](const SymInts& a, const SymInts& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), provably_equal);
    };
    for (const Copy& c : copies_)
      if (c.wish == wish && c.from.buffer == in.buffer && same(c.from.sizes, in.sizes) &&
          same(c.from.coefficients, in.coefficients) && same(c.from.start, in.start)) {
        in = c.to;
        return true;
      }
    return false;
  }

  Operation copy_operand(ExternOperand& in, LayoutWish wish, const std::vector<int>& origins) {
    Context& c = *program_.context;
    size_t r = program_.at(in.buffer).sizes.size();
    SymInts indices;
    for (size_t k = 0; k < r; ++k) {
      SymInt e = in.start[k];
      for (size_t d = 0; d < in.sizes.size(); ++d)
        e += in.coefficients[d * r + k] * (in.sizes[d].is(1) ? SymInt(0) : c.var(static_cast<int>(d)));
      indices.push_back(e);
    }
    DType dtype = program_.at(in.buffer).dtype;
    Loops loops;
    loops.ranges = in.sizes;
    loops.dtype = dtype;
    loops.body = c.load(in.buffer, compute_type(dtype), indices);
    BufferId copy = program_.new_buffer("", dtype, in.sizes);
    int rank = static_cast<int>(in.sizes.size());
    Buffer& b = program_.at(copy);
    b.strides = wish == LayoutWish::channels_last ? strides_in_order(in.sizes, channels_last_order(rank))
                                                  : contiguous_strides(in.sizes);
    in.buffer = copy;
    in.start.assign(rank, SymInt(0));
    in.coefficients.assign(static_cast<size_t>(rank) * rank, SymInt(0));
    for (int d = 0; d < rank; ++d) in.coefficients[d * rank + d] = 1;
    return Operation{Compute{std::move(loops), copy}, origins,
                     "copy: the extern kernel needs another layout"};
  }

  /// A channels-last convolution whose result must be row-major (an output of the model) writes a buffer of
  /// its own: libraries have no fast kernel from one order to the other.
  std::optional<Operation> copy_result(ExternCall& call, const std::vector<int>& origins) {
    if (!wants_channels_last(call) || call.outputs.size() != 1 ||
        output_layout(call.problem, true) != LayoutWish::channels_last)
      return std::nullopt;
    BufferId target = call.outputs[0];
    const SymInts sizes = program_.at(target).sizes;
    const int rank = static_cast<int>(sizes.size());
    if (rank < 3 || program_.at(target).slice_of >= 0 || sizes[1].is(1)) return std::nullopt;
    SymInts wanted = strides_in_order(sizes, channels_last_order(rank));
    if (std::equal(wanted.begin(), wanted.end(), program_.at(target).strides.begin(), provably_equal))
      return std::nullopt;
    const DType dtype = program_.at(target).dtype;
    BufferId made = program_.new_buffer("", dtype, sizes);
    program_.at(made).strides = std::move(wanted);
    call.outputs[0] = made;
    Loops loops;
    loops.ranges = sizes;
    loops.dtype = dtype;
    SymInts at;
    for (int k = 0; k < rank; ++k) at.push_back(sizes[k].is(1) ? SymInt(0) : program_.context->var(k));
    loops.body = program_.context->load(made, compute_type(dtype), at);
    return Operation{Compute{std::move(loops), target}, origins,
                     "copy: the result of a channels-last convolution"};
  }

  struct Copy {
    ExternOperand from, to;
    LayoutWish wish;
  };

  Program& program_;
  std::vector<Order> order_;
  std::vector<Copy> copies_;
};

} // namespace

void assign_layouts(Program& program) { LayoutPass(program).run(); }

} // namespace tbx::fusion
