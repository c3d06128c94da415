#include "extern_kernels/fit.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tbx::extern_kernels {

void Fit::fail(const std::string& what) const {
  throw_model_error("the operands of {} do not fit each other ({}): the plan is damaged", name_of(problem_),
                    what);
}

bool Fit::matches(char c, int64_t size) {
  if (size < 0 || c == '.') return true;
  if (c >= '0' && c <= '9') return size == c - '0';
  const bool repeats = c >= 'A' && c <= 'Z';
  if (repeats && size == 1) return true;
  int64_t& bound = sizes_[static_cast<size_t>(c - (repeats ? 'A' : 'a'))];
  if (bound < 0) bound = size;
  return bound == size;
}

void Fit::match(std::string_view which, size_t i, const TensorRef& t, std::string_view pattern) {
  const bool any = pattern.starts_with('*');
  if (any) pattern.remove_prefix(1);
  const size_t rank = t.sizes.size();
  bool fits = any ? rank >= pattern.size() : rank == pattern.size();
  for (size_t d = 0; fits && d < pattern.size(); ++d)
    fits = matches(pattern[d], t.sizes[rank - pattern.size() + d]);
  require(fits, "{} {} is [{}]", which, i, fmt::join(t.sizes, ", "));
}

void Fit::input(size_t i, std::string_view sizes) {
  require(has(i), "input {} is missing", i);
  match("input", i, inputs_[i], sizes);
}

void Fit::output(size_t i, std::string_view sizes) {
  require(i < outputs_.size() && outputs_[i].dtype != DType::undefined, "output {} is missing", i);
  match("output", i, outputs_[i], sizes);
}

void Fit::derived(char letter, int64_t size) {
  require(matches(letter, size), "{} for {}", this->size(letter), size);
}

int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

int64_t known_numel(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n = times(n, s);
  return n;
}

