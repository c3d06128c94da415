// Nodes are written in the order in which they were made, which puts operands first and keeps the order of
// equal rank that canonical forms depend on. They are interned as they are: nothing is simplified anew.
#include "ir/kernel_file.h"

#include <algorithm>
#include <unordered_set>

#include "base/archive.h"
#include "ir/context_impl.h"

namespace tbx::archive {

template <> struct Last<ir::SymKind> { static constexpr auto value = ir::SymKind::max; };
template <> struct Last<ir::Op> { static constexpr auto value = ir::Op::where; };
template <> struct Last<ir::Access> { static constexpr auto value = ir::Access::row_local; };
template <> struct Last<ir::StmtKind> { static constexpr auto value = ir::StmtKind::let; };
template <> struct Last<ir::StoreMode> { static constexpr auto value = ir::StoreMode::min; };
template <> struct Last<ir::ReduceOp> { static constexpr auto value = ir::ReduceOp::argmin_last; };

} // namespace tbx::archive

namespace tbx::ir {
namespace {

constexpr int32_t kNone = -1;

/// A SymInt of a file: a number, or a node by its place.
struct FileInt {
  int32_t node = kNone;
  int64_t value = 0;
};
struct FileSym {
  SymKind kind{};
  bool unbacked = false;
  int number = 0, origin = -1;
  int64_t lo = 0, hi = 0, constant = 0;
  std::string name;
  int32_t value = kNone; ///< Expr
  std::vector<std::pair<int64_t, int32_t>> terms;
  std::vector<FileInt> args;
};
struct FileExpr {
  Op op{};
  DType dtype{}, format{};
  std::vector<int32_t> args;
  uint64_t bits = 0;
  int32_t buffer = -1;
  int number = 0;
  std::vector<FileInt> indices;
};
struct FileStmt {
  StmtKind kind{};
  int32_t value = kNone, mask = kNone;
  int buffer = -1;
  FileInt address;
  StoreMode mode{};
  ReduceOp reduce{};
  bool exclusive = false;
  int number = -1;
};
struct FilePhase {
  std::vector<FileInt> inner;
  std::vector<FileStmt> stmts;
};
struct FileBuffer {
  BufferId id = -1;
  DType dtype{};
  Access access{};
  FileInt numel;
  bool may_alias = false;
  int64_t offset = 0;
};
struct FileKernel {
  std::string name;
  std::vector<FileInt> outer;
  std::vector<FilePhase> phases;
  std::vector<FileBuffer> buffers;
  int num_accumulators = 0, num_locals = 0;
  bool sequential = false;
};
struct File {
  std::vector<std::variant<FileSym, FileExpr>> nodes;
  std::vector<FileKernel> kernels;
};

template <class A> void fields(A& a, FileInt& v) { a.template all<FileInt>(v.node, v.value); }
template <class A> void fields(A& a, FileSym& v) {
  a.template all<FileSym>(v.kind, v.unbacked, v.number, v.origin, v.lo, v.hi, v.constant, v.name, v.value,
                          v.terms, v.args);
}
template <class A> void fields(A& a, FileExpr& v) {
  a.template all<FileExpr>(v.op, v.dtype, v.format, v.args, v.bits, v.buffer, v.number, v.indices);
}
template <class A> void fields(A& a, FileStmt& v) {
  a.template all<FileStmt>(v.kind, v.value, v.mask, v.buffer, v.address, v.mode, v.reduce, v.exclusive,
                           v.number);
}
template <class A> void fields(A& a, FilePhase& v) { a.template all<FilePhase>(v.inner, v.stmts); }
template <class A> void fields(A& a, FileBuffer& v) {
  a.template all<FileBuffer>(v.id, v.dtype, v.access, v.numel, v.may_alias, v.offset);
}
template <class A> void fields(A& a, FileKernel& v) {
  a.template all<FileKernel>(v.name, v.outer, v.phases, v.buffers, v.num_accumulators, v.num_locals,
                             v.sequential);
}
template <class A> void fields(A& a, File& v) { a.template all<File>(v.nodes, v.kernels); }

class Packer {
public:
  explicit Packer(const std::vector<NamedKernel>& kernels) {
    for (const auto& [name, k] : kernels) find(k);
    if (!kernels.empty()) // all of them: they are numbered, and plans count on the numbers
      for (const SymNode* s : kernels[0].second.context->symbols()) reach(SymInt(s));
    write_nodes();
    for (const auto& [name, k] : kernels) file_.kernels.push_back(pack(name, k));
  }

