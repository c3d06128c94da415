#include "runtime/executable_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"

namespace tbx::runtime {
namespace {

using namespace extern_kernels;

static_assert(std::endian::native == std::endian::little, "files hold numbers as they lie in memory");

constexpr std::array<char, 8> kMagic = {'T', 'B', 'X', 'E', 'X', 'E', '\r', '\n'};
/// Raised with every change of the fields below.
constexpr uint32_t kVersion = 2;
constexpr size_t kAlign = 64;

/// Where a part lies. The header's own checksum covers the table of parts.
struct Part {
  uint64_t offset = 0, size = 0, checksum = 0;
};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion, unused = 0;
  Part plan, constants;
  uint64_t checksum = 0; ///< of what is before it
};

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

/// The largest value of enumerations; what a file holds beyond is damage.
template <class E> constexpr E kLast = E{};
template <> constexpr auto kLast<SizeExpr::Code> = SizeExpr::Code::max;
template <> constexpr auto kLast<StorageKind> = StorageKind::dynamic;
template <> constexpr auto kLast<DeviceKind> = DeviceKind::cuda;
template <> constexpr auto kLast<Precision> = Precision::any;
template <> constexpr auto kLast<PostOp::Kind> = PostOp::sum;

template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::true_type {};
template <class T> struct IsVariant : std::false_type {};
template <class... T> struct IsVariant<std::variant<T...>> : std::true_type {};
template <class T> struct IsMap : std::false_type {};
template <class K, class V> struct IsMap<std::map<K, V>> : std::true_type {};

// One list of fields per struct serves both directions.
template <class A> void fields(A& a, SizeExpr::Item& v) { a(v.code, v.value); }
template <class A> void fields(A& a, SizeExpr& v) { a(v.items); }
template <class A> void fields(A& a, BufferPlan& v) {
  a(v.name, v.dtype, v.sizes, v.strides, v.device, v.storage, v.index, v.first_step, v.last_step);
}
template <class A> void fields(A& a, KernelLaunch& v) { a(v.blocks, v.threads, v.shared_bytes, v.teams); }
template <class A> void fields(A& a, KernelStep& v) {
  a(v.name, v.buffers, v.writes, v.offset_bytes, v.size_args, v.tasks, v.scratch_bytes, v.check_origins,
    v.cost_per_task, v.sequential, v.launch);
}
template <class A> void fields(A& a, OperandView& v) { a(v.buffer, v.sizes, v.strides, v.offset); }
template <class A> void fields(A& a, PostOp& v) { a(v.kind, v.alpha, v.beta, v.operand); }
template <class A> void fields(A& a, ConvProblem& v) {
  a(v.spatial_rank, v.transposed, v.has_bias, v.precision, v.x_zero, v.group, v.strides, v.dilations,
    v.pads_begin, v.pads_end, v.post_ops);
}
template <class A> void fields(A& a, MatMulProblem& v) {
  a(v.has_bias, v.a_zero, v.b_zero, v.alpha, v.precision, v.post_ops);
}
template <class A> void fields(A& a, AttentionProblem& v) {
  a(v.scale, v.causal, v.from_end, v.has_mask, v.has_starts, v.has_sinks, v.tokens_first,
    v.zero_undefined_rows, v.window, v.softcap);
}
template <class A> void fields(A& a, HostProblem& v) {
  if (v.custom) throw_unsupported("operator {} comes from a library of the user's and cannot be saved", v.op);
  a(v.domain, v.op, v.opset, v.attributes, v.output_types);
}
template <class A> void fields(A& a, ExternStep& v) {
  a(v.problem, v.inputs, v.outputs, v.dynamic_outputs, v.bound_symbols, v.dynamic_dims);
}
template <class A> void fields(A& a, CopyStep& v) { a(v.from, v.to); }
template <class A> void fields(A& a, Step& v) { a(v.what, v.origins, v.device); }
template <class A> void fields(A& a, SignatureEntry& v) {
  a(v.name, v.dtype, v.dims, v.sizes, v.buffer, v.ranked);
}
template <class A> void fields(A& a, SymbolBinding& v) { a(v.symbol, v.input, v.dim, v.element); }
template <class A> void fields(A& a, PlanCheck& v) { a(v.value, v.equal, v.message, v.assumption, v.where); }
template <class A> void fields(A& a, Executable& v) {
  a(v.symbol_names, v.bindings, v.checks, v.inputs, v.outputs, v.buffers, v.constants, v.steps,
    v.origin_names);
}

class Writer {
public:
  std::string plan, constants;

