// Archive: values as bytes and back. One list of fields per struct serves both directions: a function
// template `fields(archive, value)` that gives the archive the members in order.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/arity.h"
#include "base/error.h"
#include "base/tensor_pool.h"

namespace tbx::archive {

static_assert(std::endian::native == std::endian::little, "files hold numbers as they lie in memory");

/// The largest value of an enumeration; what a file holds beyond is damage. Specialised per enumeration.
template <class E> struct Last;

template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::true_type {};
template <class T> struct IsVariant : std::false_type {};
template <class... T> struct IsVariant<std::variant<T...>> : std::true_type {};
template <class T> struct IsOptional : std::false_type {};
template <class T> struct IsOptional<std::optional<T>> : std::true_type {};
template <class T> struct IsShared : std::false_type {};
template <class T> struct IsShared<std::shared_ptr<const T>> : std::true_type { using Element = T; };
template <class T> struct IsPair : std::false_type {};
template <class A, class B> struct IsPair<std::pair<A, B>> : std::true_type {};
template <class T> struct IsMap : std::false_type {};
template <class K, class V> struct IsMap<std::map<K, V>> : std::true_type {};

[[noreturn]] inline void damaged(const char* what) {
  throw Error(ErrorKind::model, std::string("the package is damaged: ") + what, "copy or compile it again");
}

/// Values are only read; the interface is that of Reader, for `fields`.
class Writer {
public:
  explicit Writer(TensorPool& tensors) : tensors_(tensors) {}
  std::string bytes;

  template <class... T> void operator()(T&... values) { (put(values), ...); }
  /// All members of an S: one that somebody adds and nobody saves is found while compiling.
  template <class S, class... T> void all(T&... members) {
    static_assert(sizeof...(T) == kArity<S>, "a member is not saved");
    (*this)(members...);
  }

private:
  template <class T> void raw(T v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); }

  template <class T> void put(T& v) {
    if constexpr (std::is_same_v<T, std::string>) {
      raw<uint64_t>(v.size());
      bytes += v;
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      raw<uint64_t>(v.size());
      for (bool b : v) raw<uint8_t>(b);
    } else if constexpr (IsVector<T>::value) {
      raw<uint64_t>(v.size());
      for (auto& e : v) put(e);
    } else if constexpr (IsMap<T>::value) {
      raw<uint64_t>(v.size());
      for (auto& [key, value] : v) {
        auto name = key;
        put(name);
        put(value);
      }
    } else if constexpr (IsPair<T>::value) {
      put(v.first);
      put(v.second);
    } else if constexpr (IsVariant<T>::value) {
      raw<uint8_t>(static_cast<uint8_t>(v.index()));
      std::visit([&](auto& e) { put(e); }, v);
    } else if constexpr (IsOptional<T>::value) {
      raw<uint8_t>(v.has_value());
      if (v) put(*v);
    } else if constexpr (std::is_same_v<T, Tensor>) {
      put_tensor(v);
    } else if constexpr (IsShared<T>::value) {
      raw<uint8_t>(v != nullptr);
      if (v) put(const_cast<typename IsShared<T>::Element&>(*v)); // only read
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
    if (t.dtype == DType::undefined) return; // none
    if (t.dtype == DType::string) return put(*t.strings);
    raw<uint64_t>(tensors_.add(t));
  }

  TensorPool& tensors_;
};

/// Values in values: what reads them calls itself, and a stack ends.
inline constexpr int kMostNested = 512;

/// Throws Error (model) that says what is wrong.
class Reader {
public:
  /// Tensors are views of `tensors`.
  Reader(std::span<const std::byte> bytes, TensorMemory tensors) : at_(bytes), tensors_(std::move(tensors)) {}

