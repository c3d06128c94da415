// One body of a generating operator, and what happens to its values between two runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/value_frame.h"

namespace tbx::runtime {

/// A body that is run with inputs by position.
class Body {
public:
  /// `first`: GenerationStep::first, not the decoder. The captured values are those of the frame.
  Body(const BodyCall& call, bool first, ValueFrame& frame, size_t number);
  ~Body() { clear_inputs(frame_); }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  /// The outputs; ModelError when one is no tensor.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, const RunGuard& guard);

private:
  ValueFrame& frame_;
};

/// How many inputs the operator gives, the captured values left out.
size_t num_inputs(const BodyCall& call);
/// ModelError when the body's inputs from `at` on have not these names. `what`: "decoder", "encoder".
void check_names(const BodyCall& call, const char* what, size_t at, const std::vector<std::string>& names);
/// ModelError when input `i` is declared with another element type than int32.
void check_integers(const BodyCall& call, const char* what, size_t i);
/// ModelError when output `i` is no tensor of floats of rank `rank`, as far as that is known.
void check_floats(const BodyCall& call, const char* what, size_t i, size_t rank);

/// Rows `index` of t along `axis`; ModelError when it has other than `rows`. `name`: of the value, for the
/// error.
Tensor take_rows(const Tensor& t, size_t axis, std::span<const int32_t> index, int64_t rows,
                 const std::string& name);

Tensor integers(std::vector<int64_t> dims);

} // namespace tbx::runtime