  File file_;

private:
  // --- which nodes are needed

  void find(const KernelProgram& k) {
    for (SymInt e : k.outer) reach(e);
    for (const KernelBuffer& b : k.buffers) reach(b.numel);
    for (const Phase& phase : k.phases) {
      for (SymInt e : phase.inner) reach(e);
      for (const Stmt& s : phase.stmts) {
        reach(s.address);
        reach(s.value);
        reach(s.mask);
      }
    }
  }

  void reach(SymInt e) {
    if (!e.is_constant() && syms_.insert(e.node()).second) open_.emplace_back(e.node(), nullptr);
    close();
  }
  void reach(Expr e) {
    if (e && exprs_.insert(e).second) open_.emplace_back(nullptr, e);
    close();
  }

  void close() {
    while (!open_.empty()) {
      auto [s, e] = open_.back();
      open_.pop_back();
      auto add_sym = [&](const SymNode* n) {
        if (n && syms_.insert(n).second) open_.emplace_back(n, nullptr);
      };
      auto add_expr = [&](Expr n) {
        if (n && exprs_.insert(n).second) open_.emplace_back(nullptr, n);
      };
      if (s) {
        for (const auto& [coefficient, term] : s->terms) add_sym(term);
        for (SymInt a : s->args) add_sym(a.node());
        add_expr(s->value);
      } else {
        for (int i = 0; i < e->num_args; ++i) add_expr(e->args[i]);
        for (SymInt i : e->indices) add_sym(i.node());
      }
    }
  }

  // --- in the order in which they were made

  template <class Set> static auto by_id(const Set& set) {
    std::vector<typename Set::value_type> all(set.begin(), set.end());
    std::sort(all.begin(), all.end(), [](auto a, auto b) { return a->id < b->id; });
    return all;
  }

  void write_nodes() {
    const auto syms = by_id(syms_);
    const auto exprs = by_id(exprs_);
    size_t s = 0, e = 0;
    auto known_sym = [&](SymInt i) { return i.is_constant() || sym_at_.contains(i.node()); };
    auto is_ready = [&](const SymNode& n) {
      return (!n.value || expr_at_.contains(n.value)) &&
             std::all_of(n.args.begin(), n.args.end(), known_sym) &&
             std::all_of(n.terms.begin(), n.terms.end(),
                         [&](const auto& term) { return sym_at_.contains(term.second); });
    };
    while (s < syms.size() || e < exprs.size()) {
      const auto place = static_cast<int32_t>(file_.nodes.size());
      if (s < syms.size() && is_ready(*syms[s])) {
        file_.nodes.emplace_back(pack(*syms[s]));
        sym_at_.emplace(syms[s++], place);
      } else {
        TBX_INTERNAL(e < exprs.size());
        file_.nodes.emplace_back(pack(*exprs[e]));
        expr_at_.emplace(exprs[e++], place);
      }
    }
  }

  FileInt pack(SymInt e) const {
    if (e.is_constant()) return {kNone, e.constant()};
    return {sym_at_.at(e.node()), 0};
  }
  std::vector<FileInt> pack(const SymInts& es) const {
    std::vector<FileInt> out;
    for (SymInt e : es) out.push_back(pack(e));
    return out;
  }
  int32_t pack(Expr e) const { return e ? expr_at_.at(e) : kNone; }

  FileSym pack(const SymNode& n) const {
    FileSym f{n.kind,     n.unbacked, n.number,      n.origin, n.lo,        n.hi,
              n.constant, n.name,     pack(n.value), {},       pack(n.args)};
    for (const auto& [coefficient, term] : n.terms) f.terms.emplace_back(coefficient, sym_at_.at(term));
    return f;
  }
  FileExpr pack(const ExprNode& n) const {
    FileExpr f{n.op, n.dtype, n.format, {}, n.bits, n.buffer, n.number, pack(n.indices)};
    for (int i = 0; i < n.num_args; ++i) f.args.push_back(pack(n.args[i]));
    return f;
  }

