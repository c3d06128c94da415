// What makes an executable sound. An executable may come from a file: nothing is taken for granted here.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/defect.h"
#include "runtime/shape_plan.h"

namespace tbx::runtime {
namespace {

const SizeExpr kStart{{{SizeExpr::Code::push, 0}}};

class Verifier {
public:
  explicit Verifier(const Executable& executable) : e_(executable) {}

  void run() {
    for (const auto& constant : e_.constants) require(constant != nullptr, "a constant is missing");
    for (size_t b = 0; b < e_.buffers.size(); ++b) check_buffer(b);
    check_signature(e_.inputs, StorageKind::input, "input");
    check_signature(e_.outputs, StorageKind::output, "output");
    for (const SymbolBinding& b : e_.bindings) check_binding(b);
    for (const PlanCheck& c : e_.checks) check_size(c.value, "a check");
    for (size_t s = 0; s < e_.steps.size(); ++s) check_step(s);
    check_lives();
    check_found();
  }

private:
  template <class T> static bool in_range(int i, const std::vector<T>& of) {
    return i >= 0 && static_cast<size_t>(i) < of.size();
  }

  /// Sizes are found before they are needed.
  void check_found() const {
    const ShapeFacts facts = shape_facts(e_);
    for (size_t f = 0; f < facts.found.size(); ++f) {
      for (int s : facts.found[f].steps)
        require(s > static_cast<int>(f), "step {} needs sizes that step {} finds", s, f);
      for (int b : facts.found[f].buffers)
        require(e_.buffers[b].storage != StorageKind::input, "step {} finds the size of an input", f);
    }
  }

  void check_size(const SizeExpr& e, const char* what) const {
    int depth = 0;
    for (const SizeExpr::Item& item : e.items) {
      require(item.code <= SizeExpr::Code::max, "{} has an unknown operator", what);
      if (item.code == SizeExpr::Code::push || item.code == SizeExpr::Code::symbol) {
        require(item.code == SizeExpr::Code::push ||
                    (item.value >= 0 && static_cast<size_t>(item.value) < e_.symbol_names.size()),
                "{} names symbol {} of {}", what, item.value, e_.symbol_names.size());
        require(++depth <= kMaxSizeDepth, "{} is nested deeper than {}", what, kMaxSizeDepth);
      } else {
        require(--depth >= 1, "{} has an operator without operands", what);
      }
    }
    require(depth == 1, "{} is no expression", what);
  }

  void check_sizes(const SizeExprs& es, const char* what) const {
    for (const SizeExpr& e : es) check_size(e, what);
  }

  void check_buffer(size_t b) const {
    const BufferPlan& p = e_.buffers[b];
    require(p.dtype != DType::undefined && p.dtype != DType::string && size_of(p.dtype) > 0,
            "buffer {} has no type of numbers", b);
    require(p.device <= DeviceKind::cuda, "buffer {} lies on an unknown device", b);
    require(p.device == DeviceKind::cpu || p.storage == StorageKind::arena ||
                p.storage == StorageKind::constant || p.storage == StorageKind::dynamic,
            "buffer {} is an input or output and lies on a device", b);
    require(p.storage <= StorageKind::dynamic, "buffer {} has an unknown storage", b);
    require(p.sizes.size() == p.strides.size(), "buffer {} has {} sizes and {} strides", b, p.sizes.size(),
            p.strides.size());
    check_sizes(p.sizes, "the size of a buffer");
    check_sizes(p.strides, "the stride of a buffer");
    const int last = static_cast<int>(e_.steps.size()) - 1;
    require(p.first_step >= -1 && p.first_step <= p.last_step && p.last_step <= last,
            "buffer {} lives from step {} to {} of {}", b, p.first_step, p.last_step, last);
    if (p.storage != StorageKind::constant) return;
    require(in_range(p.index, e_.constants), "buffer {} is constant {} of {}", b, p.index,
            e_.constants.size());
    const Tensor& t = *e_.constants[p.index];
    require(t.dtype == p.dtype, "constant {} has another type than buffer {}", p.index, b);
    std::vector<int64_t> sizes;
    for (const SizeExpr& size : p.sizes) {
      require(size.is_constant(), "the size of constant {} is not constant", p.index);
      sizes.push_back(size.items[0].value);
    }
    require(numel(sizes) == numel(t.dims), "constant {} has another size than buffer {}", p.index, b);
    const auto elements = reach(p.sizes, p.strides, kStart);
    require(elements && elements->first >= 0 && elements->second < std::max<int64_t>(1, numel(t.dims)),
            "buffer {} is larger than constant {}", b, p.index);
  }

