#include "extern_kernels/onednn/byte_layout.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "extern_kernels/panel_copy.h"

namespace tbx::extern_kernels::onednn {

using dnnl::memory;

namespace {

constexpr int64_t kQuad = 4; ///< terms that one instruction multiplies and adds

uint32_t as_number(std::byte b) { return static_cast<uint32_t>(b); }

} // namespace

std::optional<ByteLayout> ByteLayout::of(const memory::desc& plain, const memory::desc& packed,
                                         bool has_left_zero) {
  if (packed.get_format_kind() != memory::format_kind::blocked ||
      plain.get_format_kind() != memory::format_kind::blocked || plain.get_inner_nblks() != 0 ||
      memory::data_type_size(packed.get_data_type()) != 1 ||
      plain.get_data_type() != packed.get_data_type() || packed.get_submemory_offset() != 0)
    return std::nullopt;
  ByteLayout l;
  l.dims_ = plain.get_dims();
  l.strides_ = plain.get_strides();
  const memory::dims padded = packed.get_padded_dims(), strides = packed.get_strides(),
                     blocks = packed.get_inner_blks(), of = packed.get_inner_idxs();
  l.bytes_ = static_cast<int64_t>(packed.get_size());
  l.elements_ = 1;
  for (size_t d = 0; d < l.dims_.size(); ++d) {
    l.elements_ *= padded[d];
    int64_t block = 1;
    for (size_t b = 0; b < blocks.size(); ++b)
      if (of[b] == static_cast<int64_t>(d)) block *= blocks[b];
    std::vector<int64_t>& places = l.places_.emplace_back();
    for (int64_t i = 0; i < padded[d]; ++i) {
      int64_t place = i / block * strides[d], rest = i % block, step = 1;
      for (size_t b = blocks.size(); b-- > 0; step *= blocks[b])
        if (of[b] == static_cast<int64_t>(d)) {
          place += rest % blocks[b] * step;
          rest /= blocks[b];
        }
      places.push_back(place);
    }
  }
  if (l.bytes_ < l.elements_) return std::nullopt;
  l.packs_ = l.finds_quads(packed);
  if (l.bytes_ > l.elements_) {
    const int64_t of_rows = l.packs_ ? padded[l.rows_] * static_cast<int64_t>(sizeof(int32_t)) : 0;
    const bool known = has_left_zero && l.packs_ && l.rows_ == 0 && l.bytes_ == l.elements_ + of_rows;
    l.behind_ = known ? Behind::negative_sums : Behind::others;
  }
  // A matrix the library packs by a kernel that it has for that.
  l.packs_ = l.packs_ && l.behind_ != Behind::others && l.dims_.size() > 2;
  return l;
}

/// Blocks of rows, with four terms of each side by side.
bool ByteLayout::finds_quads(const memory::desc& packed) {
  const memory::dims blocks = packed.get_inner_blks(), of = packed.get_inner_idxs();
  const size_t n = blocks.size();
  if (n < 2 || n > 3 || blocks[n - 1] != kQuad || of[n - 1] == of[n - 2]) return false;
  if (n == 3 && of[0] != of[2]) return false;
  rows_ = static_cast<size_t>(of[n - 2]);
  terms_ = static_cast<size_t>(of[n - 1]);
  width_ = blocks[n - 2];
  for (size_t d = 0; d < dims_.size(); ++d)
    if (d != rows_ && d != terms_ && std::ssize(places_[d]) != dims_[d]) return false;
  return true;
}

/// Those that are neither rows nor terms.
std::vector<size_t> ByteLayout::others() const {
  std::vector<size_t> all;
  for (size_t d = 0; d < dims_.size(); ++d)
    if (d != rows_ && d != terms_) all.push_back(d);
  return all;
}

/// Calls `f` with the places of all elements along these dimensions: before they were packed, and behind it.
template <class F>
void ByteLayout::for_each_index(const std::vector<size_t>& dimensions, size_t at, int64_t from, int64_t to,
                                const F& f) const {
  if (at == dimensions.size()) return f(from, to);
  const size_t d = dimensions[at];
  for (int64_t i = 0; i < dims_[d]; ++i)
    for_each_index(dimensions, at + 1, from + i * strides_[d], to + places_[d][i], f);
}

void ByteLayout::pack(const std::byte* plain, std::byte* packed) const {
  const bool is_padded =
      std::ssize(places_[rows_]) != dims_[rows_] || std::ssize(places_[terms_]) != dims_[terms_];
  // Terms side by side are turned as whole numbers, four at a time.
  if (dims_[terms_] % kQuad == 0 && strides_[terms_] == 1 && strides_[rows_] % kQuad == 0 &&
      has_dense_panels() && reinterpret_cast<uintptr_t>(plain) % kQuad == 0) {
    for_each_index(others(), 0, 0, 0, [&](int64_t from, int64_t to) {
      copy_panels(reinterpret_cast<const float*>(plain + from), reinterpret_cast<float*>(packed + to), width_,
                  dims_[terms_] / kQuad, dims_[rows_], 1, strides_[rows_] / kQuad, {});
    });
  } else {
    if (is_padded) std::memset(packed, 0, static_cast<size_t>(elements_));
    tbb::parallel_for(int64_t{0}, (dims_[rows_] + width_ - 1) / width_,
                      [&](int64_t b) { pack_rows(plain, packed, b * width_); });
  }
  if (behind_ == Behind::negative_sums) add_sums(plain, packed);
}

/// Whether the elements of some rows follow each other, those of the next ones behind them.
bool ByteLayout::has_dense_panels() const {
  const int64_t quads = std::ssize(places_[terms_]) / kQuad;
  for (int64_t q = 0; q < quads; ++q)
    if (places_[terms_][q * kQuad] != q * kQuad * width_) return false;
  for (int64_t r = 0; r < std::ssize(places_[rows_]); r += width_)
    if (places_[rows_][r] != r * quads * kQuad) return false;
  return quads * kQuad == dims_[terms_];
}

/// A block of rows. Each is read from its first to its last byte; what is written between two steps along the
/// terms stays in the first level cache.
void ByteLayout::pack_rows(const std::byte* plain, std::byte* packed, int64_t first) const {
  constexpr int64_t kStep = 64;
  const int64_t terms = dims_[terms_], term = strides_[terms_];
  const int64_t* const place = places_[terms_].data(); // bytes that are written may be anything's
  const std::vector<size_t> rest = others();
  for (int64_t begin = 0; begin < terms; begin += kStep) {
    const int64_t end = std::min(begin + kStep, terms), whole = begin + (end - begin) / kQuad * kQuad;
    for (int64_t r = first; r < std::min(first + width_, dims_[rows_]); ++r)
      for_each_index(rest, 0, r * strides_[rows_], places_[rows_][r], [=](int64_t from, int64_t to) {
        const std::byte* in = plain + from;
        for (int64_t t = begin; t < whole; t += kQuad) {
          const std::byte* p = in + t * term;
          const uint32_t quad = as_number(p[0]) | as_number(p[term]) << 8 | as_number(p[2 * term]) << 16 |
                                as_number(p[3 * term]) << 24;
          std::memcpy(packed + to + place[t], &quad, kQuad);
        }
        for (int64_t t = whole; t < end; ++t) packed[to + place[t]] = in[t * term];
      });
  }
}

void ByteLayout::add_sums(const std::byte* plain, std::byte* packed) const {
  const std::vector<size_t> rest = others();
  std::vector<int32_t> sums(places_[rows_].size());
  for (int64_t r = 0; r < dims_[rows_]; ++r)
    for_each_index(rest, 0, r * strides_[rows_], 0, [&](int64_t from, int64_t) {
      const auto* elements = reinterpret_cast<const int8_t*>(plain + from);
      int32_t sum = 0;
      for (int64_t t = 0; t < dims_[terms_]; ++t) sum += elements[t * strides_[terms_]];
      sums[r] -= sum;
    });
  std::memcpy(packed + elements_, sums.data(), sums.size() * sizeof(int32_t));
}

void ByteLayout::unpack(const std::byte* packed, std::byte* plain) const {
  std::vector<size_t> all(dims_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for_each_index(all, 0, 0, 0, [&](int64_t from, int64_t to) { plain[from] = packed[to]; });
}

} // namespace tbx::extern_kernels::onednn
