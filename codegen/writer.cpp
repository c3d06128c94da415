// Scopes, variables and buffers of the Writer.
#include "codegen/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/error.h"

namespace tbx::codegen {

using ir::Expr;
using ir::KernelProgram;
using ir::Op;
using ir::Phase;
using ir::SymInt;
using ir::SymNode;

const char* tag_of(DType t) {
  switch (t) {
  case DType::boolean: return "bool";
  case DType::f32: return "f32";
  case DType::f64: return "f64";
  case DType::i8:
  case DType::i4:
  case DType::i2: return "i8";
  case DType::u8:
  case DType::u4:
  case DType::u2: return "u8";
  case DType::i16: return "i16";
  case DType::u16: return "u16";
  case DType::i32: return "i32";
  case DType::u32: return "u32";
  case DType::i64: return "i64";
  case DType::u64: return "u64";
  case DType::f16: return "f16";
  case DType::bf16: return "bf16";
  case DType::f8e4m3fn: return "f8e4m3fn";
  case DType::f8e4m3fnuz: return "f8e4m3fnuz";
  case DType::f8e5m2: return "f8e5m2";
  case DType::f8e5m2fnuz: return "f8e5m2fnuz";
  case DType::f8e8m0: return "f8e8m0";
  case DType::f4e2m1: return "f4e2m1";
  case DType::f6e2m3: return "f6e2m3";
  case DType::f6e3m2: return "f6e3m2";
  default: throw_unsupported("no generated code for elements of type {}", name_of(t));
  }
}

const char* storage_of(DType t) {
  if (t == DType::f16 || t == DType::bf16) return "u16";
  return t == DType::boolean || is_low_precision_float(t) ? "u8" : tag_of(t);
}

const char* compute_of(DType t) { return tag_of(compute_type(t)); }

Writer::Writer(const KernelProgram& kernel, int lanes) : kernel_(kernel), lanes_(lanes) {
  size_t n = kernel.buffers.size();
  buffers_.resize(n);
  held_.resize(n);
  written_.resize(n);
  written_in_phase_.resize(n);
  read_.resize(n);
  for (const Phase& phase : kernel.phases)
    for (const ir::Stmt& s : phase.stmts) {
      if (s.buffer >= 0) written_[s.buffer] = true;
      auto note_loads = [&](Expr root) {
        ir::visit(root, [&](Expr e) {
          if (e->op == Op::load) read_[e->buffer] = true;
        });
      };
      note_loads(s.value);
      if (s.mask) note_loads(s.mask);
      ir::visit(s.address, [&](const SymNode& node) {
        if (node.kind == ir::SymKind::indirect) note_loads(node.value);
      });
    }
  // A write to one of several buffers in the same memory is a write to all.
  bool aliased_write = false, aliased_read = false;
  for (size_t b = 0; b < n; ++b)
    if (kernel.buffers[b].may_alias) aliased_write |= written_[b], aliased_read |= read_[b];
  for (size_t b = 0; b < n; ++b)
    if (kernel.buffers[b].may_alias) written_[b] = aliased_write, read_[b] = aliased_read;
  scopes_.emplace_back();
}

std::string Writer::fresh(const char* prefix) {
  // Types of the prelude are a letter and a number, too.
  static const std::set<std::string, std::less<>> types{"i8",  "u8",  "i16", "u16", "i32",
                                                        "u32", "i64", "u64", "f32", "f64"};
  std::string name;
  do name = prefix + std::to_string(counter_++);
  while (types.contains(name));
  return name;
}

int Writer::open(std::string header, bool guard) {
  Scope s;
  s.header = std::move(header);
  s.guard = guard;
  scopes_.push_back(std::move(s));
  return current();
}

void Writer::close() {
  Scope s = std::move(scopes_.back());
  scopes_.pop_back();
  std::string indent(2 * scopes_.size(), ' ');
  scopes_.back().text += indent + s.header + (s.header.empty() ? "{\n" : " {\n") + s.text + indent + "}\n";
}

std::string Writer::take() {
  std::string text = std::move(scopes_.back().text);
  scopes_.pop_back();
  return text;
}

void Writer::line_in(int scope, const std::string& text) {
  scopes_[scope].text += std::string(2 * (static_cast<size_t>(scope) + 1), ' ') + text + "\n";
}

Value Writer::define(int scope, const std::string& type, const std::string& text, bool vector) {
  std::string name = fresh("x");
  line_in(scope, fmt::format("const {} {} = {};", type, name, text));
  return {name, scope, vector};
}

void Writer::bind(SymInt variable, std::string name, int scope) {
  variables_[variable.node()] = {std::move(name), scope};
}

void Writer::unbind(SymInt variable) { variables_.erase(variable.node()); }

void Writer::set_lanes(LaneAnalysis* analysis, std::string live) {
  analysis_ = analysis;
  live_ = std::move(live);
}

void Writer::enter_phase(const Phase* phase) {
  phase_ = phase;
  bounds_.clear();
  fits_.clear();
  std::fill(written_in_phase_.begin(), written_in_phase_.end(), false);
  bool aliased = false;
  for (const ir::Stmt& s : phase->stmts)
    if (s.buffer >= 0) {
      written_in_phase_[s.buffer] = true;
      aliased |= kernel_.buffers[s.buffer].may_alias;
    }
  for (size_t b = 0; aliased && b < buffers_.size(); ++b)
    if (kernel_.buffers[b].may_alias) written_in_phase_[b] = true;
}

ir::Extents Writer::extents() const { return {kernel_.outer, phase_ ? phase_->inner : ir::SymInts{}}; }

int Writer::hazard_scope(int scope) const {
  for (int s = current(); s > scope; --s)
    if (scopes_[s].guard) return s;
  return scope;
}

int Writer::load_scope(int buffer, int scope) const {
  scope = hazard_scope(scope);
  if (written_in_phase_[buffer]) return current();
  return written_[buffer] ? std::max(scope, point_scope) : scope;
}

void Writer::forget_loads(int buffer) {
  if (!read_[buffer]) return;
  const bool aliased = kernel_.buffers[buffer].may_alias;
  auto is_stale = [&](Expr e) {
    return e->op == Op::load && (e->buffer == buffer || (aliased && kernel_.buffers[e->buffer].may_alias));
  };
  for (int s = point_scope; s <= current(); ++s) {
    auto& values = scopes_[s].values;
    if (std::any_of(values.begin(), values.end(), [&](auto& known) { return is_stale(known.first); }))
      for (int t = s; t <= current(); ++t) scopes_[t].values.clear();
  }
}

bool Writer::is_row_vector(int buffer) const {
  return vertical && kernel_.buffers[buffer].access == ir::Access::row_local;
}

std::string Writer::buffer(int b) {
  if (!buffers_[b].empty()) return buffers_[b];
  const ir::KernelBuffer& k = kernel_.buffers[b];
  std::string name = fmt::format("b{}", b);
  const char* type = storage_of(k.dtype);
  if (k.access == ir::Access::row_local) {
    int64_t copies = vertical ? lanes_ : 1;
    SymInt bytes = ir::ceildiv(k.numel * SymInt(size_of(k.dtype) * copies), 64) * SymInt(64);
    std::string offset = index_text(scratch_bytes);
    if (rows_per_block) offset += fmt::format(" * team::count() + {} * team::number()", index_text(bytes));
    line_in(0, fmt::format("{0}* const {1} = ({0}*)((char*)scratch + {2});", type, name, offset));
    scratch_bytes += bytes;
  } else if (!by_value) {
    std::string pointer = pointer_type(b);
    line_in(0, fmt::format("{0} const {1} = ({2})buffers[{3}];", pointer, name,
                           pointer.substr(0, pointer.find('*') + 1), b));
  }
  return buffers_[b] = name;
}

std::string Writer::pointer_type(int b, bool changing) const {
  const ir::KernelBuffer& k = kernel_.buffers[b];
  const bool written = written_[b] && k.access != ir::Access::read;
  return fmt::format("{}{}*{}", written ? "" : "const ", storage_of(k.dtype),
                     k.may_alias || changing ? "" : " __restrict");
}

std::string Writer::finish() {
  TBX_INTERNAL(scopes_.size() == 1);
  return scopes_[0].text;
}

} // namespace tbx::codegen