  static int64_t numel(std::span<const int64_t> dims) {
    int64_t n = 1;
    for (int64_t d : dims) require(d >= 0 && !__builtin_mul_overflow(n, d, &n), "a constant has no size");
    return n;
  }

  void check_signature(const std::vector<SignatureEntry>& entries, StorageKind storage,
                       const char* what) const {
    for (size_t i = 0; i < entries.size(); ++i) {
      const SignatureEntry& s = entries[i];
      require(in_range(s.buffer, e_.buffers), "{} {} is buffer {}", what, i, s.buffer);
      const BufferPlan& p = e_.buffers[s.buffer];
      require(p.storage == storage && p.index == static_cast<int>(i), "buffer {} is not {} {}", s.buffer,
              what, i);
      // Complex numbers are pairs of parts in memory, along a dimension that the signature does not show.
      require(s.sizes.size() + (is_complex(s.dtype) ? 1 : 0) == p.sizes.size() &&
                  s.sizes.size() == s.dims.size(),
              "{} {} has another rank than its buffer", what, i);
      require(is_complex(s.dtype) || s.dtype == p.dtype, "{} {} has another type than its buffer", what, i);
      check_sizes(s.sizes, "the size of an input or output");
      if (s.state_axis >= 0) check_state(s, p, storage);
    }
    for (size_t b = 0; b < e_.buffers.size(); ++b)
      require(e_.buffers[b].storage != storage ||
                  (in_range(e_.buffers[b].index, entries) &&
                   entries[e_.buffers[b].index].buffer == static_cast<int>(b)),
              "buffer {} is no {}", b, what);
  }

  void check_state(const SignatureEntry& s, const BufferPlan& p, StorageKind storage) const {
    require(storage == StorageKind::input && in_range(s.state_axis, s.sizes),
            "state '{}' has no dimension {}", s.name, s.state_axis);
    check_size(s.state_after, "the length of a state");
    const auto axis = static_cast<size_t>(s.state_axis);
    for (size_t d = 0; d < p.sizes.size(); ++d)
      require(d == axis || (p.sizes[d].is_constant() && s.sizes[d] == p.sizes[d]),
              "state '{}' has room of another shape", s.name);
    require(s.state_room >= 0 && s.state_limit >= 0 && (s.state_limit == 0 || s.state_room <= s.state_limit),
            "state '{}' has room for {} of {}", s.name, s.state_room, s.state_limit);
    const SizeExpr& room = p.sizes[axis];
    if (room.is_constant())
      require(room.items[0].value == s.state_room && s.state_room == s.state_limit,
              "state '{}' has room for {}, and cannot grow from {} to {}", s.name, room.items[0].value,
              s.state_room, s.state_limit);
    else
      require(is_room_of(room, p.index), "state '{}' grows by what is not its room", s.name);
  }

  /// The session tells the size by what it has allocated: no run may bind the symbol to anything else.
  bool is_room_of(const SizeExpr& size, int input) const {
    if (size.items.size() != 1 || size.items[0].code != SizeExpr::Code::symbol) return false;
    int bound = 0;
    for (const SymbolBinding& b : e_.bindings) {
      if (b.symbol != size.items[0].value) continue;
      if (b.of != SymbolBinding::Of::room || b.input != input) return false;
      ++bound;
    }
    return bound == 1;
  }

  void check_binding(const SymbolBinding& b) const {
    require(in_range(b.symbol, e_.symbol_names) && in_range(b.input, e_.inputs) && b.dim >= 0,
            "a symbol is bound to what is not there");
    const SignatureEntry& in = e_.inputs[b.input];
    auto is_there = [&] {
      switch (b.of) {
      case SymbolBinding::Of::dim: return static_cast<size_t>(b.dim) < in.sizes.size();
      case SymbolBinding::Of::element: return in.dtype == DType::i64 || in.dtype == DType::i32;
      case SymbolBinding::Of::room: return in.state_axis == b.dim;
      }
      return false;
    };
    require(is_there(), "symbol '{}' is bound to what input {} does not have", e_.symbol_names[b.symbol],
            b.input);
  }

  void check_step(size_t s) const {
    for (int origin : e_.steps[s].origins)
      require(origin < static_cast<int>(e_.origin_names.size()), "step {} is of no node", s);
    const Step& step = e_.steps[s];
    require(step.device <= DeviceKind::cuda, "step {} runs on an unknown device", s);
    if (const auto* copy = std::get_if<CopyStep>(&step.what)) return check_copy(s, *copy);
    if (const auto* kernel = std::get_if<KernelStep>(&step.what))
      check_kernel(s, *kernel);
    else
      check_extern(s, std::get<ExternStep>(step.what));
    for_each_buffer(step, [&](int b, bool) {
      require(e_.buffers[b].device == step.device, "step {} on {} uses buffer {} on {}", s,
              name_of(step.device), b, name_of(e_.buffers[b].device));
    });
  }