  template <class... T> void operator()(T&... values) { (get(values), ...); }
  template <class S, class... T> void all(T&... members) {
    static_assert(sizeof...(T) == kArity<S>, "a member is not read");
    (*this)(members...);
  }
  void expect_end() const {
    if (!at_.empty()) damaged("something follows the end of a part");
  }

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
      v.clear();
      for (size_t i = 0; i < n; ++i) get(v.emplace_back());
    } else if constexpr (IsMap<T>::value) {
      for (size_t i = 0, n = count(); i < n; ++i) {
        typename T::key_type key;
        get(key);
        get(v[key]);
      }
    } else if constexpr (IsPair<T>::value) {
      get(v.first);
      get(v.second);
    } else if constexpr (IsVariant<T>::value) {
      get_variant(v, raw<uint8_t>(), std::make_index_sequence<std::variant_size_v<T>>());
    } else if constexpr (IsOptional<T>::value) {
      v.reset();
      if (boolean()) get(v.emplace());
    } else if constexpr (std::is_same_v<T, Tensor>) {
      v = tensor();
    } else if constexpr (IsShared<T>::value) {
      v.reset();
      if (boolean()) {
        auto made = std::make_shared<typename IsShared<T>::Element>();
        get(*made);
        v = std::move(made);
      }
    } else if constexpr (std::is_same_v<T, DType>) {
      const auto type = raw<int32_t>();
      const std::optional<DType> known = dtype_from_number(type);
      if (!known && type != static_cast<int32_t>(DType::undefined)) damaged("an unknown type");
      v = known.value_or(DType::undefined);
    } else if constexpr (std::is_enum_v<T>) {
      const auto e = raw<int32_t>();
      if (e < 0 || e > static_cast<int32_t>(Last<T>::value)) damaged("an unknown kind");
      v = static_cast<T>(e);
    } else if constexpr (std::is_same_v<T, bool>) {
      v = boolean();
    } else if constexpr (std::is_arithmetic_v<T>) {
      v = raw<T>();
    } else {
      if (++depth_ > kMostNested) damaged("its values are nested too deep");
      fields(*this, v);
      --depth_;
    }
  }

  bool boolean() {
    const auto b = raw<uint8_t>();
    if (b > 1) damaged("a flag is neither set nor not");
    return b != 0;
  }

  template <class V, size_t... I> void get_variant(V& v, uint8_t index, std::index_sequence<I...>) {
    const bool known = ((index == I && (get(v.template emplace<I>()), true)) || ...);
    if (!known) damaged("an unknown kind of value");
  }

  Tensor tensor() {
    Tensor t;
    (*this)(t.dtype, t.dims);
    if (t.dtype == DType::undefined) return t;
    const int64_t n = checked_numel(t.dims);
    if (t.dtype == DType::string) {
      t.strings = std::make_shared<std::vector<std::string>>();
      get(*t.strings);
      if (t.strings->size() != static_cast<size_t>(n)) damaged("a tensor of another size");
      return t;
    }
    const auto offset = raw<uint64_t>();
    if ((offset & kElsewhere) != 0 && tensors_.elsewhere)
      return elsewhere(std::move(t), offset & ~kElsewhere);
    if (offset % kTensorAlignment != 0) damaged("a constant is not aligned");
    const auto width = static_cast<uint64_t>(std::max<int64_t>(1, size_of(t.dtype)));
    if (offset > tensors_.bytes.size() || static_cast<uint64_t>(n) > (tensors_.bytes.size() - offset) / width)
      damaged("a constant lies outside of the file");
    t.data = tensors_.bytes.data() + offset;
    t.owner = tensors_.owner;
    t.file_mapped = tensors_.file_mapped;
    return t;
  }

  Tensor elsewhere(Tensor t, uint64_t number) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(t.numel(), size_of(t.dtype), &bytes)) damaged("a tensor of another size");
    const TensorMemory memory = tensors_.elsewhere(number, static_cast<uint64_t>(bytes));
    const auto unit = static_cast<uintptr_t>(std::clamp<int64_t>(size_of(t.dtype), 1, 8));
    if (reinterpret_cast<uintptr_t>(memory.bytes.data()) % unit != 0) damaged("a constant is not aligned");
    t.data = memory.bytes.data();
    t.owner = memory.owner;
    t.file_mapped = memory.file_mapped;
    return t;
  }

  std::span<const std::byte> at_;
  TensorMemory tensors_;
  int depth_ = 0;
};

/// The value as bytes; its tensors' elements go into the pool.
template <class T> std::string write(const T& value, TensorPool& tensors) {
  Writer w(tensors);
  w(const_cast<T&>(value)); // one list of fields serves both directions; this one only reads
  return std::move(w.bytes);
}

/// What write() gave, and nothing behind it.
template <class T> T read(std::span<const std::byte> bytes, TensorMemory tensors) {
  T value;
  Reader r(bytes, std::move(tensors));
  r(value);
  r.expect_end();
  return value;
}

} // namespace tbx::archive
