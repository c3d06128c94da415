// Views against a reference on plain arrays: random chains over random shapes, static and symbolic.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "ir/tensor_box.h"

namespace tbx::ir {
namespace {

/// What a view shows: for each of its elements, in row-major order, the number of the storage element.
struct Shown {
  std::vector<int64_t> dims;
  std::vector<int64_t> elements;

  static Shown whole(std::vector<int64_t> dims) {
    Shown s{dims, std::vector<int64_t>(static_cast<size_t>(checked_numel(dims)))};
    std::iota(s.elements.begin(), s.elements.end(), 0);
    return s;
  }

  /// The view with these dimensions whose element `at` is element `source(at)` of this one.
  template <class F> Shown map(std::vector<int64_t> new_dims, F&& source) const {
    Shown out{new_dims, {}};
    std::vector<int64_t> at(new_dims.size(), 0);
    for (int64_t n = checked_numel(new_dims); n > 0; --n) {
      std::vector<int64_t> from = source(at);
      int64_t flat = 0;
      for (size_t k = 0; k < dims.size(); ++k) flat = flat * dims[k] + from[k];
      out.elements.push_back(elements[static_cast<size_t>(flat)]);
      for (size_t k = at.size(); k-- > 0;) {
        if (++at[k] < new_dims[k]) break;
        at[k] = 0;
      }
    }
    return out;
  }
};

/// Binds symbols while the program is made, and reads views under that binding.
struct ViewTest : testing::Test {
  Program p;
  std::vector<int64_t> values; ///< of symbols

  ViewTest() {
    p.context = std::make_shared<Context>();
    // Sums are printed in order of creation.
    for (int k = 0; k < 5; ++k) p.context->var(k);
  }

  SymInt symbol(const std::string& name, int64_t value) {
    SymInt s = p.context->symbol(name);
    values.resize(p.context->symbols().size());
    values[s.node()->number] = value;
    return s;
  }

  TensorBox input(SymInts sizes) {
    BufferId id = p.new_buffer("x", DType::f32, std::move(sizes));
    p.at(id).kind = BufferKind::input;
    return make_buffer_box(p, id);
  }

  int64_t value(SymInt e, std::span<const int64_t> at = {}) const {
    auto v = evaluate(e, values, at);
    EXPECT_TRUE(v.has_value()) << to_string(e);
    return v.value_or(-1);
  }

  std::vector<int64_t> dims(const SymInts& sizes) const {
    std::vector<int64_t> d;
    for (SymInt s : sizes) d.push_back(value(s));
    return d;
  }

  bool checks_hold() const {
    for (const Check& c : p.checks)
      if (c.equal ? value(c.value) != 0 : value(c.value) < 0) return false;
    return true;
  }

  Shown shown(const TensorBox& x) const {
    std::vector<int64_t> storage = dims(p.at(x.storage()->buffer()).sizes), d = dims(x.sizes());
    return Shown::whole(storage).map(d, [&](const std::vector<int64_t>& at) {
      if (x.is_identity_view()) return at;
      std::vector<int64_t> from;
      for (SymInt e : x.index_map()) from.push_back(value(e, at));
      for (size_t k = 0; k < from.size(); ++k) {
        EXPECT_GE(from[k], 0) << to_string(x.index_map()[k]);
        EXPECT_LT(from[k], storage[k]) << to_string(x.index_map()[k]);
      }
      return from;
    });
  }

  void expect_shows(const Shown& want, const TensorBox& x) const {
    ASSERT_EQ(want.dims, dims(x.sizes()));
    ASSERT_EQ(want.elements, shown(x).elements) << to_string(std::span<const SymInt>(x.index_map()));
  }