  void check_copy(size_t s, const CopyStep& c) const {
    require(in_range(c.from, e_.buffers) && in_range(c.to, e_.buffers), "step {} copies buffer {} to {}", s,
            c.from, c.to);
    const BufferPlan &from = e_.buffers[c.from], &to = e_.buffers[c.to];
    require(from.device != to.device && e_.steps[s].device == DeviceKind::cuda,
            "step {} copies between buffers of one device", s);
    require(from.dtype == to.dtype && from.sizes == to.sizes && from.strides == to.strides,
            "step {} copies buffer {} to another form", s, c.from);
    check_written(s, c.to);
  }

  void check_launch(size_t s, const KernelLaunch& l) const {
    require(l.threads >= 1 && l.threads <= 1024 && l.teams >= 1 && l.teams <= l.threads &&
                l.shared_bytes >= 0,
            "step {} starts blocks of {} threads in {} teams", s, l.threads, l.teams);
    check_size(l.blocks, "the blocks of a kernel");
  }

  void check_kernel(size_t s, const KernelStep& k) const {
    require(!k.name.empty(), "step {} has no kernel", s);
    require(k.writes.size() == k.buffers.size() && k.offset_bytes.size() == k.buffers.size(),
            "step {} does not say how it uses its buffers", s);
    for (size_t b = 0; b < k.buffers.size(); ++b) {
      require(k.buffers[b] == -1 || in_range(k.buffers[b], e_.buffers), "step {} uses buffer {}", s,
              k.buffers[b]);
      require(k.offset_bytes[b] >= 0, "step {} begins before its buffer", s);
      if (k.buffers[b] >= 0)
        require(k.offset_bytes[b] % std::max<int64_t>(1, size_of(e_.buffers[k.buffers[b]].dtype)) == 0,
                "step {} begins inside of an element", s);
      if (k.buffers[b] >= 0 && k.writes[b]) check_written(s, k.buffers[b]);
    }
    check_sizes(k.size_args, "a size of a kernel");
    if (e_.steps[s].device != DeviceKind::cpu) check_launch(s, k.launch);
    check_size(k.tasks, "the tasks of a kernel");
    check_size(k.scratch_bytes, "the scratch of a kernel");
    check_size(k.state_bytes, "the state of a kernel");
  }

  void check_written(size_t s, int b) const {
    const StorageKind storage = e_.buffers[b].storage;
    const bool state = storage == StorageKind::input && e_.inputs[e_.buffers[b].index].state_axis >= 0;
    require(state || (storage != StorageKind::input && storage != StorageKind::constant),
            "step {} writes buffer {}, which is not its own", s, b);
  }

  void check_extern(size_t s, const ExternStep& call) const {
    for (const auto* views : {&call.inputs, &call.outputs})
      for (const OperandView& v : *views) check_view(s, v);
    for (const OperandView& v : call.outputs)
      if (v.buffer >= 0) check_written(s, v.buffer);
    require(call.dynamic_outputs.empty() || e_.steps[s].device == DeviceKind::cpu,
            "step {} makes outputs of unknown sizes on a device", s);
    require(call.dynamic_dims.size() == call.dynamic_outputs.size(), "step {} makes outputs of unknown rank",
            s);
    for (size_t i = 0; i < call.dynamic_outputs.size(); ++i) {
      const int b = call.dynamic_outputs[i];
      require(in_range(b, e_.buffers) && call.dynamic_dims[i].size() == e_.buffers[b].sizes.size(),
              "step {} makes buffer {} with another rank", s, b);
      check_written(s, b);
      for (int symbol : call.dynamic_dims[i])
        require(symbol == -1 || in_range(symbol, e_.symbol_names), "step {} binds symbol {}", s, symbol);
    }
    for (int symbol : call.bound_symbols)
      require(in_range(symbol, e_.symbol_names), "step {} binds symbol {}", s, symbol);
    check_problem(s, call);
  }

