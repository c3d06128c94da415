// Blocked layouts of bytes: how the library wants the weights of products of 8-bit integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <vector>

namespace tbx::extern_kernels::onednn {

/// What a layout has behind its elements.
enum class Behind : uint8_t {
  nothing,
  negative_sums, ///< of each row, in i32: for the zero point of the left-hand side
  others,
};

/// Where the elements of a blocked layout lie.
class ByteLayout {
public:
  /// Of `packed`, whose elements `plain` describes in another order. nullopt: it is no blocked layout of
  /// bytes. `has_left_zero`: the left-hand side is unsigned and has a zero point.
  static std::optional<ByteLayout> of(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed,
                                      bool has_left_zero);

  /// pack() knows the layout: one for convolutions. The library would generate code for each size.
  bool packs() const { return packs_; }
  /// In the arena that the call is in.
  void pack(const std::byte* plain, std::byte* packed) const;
  /// Of elements as they were: the library halves them on CPUs where it multiplies no bytes for us
  /// (inexact_bytes).
  void unpack(const std::byte* packed, std::byte* plain) const;

private:
  ByteLayout() = default;
  bool finds_quads(const dnnl::memory::desc& packed);
  bool has_dense_panels() const;
  void pack_rows(const std::byte* plain, std::byte* packed, int64_t first) const;
  void add_sums(const std::byte* plain, std::byte* packed) const;
  std::vector<size_t> others() const;
  template <class F>
  void for_each_index(const std::vector<size_t>& dimensions, size_t at, int64_t from, int64_t to,
                      const F& f) const;

  std::vector<int64_t> dims_, strides_;      ///< of the plain elements
  std::vector<std::vector<int64_t>> places_; ///< by dimension and index; their sum is the place of an element
  int64_t bytes_ = 0, elements_ = 0;         ///< of the layout: all, and those of elements with their padding
  Behind behind_ = Behind::nothing;
  bool packs_ = false;
  size_t rows_ = 0, terms_ = 0; ///< with packs(): the dimension of a block of `width_`, that of quads
  int64_t width_ = 0;
};

} // namespace tbx::extern_kernels::onednn
