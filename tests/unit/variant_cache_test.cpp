// One compilation per kind of inputs, and nobody else waits for it.
#include "driver/variant_cache.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

namespace tbx::test {
namespace {

/// What is compiled here: a number for a number, of which the last digits do not matter until it is learnt
/// that they do.
struct Number {
  int64_t value = 0;
};
struct Needs {
  int64_t digits = 100; ///< kinds are value / digits
};
using Cache = driver::VariantCache<Number, Needs>;
using Compile = std::function<bool(int64_t)>; ///< false: the last digits must be known

lowering::Demand unknown() {
  return {lowering::Demand::Kind::shapes, Error(ErrorKind::unsupported, "the last digits must be known")};
}

std::shared_ptr<const Number> get(Cache& s, int64_t value, const Compile& compile) {
  return s.get([&](const Needs& n, const Number& made) { return made.value / n.digits == value / n.digits; },
               [&](const Needs& n) -> Cache::Request {
                 return {std::to_string(value / n.digits), [&compile, value]() -> Cache::Compiled {
                           if (!compile(value)) return unknown();
                           return std::make_shared<const Number>(Number{value});
                         }};
               },
               [](Needs& n, const lowering::Demand&) { return n.digits > 1 && (n.digits = 1, true); });
}

TEST(VariantCache, CompilesOncePerKind) {
  Cache s(8);
  int compiled = 0;
  Compile compile = [&](int64_t) { return ++compiled > 0; };
  for (int64_t v : {101, 102, 201, 103, 202}) EXPECT_EQ(get(s, v, compile)->value / 100, v / 100);
  EXPECT_EQ(compiled, 2);
  EXPECT_EQ(s.latest()->value, 201);
}

TEST(VariantCache, OthersGoOnWhileOneIsCompiled) {
  Cache s(8);
  std::promise<void> started, go_on;
  std::shared_future<void> allowed = go_on.get_future().share();
  std::atomic<int> slow_ones{0};
  Compile quick = [](int64_t) { return true; }, slow = [&](int64_t) {
    if (slow_ones++ == 0) started.set_value();
    allowed.wait();
    return true;
  };
  get(s, 100, quick);
  auto one = std::async(std::launch::async, [&] { return get(s, 201, slow)->value; });
  started.get_future().wait();
  auto same = std::async(std::launch::async, [&] { return get(s, 202, slow)->value; });
  EXPECT_EQ(get(s, 101, quick)->value, 100) << "is there already";
  EXPECT_EQ(get(s, 301, quick)->value, 301) << "is another kind";
  EXPECT_EQ(s.variants().size(), 2u);
  go_on.set_value();
  EXPECT_EQ(one.get() / 100, 2);
  EXPECT_EQ(same.get() / 100, 2);
  EXPECT_EQ(slow_ones, 1) << "the second waited for the first";
}

TEST(VariantCache, AFailureIsThatOfItsRunAlone) {
  Cache s(8);
  std::atomic<int> tries{0};
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  Compile fails = [&](int64_t v) -> bool {
    ++tries;
    throw_unsupported("no code for {}", v);
  };
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        get(s, 100 + t, fails);
      } catch (const Error& e) {
        failures += e.message() == "no code for " + std::to_string(100 + t);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(failures, 4);
  EXPECT_EQ(get(s, 100, [](int64_t) { return true; })->value, 100) << "it may work later";
}

TEST(VariantCache, WhatTwoLearnAtTheSameTimeIsLearntOnce) {
  Cache s(8);
  std::atomic<int> waiting{0};
  std::atomic<int> compiled{0};
  // Both compile without knowing, and both find out.
  Compile compile = [&](int64_t v) {
    if (++compiled <= 2) {
      ++waiting;
      while (waiting < 2) std::this_thread::yield();
      return false;
    }
    EXPECT_TRUE(v == 101 || v == 201);
    return true;
  };
  auto one = std::async(std::launch::async, [&] { return get(s, 101, compile)->value; });
  auto two = std::async(std::launch::async, [&] { return get(s, 201, compile)->value; });
  EXPECT_EQ(one.get(), 101);
  EXPECT_EQ(two.get(), 201);
  EXPECT_EQ(compiled, 4);
  EXPECT_EQ(get(s, 102, [](int64_t) { return true; })->value, 102) << "the last digits matter now";
}

TEST(VariantCache, AnErrorThatTeachesNothingGoesToTheCaller) {
  Cache s(8);
  int tries = 0;
  Compile compile = [&](int64_t) {
    ++tries;
    return false;
  };
  EXPECT_THROW(get(s, 1, compile), Error);
  EXPECT_EQ(tries, 2) << "once more with what the first time taught";
}

TEST(VariantCache, TheOneUsedLeastRecentlyGoesFirst) {
  Cache s(3);
  int compiled = 0;
  Compile compile = [&](int64_t) { return ++compiled > 0; };
  for (int64_t v : {100, 200, 300, 100, 400}) get(s, v, compile);
  EXPECT_EQ(compiled, 4);
  get(s, 100, compile);
  EXPECT_EQ(compiled, 4) << "used after 200 and 300";
  get(s, 200, compile);
  EXPECT_EQ(compiled, 5);
}

TEST(VariantCache, OneTakesThePlaceOfAnother) {
  Cache s(2);
  Compile compile = [](int64_t) { return true; };
  get(s, 100, compile);
  const auto old = get(s, 200, compile);
  const auto next = std::make_shared<const Number>(Number{201});
  s.replace(old, next);
  EXPECT_EQ(get(s, 202, compile), next);
  EXPECT_EQ(s.variants().size(), 2u);
  EXPECT_EQ(s.latest(), next) << "used as the old one was";
  s.replace(old, old);
  EXPECT_EQ(get(s, 202, compile), next) << "what is not kept any more has no place";
}

} // namespace
} // namespace tbx::test