  FileKernel pack(const std::string& name, const KernelProgram& k) const {
    FileKernel f{name, pack(k.outer), {}, {}, k.num_accumulators, k.num_locals, k.sequential};
    for (const KernelBuffer& b : k.buffers)
      f.buffers.push_back({b.id, b.dtype, b.access, pack(b.numel), b.may_alias, b.offset});
    for (const Phase& phase : k.phases) {
      FilePhase& p = f.phases.emplace_back(FilePhase{pack(phase.inner), {}});
      for (const Stmt& s : phase.stmts)
        p.stmts.push_back({s.kind, pack(s.value), pack(s.mask), s.buffer, pack(s.address), s.mode, s.reduce,
                           s.exclusive, s.number});
    }
    return f;
  }

  std::unordered_set<const SymNode*> syms_;
  std::unordered_set<Expr> exprs_;
  std::vector<std::pair<const SymNode*, Expr>> open_;
  std::unordered_map<const SymNode*, int32_t> sym_at_;
  std::unordered_map<Expr, int32_t> expr_at_;
};

class Unpacker {
public:
  explicit Unpacker(const File& file) : context_(std::make_shared<Context>()) {
    for (const auto& node : file.nodes) {
      syms_.push_back(nullptr);
      exprs_.push_back(nullptr);
      if (const auto* s = std::get_if<FileSym>(&node))
        syms_.back() = unpack(*s);
      else
        exprs_.back() = unpack(std::get<FileExpr>(node));
    }
  }

  KernelProgram unpack(const FileKernel& f) const {
    KernelProgram k;
    k.context = context_;
    k.outer = unpack(f.outer);
    k.num_accumulators = count(f, f.num_accumulators, false);
    k.num_locals = count(f, f.num_locals, true);
    k.sequential = f.sequential;
    for (const FileBuffer& b : f.buffers)
      k.buffers.push_back({b.id, b.dtype, b.access, unpack(b.numel), b.may_alias, b.offset});
    for (const FilePhase& phase : f.phases) {
      Phase& p = k.phases.emplace_back();
      p.inner = unpack(phase.inner);
      for (const FileStmt& s : phase.stmts) {
        Stmt& to = p.stmts.emplace_back();
        to.kind = s.kind;
        to.value = expr(s.value);
        to.mask = s.mask == kNone ? nullptr : expr(s.mask);
        to.buffer = s.buffer;
        to.address = unpack(s.address);
        to.mode = s.mode;
        to.reduce = s.reduce;
        to.exclusive = s.exclusive;
        to.number = s.number;
        const bool has_buffer = s.kind == StmtKind::store || s.kind == StmtKind::scan;
        if (has_buffer && (s.buffer < 0 || s.buffer >= static_cast<int>(f.buffers.size())))
          archive::damaged("a kernel stores into a buffer that it has not");
        const int numbers = s.kind == StmtKind::let ? f.num_locals : f.num_accumulators;
        if (s.kind != StmtKind::store && (s.number < 0 || s.number >= numbers))
          archive::damaged("a kernel numbers a value that it has not");
      }
    }
    try {
      verify(k);
    } catch (const Error& e) {
      archive::damaged(e.message().c_str());
    }
    return k;
  }

private:
  /// `n` values, each of which a statement makes: what they take is not for the file to say.
  static int count(const FileKernel& f, int n, bool locals) {
    int64_t made = 0;
    for (const FilePhase& phase : f.phases)
      for (const FileStmt& s : phase.stmts)
        made += s.kind != StmtKind::store && (s.kind == StmtKind::let) == locals;
    if (n < 0 || n > made) archive::damaged("a kernel has more values than its statements make");
    return n;
  }