  void check_problem(size_t s, const ExternStep& call) const {
    using namespace extern_kernels;
    auto operand = [&](int i) {
      require(i >= -1 && i < static_cast<int>(call.inputs.size()), "step {} has no operand {}", s, i);
    };
    auto post_ops = [&](const std::vector<PostOp>& ops) {
      for (const PostOp& op : ops) operand(op.operand);
    };
    if (const auto* conv = std::get_if<ConvProblem>(&call.problem)) {
      const auto rank = static_cast<size_t>(conv->spatial_rank);
      require(conv->spatial_rank >= 1 && conv->group >= 1 && conv->strides.size() == rank &&
                  conv->dilations.size() == rank && conv->pads_begin.size() == rank &&
                  conv->pads_end.size() == rank && call.inputs.size() >= (conv->has_bias ? 3u : 2u),
              "step {} is no convolution", s);
      operand(conv->x_zero);
      post_ops(conv->post_ops);
    } else if (const auto* product = std::get_if<MatMulProblem>(&call.problem)) {
      require(call.inputs.size() >= (product->has_bias ? 3u : 2u), "step {} is no product", s);
      operand(product->a_zero);
      operand(product->b_zero);
      post_ops(product->post_ops);
    } else if (const auto* attention = std::get_if<AttentionProblem>(&call.problem)) {
      const bool writes = attention->carries || attention->appends;
      const extern_kernels::HeadRotation& turn = attention->rotation;
      const size_t inputs = turn.width != 0 ? AttentionProblem::kSines + 1
                            : writes        ? AttentionProblem::kCacheValues + 1
                                            : 3;
      require(call.inputs.size() >= inputs && !(attention->carries && attention->appends),
              "step {} is no attention", s);
      require(turn.width >= 0 && (turn.width == 0 || attention->appends), "step {} rotates {} elements", s,
              turn.width);
      for (DType t : {turn.rounded, turn.queries, turn.keys})
        require(t == DType::undefined || is_half(t), "step {} rounds to {}", s, name_of(t));
    }
  }

  /// Sizes that are constant are looked at here, the others when a run has them.
  void check_view(size_t s, const OperandView& v) const {
    if (v.buffer == -1) return;
    require(in_range(v.buffer, e_.buffers), "step {} uses buffer {}", s, v.buffer);
    require(v.sizes.size() == v.strides.size(), "step {} has {} sizes and {} strides of a view", s,
            v.sizes.size(), v.strides.size());
    check_sizes(v.sizes, "the size of a view");
    check_sizes(v.strides, "the stride of a view");
    check_size(v.offset, "the offset of a view");
    const BufferPlan& p = e_.buffers[v.buffer];
    auto view = reach(v.sizes, v.strides, v.offset), whole = reach(p.sizes, p.strides, kStart);
    if (!view || !whole || view->first > view->second) return;
    require(view->first >= 0 && view->second <= whole->second, "step {} reads buffer {} from {} to {} of {}",
            s, v.buffer, view->first, view->second, whole->second);
  }

  /// First and last element of a view; none where they are not constant. Empty views end before they begin.
  static std::optional<std::pair<int64_t, int64_t>> reach(const SizeExprs& sizes, const SizeExprs& strides,
                                                          const SizeExpr& offset) {
    if (!offset.is_constant()) return std::nullopt;
    int64_t first = offset.items[0].value, last = first;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!sizes[d].is_constant() || !strides[d].is_constant()) return std::nullopt;
      const int64_t size = sizes[d].items[0].value;
      require(size >= 0, "a size is {}", size);
      if (size == 0) return std::pair<int64_t, int64_t>{0, -1};
      int64_t far = 0;
      const bool fits = !__builtin_mul_overflow(size - 1, strides[d].items[0].value, &far) &&
                        !__builtin_add_overflow(far < 0 ? first : last, far, far < 0 ? &first : &last);
      require(fits, "a view is larger than memory");
    }
    return std::pair{first, last};
  }

  /// Lives are those that the steps give, and nothing is read before it was written.
  void check_lives() const {
    std::vector<int> first(e_.buffers.size(), -1), last(e_.buffers.size(), -1);
    std::vector<bool> written(e_.buffers.size(), false);
    for (size_t b = 0; b < e_.buffers.size(); ++b)
      written[b] =
          e_.buffers[b].storage == StorageKind::input || e_.buffers[b].storage == StorageKind::constant;
    for (size_t s = 0; s < e_.steps.size(); ++s)
      for_each_buffer(e_.steps[s], [&](int b, bool writes) {
        if (first[b] < 0) first[b] = static_cast<int>(s);
        last[b] = static_cast<int>(s);
        require(writes || written[b], "step {} reads buffer {} before it is written", s, b);
        written[b] = written[b] || writes;
      });
    for (size_t b = 0; b < e_.buffers.size(); ++b)
      require(e_.buffers[b].first_step == first[b] && e_.buffers[b].last_step == last[b],
              "buffer {} is used from step {} to {}, its life is {} to {}", b, first[b], last[b],
              e_.buffers[b].first_step, e_.buffers[b].last_step);
    for (const SignatureEntry& out : e_.outputs)
      require(written[out.buffer], "output '{}' is never written", out.name);
  }

  const Executable& e_;
};

} // namespace

void require_sound(const Executable& executable) { Verifier(executable).run(); }

} // namespace tbx::runtime
