#include "fusion/write_in_place.h"

#include <algorithm>

namespace tbx::fusion {

using namespace ir;

namespace {

class InPlaceKernels {
public:
  InPlaceKernels(Program& program, const Target& target, const Dependencies& deps, std::vector<Group>& groups)
      : program_(program), lanes_(target.vector_bytes() / 4), deps_(deps), groups_(groups),
        last_use_(program.buffers.size(), 0), has_parts_(program.buffers.size(), false),
        taken_over_(program.buffers.size(), false) {
    for (size_t g = 0; g < groups.size(); ++g)
      for (const auto* list : {&groups[g].reads, &groups[g].writes})
        for (BufferId b : *list) last_use_[b] = g;
    for (const Buffer& b : program.buffers)
      for (BufferId parent : {b.slice_of, b.overwrites})
        if (parent >= 0) has_parts_[parent] = true;
  }

  void run() {
    for (size_t g = 0; g < groups_.size(); ++g)
      if (auto* kernel = std::get_if<KernelProgram>(&groups_[g].what))
        if (!kernel->sequential && is_simple(*kernel)) try_kernel(g, *kernel);
  }

private:
  /// Nothing but stores, sums and values, at addresses that no data decides.
  static bool is_simple(const KernelProgram& kernel) {
    bool good = true;
    auto check = [&](Expr e) {
      for (SymInt i : e->indices) good &= !has_indirect(i);
    };
    for (const Phase& phase : kernel.phases)
      for (const Stmt& s : phase.stmts) {
        good &= s.kind != StmtKind::scan && !has_indirect(s.address);
        visit(operands_of(s), check);
      }
    return good;
  }

  /// A short loop over neighbouring elements ends with a vector that overlaps the one before. It cannot where
  /// the result lies over what is read, and would take the elements that are left one by one.
  bool has_whole_vectors(const KernelProgram& kernel, const Phase& phase, SymInt address) const {
    constexpr int64_t kLong = 64; // vectors, beside which the elements left over count for nothing
    bool whole = true;
    auto check = [&](const SymInts& loops, auto&& variable) {
      for (size_t k = 0; k < loops.size(); ++k) {
        const auto n = loops[k].as_constant();
        const auto along = affine_in(address, variable(static_cast<int>(k)).node());
        if (!n || (along && !along->coefficient.is(1))) continue;
        whole &= *n < lanes_ || *n % lanes_ == 0 || *n >= kLong * lanes_;
      }
    };
    check(kernel.outer, [&](int k) { return kernel.context->var(k); });
    check(phase.inner, [&](int k) { return kernel.context->rvar(k); });
    return whole;
  }

  void try_kernel(size_t group, KernelProgram& kernel) {
    for (size_t to = 0; to < kernel.buffers.size(); ++to) {
      if (kernel.buffers[to].access != Access::write || !is_plain(kernel.buffers[to])) continue;
      Phase* phase = nullptr;
      const auto store = only_store(kernel, static_cast<int>(to), phase);
      if (!phase || !has_whole_vectors(kernel, *phase, store->address)) continue;
      for (size_t from = 0; from < kernel.buffers.size(); ++from) {
        const KernelBuffer &old = kernel.buffers[from], &result = kernel.buffers[to];
        if (old.access != Access::read || !is_plain(old) || last_use_[old.id] != group) continue;
        if (old.dtype != result.dtype || !provably_equal(old.numel, result.numel)) continue;
        if (!reads_only(kernel, static_cast<int>(from), *phase, store->address)) continue;
        take_over(groups_[group], kernel, from, to);
        std::rotate(store, store + 1, phase->stmts.end()); // behind all that reads the element
        return;                                            // buffers that may alias are one set
      }
    }
  }

  /// Memory of its own that the run may reuse, of a size known before the run, used as a whole.
  bool is_plain(const KernelBuffer& kernel_buffer) const {
    if (kernel_buffer.id < 0 || kernel_buffer.offset != 0) return false;
    const Buffer& b = program_.at(kernel_buffer.id);
    return b.kind == BufferKind::computed && b.slice_of < 0 && (b.overwrites < 0 || taken_over_[b.id]) &&
           !has_parts_[b.id] && !deps_.is_output[b.id] && deps_.writers[b.id].size() == 1 &&
           provably_equal(kernel_buffer.numel, product(b.sizes)) &&
           std::none_of(b.sizes.begin(), b.sizes.end(), [](SymInt s) { return has_unbacked(s); });
  }

  /// The statement that stores to the buffer, and its phase: each of its points stores one element.
  std::vector<Stmt>::iterator only_store(KernelProgram& kernel, int buffer, Phase*& in) const {
    std::vector<Stmt>::iterator found;
    int stores = 0;
    for (Phase& phase : kernel.phases)
      for (auto s = phase.stmts.begin(); s != phase.stmts.end(); ++s)
        if (s->buffer == buffer) {
          stores += s->kind == StmtKind::store && s->mode == StoreMode::set && !s->mask ? 1 : 2;
          found = s;
          in = &phase;
        }
    if (stores != 1 ||
        !provably_equal(product(kernel.outer) * product(in->inner), kernel.buffers[buffer].numel))
      in = nullptr;
    return found;
  }

  /// All loads from the buffer are in this phase, from this address.
  static bool reads_only(const KernelProgram& kernel, int buffer, const Phase& in, SymInt address) {
    bool good = true;
    for (const Phase& phase : kernel.phases) {
      auto check = [&](Expr e) {
        if (e->op == Op::load && e->buffer == buffer)
          good &= &phase == &in && !e->mask() && e->indices[0] == address;
      };
      for (const Stmt& s : phase.stmts) visit(operands_of(s), check);
    }
    return good;
  }

  void take_over(Group& group, KernelProgram& kernel, size_t from, size_t to) {
    kernel.buffers[from].may_alias = kernel.buffers[to].may_alias = true;
    Buffer& result = program_.at(kernel.buffers[to].id);
    result.overwrites = kernel.buffers[from].id;
    taken_over_[result.id] = true;
    group.decisions.push_back("what it reads is not read afterwards: the result takes its memory");
  }

  Program& program_;
  const int64_t lanes_;
  const Dependencies& deps_;
  std::vector<Group>& groups_;
  std::vector<size_t> last_use_; ///< by buffer: the last group that reads or writes it
  std::vector<bool> has_parts_;  ///< other buffers were bound to it before
  std::vector<bool> taken_over_; ///< overwrites another one since
};

} // namespace

void write_in_place(Program& program, const Target& target, const Dependencies& deps,
                    std::vector<Group>& groups) {
  InPlaceKernels(program, target, deps, groups).run();
}

} // namespace tbx::fusion