  const SymNode* sym(int32_t at) const {
    if (at < 0 || static_cast<size_t>(at) >= syms_.size() || !syms_[static_cast<size_t>(at)])
      archive::damaged("a size of a kernel is missing");
    return syms_[static_cast<size_t>(at)];
  }
  Expr expr(int32_t at) const {
    if (at < 0 || static_cast<size_t>(at) >= exprs_.size() || !exprs_[static_cast<size_t>(at)])
      archive::damaged("a value of a kernel is missing");
    return exprs_[static_cast<size_t>(at)];
  }
  SymInt unpack(FileInt i) const { return i.node == kNone ? SymInt(i.value) : SymInt(sym(i.node)); }
  SymInts unpack(const std::vector<FileInt>& es) const {
    SymInts out;
    for (FileInt e : es) out.push_back(unpack(e));
    return out;
  }

  const SymNode* unpack(const FileSym& f) {
    if (f.kind == SymKind::symbol) {
      if (f.number != static_cast<int>(context_->symbols().size()) || f.lo > f.hi)
        archive::damaged("a symbol is out of order");
      const SymNode* s = context_->symbol(f.name, f.lo, f.hi).node();
      if (s->number != f.number) archive::damaged("a symbol is there twice");
      if (f.unbacked) context_->impl().symbol_by_name.at(f.name)->unbacked = true;
      return s;
    }
    if (f.kind == SymKind::var || f.kind == SymKind::rvar) {
      if (f.number < 0 || f.number > 64) archive::damaged("a kernel has too many loops");
      return (f.kind == SymKind::var ? context_->var(f.number) : context_->rvar(f.number)).node();
    }
    SymNode n{};
    n.kind = f.kind;
    n.origin = f.origin;
    n.constant = f.constant;
    if (f.value != kNone) n.value = expr(f.value);
    for (const auto& [coefficient, term] : f.terms) n.terms.emplace_back(coefficient, sym(term));
    n.args = unpack(f.args);
    const bool two = n.kind == SymKind::floordiv || n.kind == SymKind::mod || n.kind == SymKind::min ||
                     n.kind == SymKind::max;
    const bool sound = n.kind == SymKind::add        ? n.args.empty() && !n.terms.empty()
                       : n.kind == SymKind::mul      ? n.args.size() >= 2 && n.terms.empty()
                       : n.kind == SymKind::indirect ? n.args.size() == 1 && n.value
                                                     : two && n.args.size() == 2;
    if (!sound || (n.value && (n.kind != SymKind::indirect || n.value->dtype != DType::i64)))
      archive::damaged("a size of a kernel has odd operands");
    return context_->impl().intern(std::move(n));
  }

  Expr unpack(const FileExpr& f) {
    ExprNode n{};
    n.op = f.op;
    n.dtype = f.dtype;
    n.format = f.format;
    const size_t least = f.op == Op::where ? 3 : is_binary(f.op) ? 2 : is_unary(f.op) ? 1 : 0;
    const size_t most = f.op == Op::load ? 1 : least;
    const bool indexed = f.op == Op::load || f.op == Op::index;
    const bool numbered = f.op == Op::accumulator || f.op == Op::local;
    if (f.args.size() < least || f.args.size() > most || f.indices.size() != (indexed ? 1u : 0u) ||
        (numbered && f.number < 0))
      archive::damaged("a value of a kernel has odd operands");
    n.num_args = static_cast<int>(f.args.size());
    for (size_t i = 0; i < f.args.size(); ++i) n.args[i] = expr(f.args[i]);
    n.bits = f.bits;
    n.buffer = f.buffer;
    n.number = f.number;
    n.indices = unpack(f.indices);
    return context_->impl().intern(std::move(n));
  }

  std::shared_ptr<Context> context_;
  std::vector<const SymNode*> syms_;
  std::vector<Expr> exprs_;
};

} // namespace

std::string to_bytes(const std::vector<NamedKernel>& kernels) {
  for (const auto& [name, k] : kernels) TBX_INTERNAL(k.context == kernels[0].second.context);
  TensorPool none;
  return archive::write(Packer(kernels).file_, none);
}

std::vector<NamedKernel> kernels_from_bytes(std::span<const std::byte> bytes) {
  const auto file = archive::read<File>(bytes, {});
  Unpacker unpacker(file);
  std::vector<NamedKernel> kernels;
  for (const FileKernel& f : file.kernels) kernels.emplace_back(f.name, unpacker.unpack(f));
  return kernels;
}

} // namespace tbx::ir