  template <class... T> void operator()(T&... values) { (put(values), ...); }

private:
  template <class T> void raw(T v) { plan.append(reinterpret_cast<const char*>(&v), sizeof v); }

  template <class T> void put(T& v) {
    if constexpr (std::is_same_v<T, std::string>) {
      raw<uint64_t>(v.size());
      plan += v;
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      raw<uint64_t>(v.size());
      for (bool b : v) raw<uint8_t>(b);
    } else if constexpr (IsVector<T>::value) {
      raw<uint64_t>(v.size());
      for (auto& e : v) put(e);
    } else if constexpr (IsMap<T>::value) {
      raw<uint64_t>(v.size());
      for (auto& [key, value] : v) {
        std::string name = key;
        put(name);
        put(value);
      }
    } else if constexpr (IsVariant<T>::value) {
      raw<uint8_t>(static_cast<uint8_t>(v.index()));
      std::visit([&](auto& e) { put(e); }, v);
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>) {
      put_tensor(*v);
    } else if constexpr (std::is_enum_v<T>) {
      raw<int32_t>(static_cast<int32_t>(v));
    } else if constexpr (std::is_same_v<T, bool>) {
      raw<uint8_t>(v);
    } else if constexpr (std::is_arithmetic_v<T>) {
      raw(v);
    } else {
      fields(*this, v);
    }
  }

  void put_tensor(const Tensor& t) {
    std::vector<int64_t> dims = t.dims;
    DType dtype = t.dtype;
    (*this)(dtype, dims);
    if (t.dtype == DType::string) return put(*t.strings);
    constants.resize((constants.size() + kAlign - 1) / kAlign * kAlign);
    raw<uint64_t>(constants.size());
    constants.append(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  }
};

[[noreturn]] void damaged(const char* what) { throw_model_error("the saved model is damaged: {}", what); }

class Reader {
public:
  Reader(std::span<const std::byte> plan, std::span<const std::byte> constants,
         std::shared_ptr<const void> owner)
      : at_(plan), constants_(constants), owner_(std::move(owner)) {}

  template <class... T> void operator()(T&... values) { (get(values), ...); }
  bool at_end() const { return at_.empty(); }

private:
  template <class T> T raw() {
    if (at_.size() < sizeof(T)) damaged("it ends too early");
    T v;
    std::memcpy(&v, at_.data(), sizeof v);
    at_ = at_.subspan(sizeof v);
    return v;
  }

  /// A number of elements: each takes a byte at least.
  size_t count() {
    const auto n = raw<uint64_t>();
    if (n > at_.size()) damaged("a list is longer than the file");
    return static_cast<size_t>(n);
  }

  template <class T> void get(T& v) {
    if constexpr (std::is_same_v<T, std::string>) {
      const size_t n = count();
      v.assign(reinterpret_cast<const char*>(at_.data()), n);
      at_ = at_.subspan(n);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      v.resize(count());
      for (size_t i = 0; i < v.size(); ++i) v[i] = boolean();
    } else if constexpr (IsVector<T>::value) {
      const size_t n = count();
      for (size_t i = 0; i < n; ++i) get(v.emplace_back());
    } else if constexpr (IsMap<T>::value) {
      for (size_t i = 0, n = count(); i < n; ++i) {
        std::string name;
        get(name);
        get(v[name]);
      }
    } else if constexpr (IsVariant<T>::value) {
      get_variant(v, raw<uint8_t>(), std::make_index_sequence<std::variant_size_v<T>>());
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>) {
      v = tensor();
    } else if constexpr (std::is_same_v<T, DType>) {
      const auto type = raw<int32_t>();
      const std::optional<DType> known = dtype_from_number(type);
      if (!known && type != static_cast<int32_t>(DType::undefined)) damaged("an unknown type");
      v = known.value_or(DType::undefined);
    } else if constexpr (std::is_enum_v<T>) {
      const auto e = raw<int32_t>();
      if (e < 0 || e > static_cast<int32_t>(kLast<T>)) damaged("an unknown kind");
      v = static_cast<T>(e);
    } else if constexpr (std::is_same_v<T, bool>) {
      v = boolean();
    } else if constexpr (std::is_arithmetic_v<T>) {
      v = raw<T>();
    } else {
      fields(*this, v);
    }
  }

