#include "driver/target.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/isa.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/cuda/byte_product.h"
#include "runtime/session.h"

namespace tbx::driver {
namespace {

/// The type that a precision names; undefined: none. "any" is the coarsest type that it allows.
DType type_of(const std::string& precision) {
  if (precision == "strict" || precision == "tf32") return DType::undefined;
  if (precision == "bf16" || precision == "any") return DType::bf16;
  if (precision == "f16") return DType::f16;
  throw_model_error("unknown precision '{}': expected strict, tf32, bf16, f16 or any", precision);
}

} // namespace

Isa chosen_isa(const CompileOptions& options) {
  const Isa best = host_isa();
  if (options.isa.empty()) return best;
  const std::optional<Isa> isa = isa_of_name(options.isa);
  TBX_MODEL(isa.has_value(), "unknown isa '{}': expected avx512, avx2 or sse", options.isa);
  TBX_MODEL(*isa <= best, "this CPU does not run isa '{}'; its best is '{}'", options.isa, name_of(best));
  return *isa;
}

extern_kernels::Precision chosen_precision(const CompileOptions& options) {
  type_of(options.precision); // refused where unknown
  if (options.reference) return extern_kernels::Precision::strict;
  if (options.precision == "tf32" && options.device.empty())
    throw Error(ErrorKind::model, "precision 'tf32' is a way in which GPUs multiply, and no device is given",
                "give device 'cuda' too, or another precision (docs/precision.md)");
  // On a device `any` means TF32 (extern_kernels/cuda/select.h).
  const bool any = options.precision == "any" || options.precision == "tf32";
  return any ? extern_kernels::Precision::any : extern_kernels::Precision::strict;
}

Target target_of(const CompileOptions& options) { return target_of(options, chosen_isa(options)); }

Target target_of(const CompileOptions& options, Isa isa, const device::Device* gpu) {
  Target t;
  if (!options.device.empty()) { // nothing of the host's caches and threads
    t.cuda = true;
    t.threads = 1; // a row has a block of threads: few rows are no reason to cut them
    if (gpu) t.gpu.shared_bytes = gpu->properties().shared_bytes_block;
  } else {
    t = host_target();
    t.threads = options.threads > 0 ? options.threads : runtime::default_threads();
  }
  const bool here = isa == chosen_isa(options);
  t.isa = isa;
  t.library_isa = here ? host_isa() : isa;
  t.byte_group = t.cuda ? extern_kernels::kFewestChannels
                 : here ? extern_kernels::least_byte_group()
                        : extern_kernels::least_byte_group(isa);
  t.bf16_products = t.cuda || (here && extern_kernels::has_half_products(DType::bf16));
  t.wide_multipliers &= here && isa == Isa::avx512;
  t.bf16_tiles = !t.cuda && here && extern_kernels::has_attention_tiles();
  t.f16_products = t.cuda || (here && extern_kernels::has_half_products(DType::f16));
  return t;
}

graph::PassContext pass_context(const CompileOptions& options, std::optional<Isa> isa) {
  graph::PassContext context{target_of(options, isa ? *isa : chosen_isa(options)), DType::undefined};
  // The reference computes what the model says.
  const DType type = options.reference ? DType::undefined : type_of(options.precision);
  (context.target.multiplies(type) ? context.stored : context.row_weights) = type;
  context.halves_too = options.precision == "any";
  return context;
}

std::string precision_note(const CompileOptions& options, std::optional<Isa> isa) {
  const DType type = options.reference ? DType::undefined : type_of(options.precision);
  const Target target = target_of(options, isa ? *isa : chosen_isa(options));
  if (type == DType::undefined || options.precision == "any" || target.multiplies(type)) return {};
  const bool other = isa && isa != chosen_isa(options);
  return fmt::format("precision '{}' narrows weights that a single row, or an unknown number, is multiplied "
                     "by, and nothing else: {} products of {} faster than those of float32",
                     options.precision,
                     other ? fmt::format("for isa {}, not every CPU computes", name_of(*isa))
                           : "this CPU does not compute",
                     name_of(type));
}

} // namespace tbx::driver
