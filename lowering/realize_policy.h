// Realize policy: when a loop nest goes into memory although nothing forces it to. The only place that
// decides this.
#pragma once

#include <string>

#include "ir/tensor_box.h"

namespace tbx::lowering {

/// Limits of inlining, counted on the body of a pointwise loop nest after sharing.
struct RealizeLimits {
  int shared_reads = 4;     ///< distinct loads a value with several users may repeat in each of them
  int shared_ops = 50;      ///< arithmetic operations it may repeat
  int shared_expensive = 0; ///< transcendental operations it may repeat
  int shared_byte_ops = 3; ///< operations it may repeat when its elements are bytes, which are cheap to store
  int reads = 12;          ///< distinct loads of one loop nest: more streams than a core prefetches well
  int ops = 100;           ///< operations of one loop nest: bounds compile time and repeated inlining
};

/// Why a loop nest with so many users must be in memory; empty: it stays inlined.
std::string reason_to_realize(const ir::Loops& loops, int users, const RealizeLimits& limits = {});

/// Applies the policy to a value of which `users` consumers are known.
void realize_if_shared(ir::Program& program, const ir::TensorBox& x, int users);

/// Called before `x`, of which `users` consumers are known, is added to `product`: what is in memory the
/// library adds before it stores the sum, so that each of its readers reads one tensor.
void realize_residual(ir::Program& program, const ir::TensorBox& x, const ir::TensorBox& product, int users);

/// A view of a part of a product with its bias: the product computes all of it, before each part is copied.
void realize_if_in_parts(ir::Program& program, const ir::TensorBox& x);

/// Bytes made of the result of a product go into memory: they are a quarter of it, and the product's kernel
/// can store them itself.
void realize_bytes_of_product(ir::Program& program, const ir::TensorBox& x);

/// Called before `x` is broadcast to `sizes` or read through a window: every element would be computed again
/// for each of its copies. On a CPU elements that are found by index go into memory, however cheap they are:
/// loops over the copies would take them one by one.
void realize_if_repeated(ir::Program& program, const ir::TensorBox& x, const ir::SymInts& sizes);

} // namespace tbx::lowering