  std::string map_of(const TensorBox& x) const { return to_string(std::span<const SymInt>(x.index_map())); }
};

TEST_F(ViewTest, MergedAndSplitDimensionsAreClean) {
  SymInt b = symbol("b", 2), s = symbol("s", 5);
  TensorBox x = input({b, s, 64});
  EXPECT_EQ("[i0, i1, 16*i2 + i3]", map_of(reshape(p, x, {b, s, 4, 16})));
  TensorBox heads = permute(p, reshape(p, x, {b, s, 4, 16}), std::vector<int>{0, 2, 1, 3});
  EXPECT_EQ("[i0, i2, 16*i1 + i3]", map_of(heads));
  TensorBox back = reshape(p, permute(p, heads, std::vector<int>{0, 2, 1, 3}), {b, s, 64});
  EXPECT_TRUE(back.is_identity_view());
  TensorBox rows = reshape(p, x, {b * s, 64});
  EXPECT_EQ(x.sizes(), reshape(p, rows, {b, s, 64}).sizes());
  EXPECT_TRUE(reshape(p, rows, {b, s, 64}).is_identity_view());
  EXPECT_EQ("[0, i0, i2, 0]", map_of(reshape(p, input({1, s, 8, 1}), {s, 1, 8})));
  EXPECT_TRUE(p.checks.empty());
}

TEST_F(ViewTest, ReshapeThatCannotBeProvenIsChecked) {
  SymInt s = symbol("s", 6), t = symbol("t", 3);
  TensorBox x = input({s, 4});
  TensorBox y = reshape(p, x, {t, 2, 4});
  ASSERT_EQ(1u, p.checks.size());
  EXPECT_NE(std::string::npos, p.checks[0].message.find("[s, 4] to [t, 2, 4]"));
  EXPECT_TRUE(checks_hold());
  expect_shows(Shown{{3, 2, 4}, shown(x).elements}, y);
  values[t.node()->number] = 4;
  EXPECT_FALSE(checks_hold());
  EXPECT_THROW(reshape(p, input({3}), {4}), Error);
  reshape(p, x, {t, 2, 4});
  EXPECT_EQ(1u, p.checks.size());
}

TEST_F(ViewTest, BroadcastOfProvableDimensionsIsClean) {
  SymInt b = symbol("b", 3);
  EXPECT_EQ((SymInts{b, 4, 5}), broadcast_sizes(p, {b, 1, 5}, {4, 1}));
  EXPECT_EQ("[0, i2]", map_of(expand(p, input({1, b}), {2, 7, b})));
  TensorBox x = input({b, 4});
  EXPECT_TRUE(expand(p, x, {b, 4}).is_identity_view());
  EXPECT_TRUE(p.checks.empty());
  EXPECT_THROW(broadcast_sizes(p, {2}, {3}), Error);
  EXPECT_THROW(expand(p, input({2}), {3}), Error);
}

TEST_F(ViewTest, UnprovableBroadcastIsRightForEveryOutcome) {
  for (auto [sv, tv, good] : {std::tuple{1, 1, true},
                              {1, 5, true},
                              {5, 1, true},
                              {5, 5, true},
                              {1, 0, true},
                              {0, 1, true},
                              {0, 0, true},
                              {2, 3, false},
                              {0, 2, false},
                              {3000000, 3000000, true}}) {
    SCOPED_TRACE(testing::Message() << sv << " with " << tv);
    Program fresh;
    fresh.context = std::make_shared<Context>();
    p = std::move(fresh);
    values.clear();
    SymInt s = symbol("s", sv), t = symbol("t", tv);
    SymInt r = broadcast_sizes(p, {s}, {t})[0];
    EXPECT_EQ(good, checks_hold());
    if (!good) continue;
    ASSERT_EQ(sv == 1 ? tv : sv, value(r));
    if (value(r) > 10) continue;
    TensorBox x = input({s});
    TensorBox y = expand(p, x, {r});
    EXPECT_TRUE(checks_hold());
    expect_shows(shown(x).map({value(r)}, [&](auto at) { return std::vector{sv == 1 ? 0 : at[0]}; }), y);
  }
}

TEST_F(ViewTest, ConstantAgainstSymbol) {
  SymInt s = symbol("s", 1);
  EXPECT_EQ(SymInt(4), broadcast_sizes(p, {s}, {4})[0]);
  EXPECT_TRUE(checks_hold());
  TensorBox x = input({s}), y = expand(p, x, {4});
  EXPECT_TRUE(checks_hold());
  expect_shows(Shown{{4}, {0, 0, 0, 0}}, y);
  values[s.node()->number] = 4;
  EXPECT_TRUE(checks_hold());
  expect_shows(Shown{{4}, {0, 1, 2, 3}}, y);
  values[s.node()->number] = 2;
  EXPECT_FALSE(checks_hold());
}

TEST_F(ViewTest, EmptyTensors) {
  TensorBox x = input({0, 3});
  expect_shows(Shown{{3, 0, 2}, {}}, reshape(p, x, {3, 0, 2}));
  SymInt s = symbol("s", 0);
  TensorBox y = input({s, 3, 2});
  expect_shows(Shown{{0, 6}, {}}, reshape(p, y, {s, 6}));
  expect_shows(Shown{{6, 0}, {}}, permute(p, reshape(p, y, {s, 6}), std::vector<int>{1, 0}));
}

TEST_F(ViewTest, SqueezedDimensionsAreChecked) {
  EXPECT_THROW(squeeze(p, input({2, 3}), std::vector<int>{0}), Error);
  SymInt s = symbol("s", 1);
  squeeze(p, input({s, 3}), std::vector<int>{0});
  EXPECT_TRUE(checks_hold());
  values[s.node()->number] = 2;
  EXPECT_FALSE(checks_hold());
}

/// Applies random views to a box and to what it shows.
class Chain {
public:
  Chain(ViewTest& test, unsigned seed, bool symbolic) : test_(test), random_(seed), symbolic_(symbolic) {}