  bool boolean() {
    const auto b = raw<uint8_t>();
    if (b > 1) damaged("a flag is neither set nor not");
    return b != 0;
  }

  template <class V, size_t... I> void get_variant(V& v, uint8_t index, std::index_sequence<I...>) {
    const bool known = ((index == I && (get(v.template emplace<I>()), true)) || ...);
    if (!known) damaged("an unknown step or problem");
  }

  std::shared_ptr<const Tensor> tensor() {
    auto t = std::make_shared<Tensor>();
    (*this)(t->dtype, t->dims);
    if (t->dtype == DType::undefined) damaged("a tensor without a type");
    const int64_t n = checked_numel(t->dims);
    if (t->dtype == DType::string) {
      t->strings = std::make_shared<std::vector<std::string>>();
      get(*t->strings);
      if (t->strings->size() != static_cast<size_t>(n)) damaged("a tensor of another size");
      return t;
    }
    const auto offset = raw<uint64_t>();
    if (offset % kAlign != 0) damaged("a constant is not aligned");
    if (offset > constants_.size() ||
        static_cast<uint64_t>(n) >
            (constants_.size() - offset) / static_cast<uint64_t>(std::max<int64_t>(1, size_of(t->dtype))))
      damaged("a constant lies outside of the file");
    t->data = constants_.data() + offset;
    t->owner = owner_;
    return t;
  }

  std::span<const std::byte> at_, constants_;
  std::shared_ptr<const void> owner_;
};

std::span<const std::byte> as_bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

uint64_t checksum_of(const Header& h) {
  return checksum_of(std::as_bytes(std::span(&h, 1)).first(offsetof(Header, checksum)));
}

std::span<const std::byte> part_of(std::span<const std::byte> bytes, const Part& part) {
  if (part.offset > bytes.size() || part.size > bytes.size() - part.offset) damaged("it is cut off");
  std::span<const std::byte> found = bytes.subspan(part.offset, part.size);
  if (checksum_of(found) != part.checksum) damaged("a checksum is wrong");
  return found;
}

} // namespace

std::string to_bytes(const Executable& executable) {
  Writer w;
  w(const_cast<Executable&>(executable)); // one list of fields serves both directions; this one only reads
  auto aligned = [](size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
  Header h;
  h.plan = {sizeof(Header), w.plan.size(), checksum_of(as_bytes(w.plan))};
  h.constants = {aligned(sizeof(Header) + w.plan.size()), w.constants.size(),
                 checksum_of(as_bytes(w.constants))};
  h.checksum = checksum_of(h);
  std::string out(reinterpret_cast<const char*>(&h), sizeof h);
  out += w.plan;
  out.resize(h.constants.offset);
  return out + w.constants;
}

Executable from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  Header h;
  const size_t start = offsetof(Header, plan);
  if (bytes.size() < start || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw_model_error("this is no saved model");
  std::memcpy(static_cast<void*>(&h), bytes.data(), start);
  TBX_MODEL(h.version == kVersion,
            "the saved model has version {} of the format, this is version {}: save it again", h.version,
            kVersion);
  if (bytes.size() < sizeof h) damaged("it is cut off");
  std::memcpy(static_cast<void*>(&h), bytes.data(), sizeof h);
  if (checksum_of(h) != h.checksum) damaged("a checksum is wrong");
  Executable executable;
  Reader r(part_of(bytes, h.plan), part_of(bytes, h.constants), std::move(owner));
  r(executable);
  if (!r.at_end()) damaged("something follows the plan");
  if (std::string defect = defect_of(executable); !defect.empty()) damaged(defect.c_str());
  return executable;
}

} // namespace tbx::runtime
