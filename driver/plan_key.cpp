#include "driver/plan_key.h"

#include <cpuid.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/archive.h"
#include "base/caches.h"
#include "codegen/build_module.h"
#include "device/device.h"
#include "driver/compile.h"
#include "driver/target.h"
#include "extern_kernels/catalogue.h"

namespace tbx::archive {

template <> struct Last<Isa> { static constexpr auto value = Isa::avx512; };

template <class A> void fields(A& a, Gpu& v) {
  a.template all<Gpu>(v.threads, v.block_threads, v.registers, v.instructions, v.warp_instructions,
                      v.l2_bytes, v.shared_bytes, v.crowded_bytes, v.channels, v.part_of_column,
                      v.part_of_row, v.long_scan_of_row, v.long_scan_of_column, v.usual_threads,
                      v.tile_threads, v.most_lanes, v.reduce_bytes, v.flush, v.short_row, v.short_column,
                      v.long_column, v.long_row, v.short_code, v.vectors_of_thread);
}
template <class A> void fields(A& a, Target& v) {
  a.template all<Target>(v.isa, v.library_isa, v.threads, v.l1_bytes, v.l2_bytes, v.cuda, v.gpu, v.byte_group,
                         v.bf16_products, v.f16_products, v.wide_multipliers, v.bf16_tiles);
}

/// Left out are the functions, what a run alone is told (seed), where plans and kernels lie, and `tiered`:
/// with a plan that is kept no compiler is waited for.
template <class A> void fields(A& a, CompileOptions& v) {
  static_assert(kArity<CompileOptions> == 40, "decide whether a plan depends on the new option");
  a(v.threads, v.compile, v.reference, v.device, v.isa, v.fuse, v.fuse_extern, v.disabled_passes,
    v.operator_libraries, v.external_data_dir, v.dims, v.overridable, v.precision, v.state, v.state_capacity,
    v.state_limit, v.all_dims_dynamic, v.every_value, v.untrusted, v.max_memory, v.time_limit_ms,
    v.load_memory, v.load_time_limit_ms, v.max_model_bytes, v.max_nodes, v.max_nesting, v.max_tensors,
    v.max_tensor_bytes, v.max_dense_bytes, v.compile_time_limit_ms, v.compile_memory, v.strict_links,
    v.private_threads);
}

} // namespace tbx::archive

namespace tbx::driver {
namespace {

/// Parts of a note end at a multiple of four bytes.
size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

/// Note of an object file's build, as hexadecimal digits; empty: it has none.
std::string build_id_of(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    while (end - at >= static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const id = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID &&
          std::string_view(name, note.n_namesz) == std::string_view("GNU\0", 4)) {
        std::string digits;
        for (size_t k = 0; k < note.n_descsz; ++k)
          digits += fmt::format("{:02x}", static_cast<uint8_t>(id[k]));
        return digits;
      }
      at = id + padded(note.n_descsz);
    }
  }
  return {};
}

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& s = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + s.p_vaddr;
    if (s.p_type == PT_LOAD && address >= begin && address - begin < s.p_memsz) return true;
  }
  return false;
}

/// The model, the steps and the bits of its features that say what a CPU runs; not which of several it is.
std::string cpu_identity() {
  std::string text;
#if defined(__x86_64__)
  struct Leaf {
    unsigned leaf, sub;
    std::array<unsigned, 4> mask;
  };
  constexpr unsigned kAll = ~0U, kNoApic = 0x0000ffff;
  for (const Leaf& l : {Leaf{0, 0, {0, kAll, kAll, kAll}}, Leaf{1, 0, {kAll, kNoApic, kAll, kAll}},
                        Leaf{7, 0, {kAll, kAll, kAll, kAll}}, Leaf{7, 1, {kAll, kAll, kAll, kAll}},
                        Leaf{0x80000001, 0, {0, 0, kAll, kAll}}}) {
    std::array<unsigned, 4> r{};
    if (!__get_cpuid_count(l.leaf, l.sub, r.data(), &r[1], &r[2], &r[3])) continue;
    for (size_t i = 0; i < r.size(); ++i) text += fmt::format("{:x},", r[i] & l.mask[i]);
  }
#endif
  return text;
}

/// Variables that tensorbox and its libraries read, but those that say where plans and kernels lie and who
/// compiles them.
std::string environment() {
  constexpr std::string_view kLeftOut[] = {"TBX_CACHE_DIR", "TBX_CACHE_LIMIT", "TBX_CACHE_PLANS", "TBX_CXX"};
  std::vector<std::string> all;
  for (char** v = environ; v && *v; ++v) {
    const std::string_view text = *v, name = text.substr(0, text.find('='));
    const bool read = name.starts_with("TBX_") || name.starts_with("ONEDNN_") || name.starts_with("DNNL_");
    if (read && std::find(std::begin(kLeftOut), std::end(kLeftOut), name) == std::end(kLeftOut))
      all.emplace_back(text);
  }
  std::sort(all.begin(), all.end());
  return fmt::format("{}", fmt::join(all, "\n"));
}

/// All that is known of a device.
std::string identity_of(const device::Properties& p) {
  static_assert(kArity<device::Properties> == 8, "a plan may depend on the new member");
  return fmt::format("{} {} {} {} {} {} {} {}\n", p.name, p.architecture, p.multiprocessors, p.memory_bytes,
                     p.l2_bytes, p.shared_bytes_block, p.number, p.starts_early);
}

} // namespace

static std::string find_build_identity() {
  struct Search {
    uintptr_t address;
    std::string id;
  } search{reinterpret_cast<uintptr_t>(&build_identity), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* to) {
        auto& s = *static_cast<Search*>(to);
        if (!holds(*object, s.address)) return 0;
        s.id = build_id_of(*object);
        return 1;
      },
      &search);
  return search.id;
}

const std::string& build_identity() {
  static const std::string identity = find_build_identity();
  return identity;
}

std::string plan_surroundings(const CompileOptions& options) {
  static const std::string cpu = cpu_identity(); // a virtual machine takes its time to say so
  TensorPool none;
  std::string text = fmt::format("tensorbox {} {}\n{}\n{}\n{}\n{}\n", version(), build_identity(),
                                 extern_kernels::library_identity(), cpu, environment(),
                                 codegen::units_identity(chosen_isa(options)));
  const Target target = target_of(options);
  if (const std::shared_ptr<device::Device> device = device_of(options))
    text += identity_of(device->properties());
  const Caches caches = host_caches(); // library kernels are asked for work that they cut by these
  text += fmt::format("{} {} {}\n", caches.l1_bytes, caches.l2_bytes, caches.share_bytes);
  return text + archive::write(target, none) + archive::write(options, none);
}

} // namespace tbx::driver