  void run() {
    int rank = pick(4);
    SymInts sizes;
    std::vector<int64_t> dims;
    for (int k = 0; k < rank; ++k) {
      constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 1, 5, 8};
      dims.push_back(kSizes[pick(8)]);
      sizes.push_back(some_size(dims.back()));
    }
    box_ = test_.input(sizes);
    shown_ = Shown::whole(dims);
    for (int step = 0; step < 8 && !testing::Test::HasFatalFailure(); ++step) {
      change();
      SCOPED_TRACE(testing::Message() << log_);
      test_.expect_shows(shown_, box_);
      EXPECT_TRUE(test_.checks_hold());
    }
  }

private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  /// A constant, or a symbol of that value (one symbol per value half of the time).
  SymInt some_size(int64_t value) {
    if (!symbolic_ || pick(2)) return value;
    return test_.symbol(pick(2) ? "v" + std::to_string(value) : "u" + std::to_string(count_++), value);
  }

  void change() {
    int rank = box_.rank();
    auto& dims = shown_.dims;
    switch (pick(7)) {
    case 0: {
      std::vector<int> order(rank);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
      std::vector<int64_t> to;
      for (int k : order) to.push_back(dims[k]);
      shown_ = shown_.map(to, [&](auto at) {
        std::vector<int64_t> from(at.size());
        for (size_t k = 0; k < at.size(); ++k) from[order[k]] = at[k];
        return from;
      });
      box_ = permute(test_.p, box_, order);
      log_ += " permute";
      return;
    }
    case 1: {
      SymInts sizes = box_.sizes();
      std::vector<int64_t> to = dims;
      if (checked_numel(to) > 500) return;
      for (int k = 0; k < rank; ++k)
        if (to[k] == 1 && pick(2)) sizes[k] = some_size(to[k] = 1 + pick(3));
      if (pick(2)) {
        to.insert(to.begin(), 2);
        sizes.insert(sizes.begin(), some_size(2));
      }
      size_t lead = to.size() - dims.size();
      shown_ = shown_.map(to, [&](auto at) {
        std::vector<int64_t> from(at.begin() + lead, at.end());
        for (size_t k = 0; k < from.size(); ++k) from[k] = dims[k] == 1 ? 0 : from[k];
        return from;
      });
      box_ = expand(test_.p, box_, sizes);
      log_ += " expand";
      return;
    }
    case 2: {
      if (rank == 0) return;
      int axis = pick(rank);
      int64_t size = dims[axis], start = pick(static_cast<int>(size)), length, step = 1 + pick(2);
      bool backwards = pick(2);
      length = backwards ? start / step + 1 : (size - 1 - start) / step + 1;
      if (backwards) step = -step;
      std::vector<int64_t> to = dims;
      to[axis] = length;
      shown_ = shown_.map(to, [&](auto at) {
        at[axis] = start + step * at[axis];
        return at;
      });
      // Counted from the end, as a flip does.
      SymInt first = pick(2) ? SymInt(start) : box_.sizes()[axis] - SymInt(size - start);
      box_ = slice(test_.p, box_, axis, first, step, some_size(length));
      log_ += " slice";
      return;
    }
    case 3: {
      std::vector<int> axes;
      for (int k = 0; k < rank; ++k)
        if (dims[k] == 1 && pick(2)) axes.push_back(k);
      std::vector<int64_t> to;
      for (int k = 0; k < rank; ++k)
        if (std::find(axes.begin(), axes.end(), k) == axes.end()) to.push_back(dims[k]);
      box_ = squeeze(test_.p, box_, axes);
      shown_.dims = to;
      log_ += " squeeze";
      return;
    }
    case 4: {
      int at = pick(rank + 1);
      box_ = unsqueeze(test_.p, box_, std::vector<int>{at});
      dims.insert(dims.begin() + at, 1);
      log_ += " unsqueeze";
      return;
    }
    default: return change_shape();
    }
  }