namespace {

/// Operand `i` is repeated over the result.
void check_repeated(const Fit& fit, size_t i) {
  const std::span<const int64_t> to = fit.out(0).sizes;
  fit.require(fit.has(i), "input {} is missing", i);
  const std::span<const int64_t> sizes = fit.in(i).sizes;
  bool fits = sizes.size() == to.size();
  for (size_t d = 0; fits && d < to.size(); ++d) fits = sizes[d] == 1 || same_size(sizes[d], to[d]);
  fit.require(fits, "input {} is [{}]", i, fmt::join(sizes, ", "));
}

void check_zero_point(const Fit& fit, int i) {
  if (i < 0) return;
  const auto at = static_cast<size_t>(i);
  fit.require(fit.has(at) && fit.in(at).dtype == DType::i32 && same_size(known_numel(fit.in(at).sizes), 1),
              "a zero point is no single number");
}

void check_post_ops(const Fit& fit, const std::vector<PostOp>& ops) {
  for (const PostOp& op : ops) {
    const bool binary = op.kind >= PostOp::add;
    fit.require(binary == (op.operand >= 0), "a post-operation with the operands of another one");
    if (binary) check_repeated(fit, static_cast<size_t>(op.operand));
  }
}

void check(const MatMulProblem& p, Fit& fit) {
  fit.output(0, "*mn");
  fit.input(0, "*mk");
  fit.input(1, "*kn");
  const std::span<const int64_t> to = fit.out(0).sizes;
  for (size_t i : {0, 1}) {
    const std::span<const int64_t> sizes = fit.in(i).sizes;
    bool fits = sizes.size() == to.size();
    for (size_t d = 0; fits && d + 2 < to.size(); ++d) fits = sizes[d] == 1 || same_size(sizes[d], to[d]);
    fit.require(fits, "input {} is [{}]", i, fmt::join(sizes, ", "));
  }
  if (p.has_bias) check_repeated(fit, 2);
  check_zero_point(fit, p.a_zero);
  check_zero_point(fit, p.b_zero);
  check_post_ops(fit, p.post_ops);
}

/// The last window of `windows` lies within `size` elements and their padding.
bool reaches(int64_t windows, int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t begin,
             int64_t end) {
  if (windows <= 0 || size <= 0 || kernel <= 0) return true; // not known, or nothing to do
  int64_t last, width, room;
  const bool counted =
      !__builtin_mul_overflow(windows - 1, stride, &last) &&
      !__builtin_mul_overflow(kernel - 1, dilation, &width) && !__builtin_add_overflow(last, width, &last) &&
      !__builtin_add_overflow(size, begin, &room) && !__builtin_add_overflow(room, end, &room);
  return counted && last < room;
}

void check(const ConvProblem& p, Fit& fit) {
  const std::string images = "nc" + std::string(static_cast<size_t>(p.spatial_rank), '.'),
                    results = "nm" + std::string(static_cast<size_t>(p.spatial_rank), '.');
  fit.output(0, results);
  fit.input(0, images);
  fit.input(1, p.transposed ? "cg" + images.substr(2) : "mg" + images.substr(2));
  // The channels of a group, in and out.
  const int64_t all = fit.size(p.transposed ? 'm' : 'c'), others = fit.size(p.transposed ? 'c' : 'm');
  const int64_t group = fit.size('g');
  fit.require(p.group > 0 && (group < 0 || all < 0 || times(group, p.group) == all) &&
                  (others < 0 || others % p.group == 0),
              "{} and {} channels in {} groups", fit.size('c'), fit.size('m'), p.group);
  const std::span<const int64_t> x = fit.in(0).sizes, w = fit.in(1).sizes, y = fit.out(0).sizes;
  for (size_t d = 0; d < p.strides.size(); ++d) {
    const int64_t from = x[d + 2], to = y[d + 2];
    fit.require(p.strides[d] > 0 && p.dilations[d] > 0 &&
                    reaches(p.transposed ? from : to, p.transposed ? to : from, w[d + 2], p.strides[d],
                            p.dilations[d], p.pads_begin[d], p.pads_end[d]),
                "{} elements of {} and their padding", to, from);
  }
  if (p.has_bias) fit.input(2, "m");
  check_zero_point(fit, p.x_zero);
  check_post_ops(fit, p.post_ops);
}

void check(const HeadRotation& r, Fit& fit) {
  if (r.width == 0) return;
  fit.input(AttentionProblem::kCosines, "Bc");
  fit.input(AttentionProblem::kSines, "Bc");
  const int64_t depth = fit.size('d'), numbers = fit.size('c');
  fit.require(r.width % 2 == 0 && (depth < 0 || r.width <= depth) &&
                  (numbers < 0 || numbers == r.width || numbers == r.width / 2),
              "{} cosines for {} elements of heads of {}", numbers, r.width, depth);
}

void check(const AttentionProblem& p, Fit& fit) {
  fit.input(0, "bhsd");
  fit.input(1, "bgtd");
  fit.input(2, "bgtv");
  if (p.has_mask) fit.input(3, "BHST");
  if (p.has_starts) fit.input(4, "b");
  if (p.has_sinks) fit.input(5, "h");
  fit.output(0, p.tokens_first ? "bshv" : "bhsv");
  if (!p.carries && !p.appends) return;
  for (size_t i : {1, 2}) {
    const size_t cache = i == 1 ? AttentionProblem::kCacheKeys : AttentionProblem::kCacheValues;
    const char* sizes = i == 1 ? "bgpd" : "bgpv";
    fit.input(cache, sizes);
    fit.output(i, sizes);
    const DType given = fit.in(cache).dtype;
    fit.require((p.appends ? is_float(given) : given == fit.in(i).dtype) &&
                    fit.out(i).dtype == fit.in(i).dtype,
                "a cache of another type");
  }
  check(p.rotation, fit);
  const int64_t part = fit.size('p'), all = fit.size('t');
  fit.require(part < 0 || all < 0 || part <= all, "{} of {} tokens are those {}", part, all,
              p.appends ? "appended" : "of before");
}

std::vector<TensorRef> references(std::span<const OperandInfo> operands) {
  std::vector<TensorRef> all;
  all.reserve(operands.size());
  for (const OperandInfo& o : operands) all.push_back({nullptr, o.dtype, o.sizes, o.strides});
  return all;
}

} // namespace

void check_fit(const Problem& problem, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
               bool allocates) {
  Fit fit(problem, inputs, outputs);
  if (const auto* host = std::get_if<HostProblem>(&problem)) return check_host_fit(*host, fit, allocates);
  fit.require(!allocates, "results of known sizes");
  if (const auto* layer = std::get_if<RecurrentProblem>(&problem)) return check_layer_fit(*layer, fit);
  const auto* attention = std::get_if<AttentionProblem>(&problem);
  const bool writes = attention && (attention->carries || attention->appends);
  fit.require(outputs.size() == (writes ? 3 : 1), "another number of results");
  if (const auto* product = std::get_if<PackedMatMulProblem>(&problem)) return check_layer_fit(*product, fit);
  if (const auto* row = std::get_if<RowProductProblem>(&problem)) return check_layer_fit(*row, fit);
  if (const auto* experts = std::get_if<ExpertsProblem>(&problem)) return check_layer_fit(*experts, fit);
  if (const auto* conv = std::get_if<ConvProblem>(&problem))
    check(*conv, fit);
  else if (const auto* product = std::get_if<MatMulProblem>(&problem))
    check(*product, fit);
  else
    check(*attention, fit);
}

void check_fit(const Problem& problem, std::span<const OperandInfo> inputs,
               std::span<const OperandInfo> outputs, bool allocates) {
  check_fit(problem, references(inputs), references(outputs), allocates);
}

} // namespace tbx::extern_kernels