  /// Merges neighbours, splits a dimension, or cuts the elements up anew.
  void change_shape() {
    auto& dims = shown_.dims;
    int rank = box_.rank();
    SymInts sizes = box_.sizes();
    int how = pick(3);
    if (how == 0 && rank >= 2) {
      int k = pick(rank - 1);
      sizes[k] = sizes[k] * sizes[k + 1];
      dims[k] *= dims[k + 1];
      sizes.erase(sizes.begin() + k + 1);
      dims.erase(dims.begin() + k + 1);
      log_ += " merge";
    } else if (how == 1 && rank >= 1) {
      int k = pick(rank);
      std::vector<int64_t> factors;
      for (int64_t f = 1; f <= dims[k]; ++f)
        if (dims[k] % f == 0) factors.push_back(f);
      int64_t f = factors[pick(static_cast<int>(factors.size()))];
      sizes.insert(sizes.begin() + k + 1, some_size(f));
      dims.insert(dims.begin() + k + 1, f);
      dims[k] /= f;
      // As the importer resolves a -1, or an unrelated symbol.
      sizes[k] = pick(2) ? floordiv(sizes[k], sizes[k + 1]) : some_size(dims[k]);
      log_ += " split";
    } else {
      int64_t n = checked_numel(dims);
      dims.clear();
      sizes.clear();
      for (int64_t f : {2, 3, 4})
        if (n % f == 0 && pick(2)) {
          dims.push_back(f);
          sizes.push_back(some_size(f));
          n /= f;
        }
      dims.push_back(n);
      sizes.push_back(some_size(n));
      log_ += " anew";
    }
    box_ = reshape(test_.p, box_, sizes);
  }

  ViewTest& test_;
  std::mt19937 random_;
  bool symbolic_;
  int count_ = 0;
  TensorBox box_;
  Shown shown_;
  std::string log_;
};

TEST_F(ViewTest, RandomChainsOfStaticShapes) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Chain(*this, seed, false).run();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(p.checks.empty());
}

TEST_F(ViewTest, RandomChainsOfSymbolicShapes) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Program fresh;
    fresh.context = std::make_shared<Context>();
    p = std::move(fresh);
    values.clear();
    Chain(*this, seed, true).run();
    if (HasFailure()) return;
  }
}

} // namespace
} // namespace tbx::ir
