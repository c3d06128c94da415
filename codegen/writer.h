// Writer: the text of one generated function while it grows, as nested scopes, and the values known in each
// scope.
//
// Every value is defined in the outermost scope where all it depends on is known, so loop invariants and
// scalar work leave the loops by construction. Definitions go to the end of a scope's text; the text of an
// inner scope joins its parent when it closes, hence after everything it uses.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/byte_tables.h"
#include "codegen/emit.h"
#include "codegen/lanes.h"
#include "ir/kernel.h"

namespace tbx::codegen {

/// "f32", "bf16", ... : the name a dtype has in preludes. Storage is the C type in memory, compute the one in
/// bodies.
const char* tag_of(DType t);
const char* storage_of(DType t);
const char* compute_of(DType t);

struct Value {
  std::string text; ///< a variable or a literal
  int scope = 0;    ///< where it is known
  bool vector = false;
  bool narrow = false; ///< a vector of i64 values that all fit, held in i32 lanes
};

class Writer {
public:
  Writer(const ir::KernelProgram& kernel, int lanes);

  // --- scopes (writer.cpp)
  /// Opens a block with `header` before its brace. A guard runs its body conditionally: nothing that touches
  /// memory may leave it.
  int open(std::string header, bool guard = false);
  void close();
  /// Leaves the block without writing it: its text, for insert().
  std::string take();
  void insert(const std::string& text) { scopes_.back().text += text; }
  int current() const { return static_cast<int>(scopes_.size()) - 1; }
  void line(const std::string& text) { line_in(current(), text); }
  void line_in(int scope, const std::string& text);
  /// A name that nothing in the text has: `prefix` and a number.
  std::string fresh(const char* prefix);
  /// const <type> x<n> = <text>; in `scope`.
  Value define(int scope, const std::string& type, const std::string& text, bool vector);
  void bind(ir::SymInt variable, std::string name, int scope);
  void unbind(ir::SymInt variable);

  // --- vector context
  /// Makes `variable` the vector variable for what follows; `live` is the text of the number of live lanes,
  /// empty when all are.
  void set_lanes(LaneAnalysis* analysis, std::string live);
  bool is_tail() const { return !live_.empty(); }
  std::string live() const { return live_.empty() ? "W" : live_; }
  LaneAnalysis* analysis() const { return analysis_; }

  // --- values (writer_values.cpp)
  Value emit(ir::Expr e);
  /// As a vector of the type's own lanes, splat where uniform.
  Value as_vector(const Value& v, DType compute);
  /// As a vector of i32 lanes; needs fits().
  Value as_narrow(const Value& v);
  /// The i64 value is known to lie within i32 for all points of the phase.
  bool fits(ir::Expr e);
  bool fits(ir::SymInt e);
  /// Text of sum + e; both are vectors or neither is.
  std::string added(const std::string& sum, ir::Expr e, bool vector);
  Value emit_vector(ir::Expr e) { return as_vector(emit(e), e->dtype); }
  void set_local(int number, Value v) { locals_[number] = std::move(v); }
  void set_accumulator(int number, Value v) { accumulators_[number] = std::move(v); }
  std::string type_of(DType t, bool vector) const;
  static std::string literal(DType t, uint64_t bits);

  // --- indices (writer_index.cpp)
  /// Scalar value of an index at lane 0.
  Value index(ir::SymInt e);
  std::string index_text(ir::SymInt e) { return index(e).text; }
  /// All lanes, narrow where it fits.
  Value index_vector(ir::SymInt e);

  // --- memory (writer_memory.cpp)
  Value load(ir::Expr e);
  void store(const ir::Stmt& s, const Value& value);
  /// The text of the storage elements that a store of all lanes writes.
  std::string stored_lanes(const ir::Stmt& s, const Value& value);
  /// Of a load without a mask that is contiguous in the lanes: the text of its storage elements in memory.
  std::string stored(ir::Expr load);
  /// Called when a phase begins: which buffers its statements write.
  void enter_phase(const ir::Phase* phase);
  std::string buffer(int b);
  /// Some statement of the kernel loads from the buffer's memory.
  bool is_read(int buffer) const { return read_[buffer]; }
  /// Of CUDA: bytes, at most 16, that the address of a vector's first lane is known to be a multiple of.
  int access_bytes(int buffer, ir::SymInt address) const;
  /// From now on the load is `text`, storage elements (`vector`: W of them) known in `scope`.
  void set_tile(ir::Expr load, std::string text, int scope, bool vector = true) {
    tiles_[load] = {std::move(text), scope, vector};
  }
  void forget_tiles() { tiles_.clear(); }

  /// Of CUDA, in f32: products and sums are rounded once, and what many elements are divided by is inverted
  /// once, but for values of this set.
  void fuse_arithmetic(std::unordered_set<ir::Expr> except) {
    fuses_ = true;
    exact_ = std::move(except);
  }
  /// In the current scope the value is `text`, of lanes or a scalar, wherever it comes from.
  void hold(ir::Expr e, std::string text, bool vector) {
    scopes_.back().values[e] = {std::move(text), current(), vector};
    holds_ = true;
  }
  /// From now on the buffer's element (or lanes) at hand is the variable `text`; empty: it is in memory.
  /// Other than row-local buffers are stored, too.
  void hold_buffer(int buffer, std::string text) { held_[buffer] = std::move(text); }

  // --- results
  ir::SymInts size_args;
  ir::SymInt scratch_bytes = 0;
  std::vector<int> check_origins; ///< of check number 1 + i
  std::string finish();           ///< text of the function scope
  /// Type of the pointer to a buffer: "const f32* __restrict".
  std::string pointer_type(int buffer, bool changing = false) const;
  /// What a failed check does: its number, the index, the extent, whether the index counts from the end, the
  /// lanes that failed.
  std::string on_failure = "return failed(scratch, {}, {}, {}, {}{});";
  bool rows_per_block = false; ///< row-local memory is that of a team of CUDA threads
  bool by_value = false;       ///< buffers b0, b1, ... and sizes s0, s1, ... are parameters of the function
  int point_scope = 0;         ///< values that depend on memory written by the kernel stay inside it
  bool vertical = false;
  /// Of CUDA: vectors along rvar(0) begin where it and this element together are a multiple of the lanes, not
  /// where it is one.
  std::optional<ir::SymInt> row_begin;
  bool byte_tables = false; ///< chains of 8 bits are looked up (byte_tables.h)

private:
  struct Scope {
    std::string header, text;
    bool guard = false;
    std::unordered_map<ir::Expr, Value> values;
    std::unordered_map<const ir::SymNode*, Value> indices, index_vectors;
    std::unordered_map<std::string, Value> vectors;
  };
  struct Variable {
    std::string name;
    int scope;
  };

  Value operation(ir::Expr e);
  /// Text of e, a sum or quotient whose operands are `values` and which is computed in `scope`, by fused
  /// arithmetic; empty where that has no form for it.
  std::string fused(ir::Expr e, const std::vector<Value>& values, int scope, bool vector);
  /// What emit() has to write of `root`: all of it, without what tables or held values stand for. Empty where
  /// nothing does.
  std::unordered_set<ir::Expr> beside_tables(ir::Expr root);
  const std::optional<ByteTable>& table_of(ir::Expr e);
  Value looked_up(ir::Expr e, const ByteTable& table);
  Value constant(ir::Expr e) const;
  std::optional<ir::Bounds> bounds(ir::Expr e);
  std::optional<ir::Bounds> compute_bounds(ir::Expr e);
  /// `type` is that of the operands as held.
  std::string apply(ir::Expr e, DType type, const std::vector<std::string>& args, bool vector) const;
  std::string converted(DType from, DType to, const std::string& x, bool vector) const;
  Value indirect(const ir::SymNode& n, bool vector);
  std::string failure(const ir::SymNode& n, size_t number, const std::string& index,
                      const std::string& extent, const std::string& lanes) const;
  Value index_node(const ir::SymNode& n);
  Value index_vector_node(const ir::SymNode& n, bool narrow);
  /// The size argument with the value of a symbol, or of an expression of sizes.
  std::string symbol(const ir::SymNode& n);
  static ir::SymInt part_of_sizes(const ir::SymNode& n);
  ir::Extents extents() const;
  bool is_conditional(ir::SymInt e) const;
  /// No further out than the innermost guard.
  int hazard_scope(int scope) const;
  int load_scope(int buffer, int scope) const;
  /// Of all lanes, contiguous from `at` on, which is the text of `address`.
  std::string whole_load(int buffer, ir::SymInt address, const std::string& at);
  std::string whole_store(const ir::Stmt& s, const std::string& at, const std::string& value) const;
  struct Load;
  std::string some_lane(const Value& mask) const;
  Value load_row_vector(const Load& load);
  Value load_one(const Load& load);
  Value load_contiguous(const Load& load);
  Value load_apart(const Load& load);
  Value define_loaded(const Load& load, int scope, const std::string& raw);
  static std::string decode(DType t, const std::string& raw);
  static std::string encode(DType t, const std::string& value);
  std::string combined(const ir::Stmt& s, const std::string& old, const std::string& value) const;
  void combine_lanes(const ir::Stmt& s, const Value& value, const std::string& mask);
  void forget_loads(int buffer);
  bool is_row_vector(int buffer) const;

  const ir::KernelProgram& kernel_;
  int lanes_;
  std::vector<Scope> scopes_;
  int counter_ = 0;
  std::unordered_map<const ir::SymNode*, Variable> variables_;
  std::unordered_map<const ir::SymNode*, std::string> symbols_;
  std::unordered_map<int, Value> locals_, accumulators_;
  std::vector<std::string> buffers_;
  std::unordered_map<ir::Expr, Value> tiles_;
  std::unordered_map<ir::Expr, std::optional<ByteTable>> tables_;
  std::unordered_map<ir::Expr, std::string> table_names_;
  bool is_fused(ir::Expr e) const { return fuses_ && e->dtype == DType::f32 && !exact_.contains(e); }
  bool fuses_ = false;
  std::unordered_set<ir::Expr> exact_;
  std::vector<std::string> held_; ///< by buffer
  bool holds_ = false;            ///< some values are known though their operands are not
  std::vector<bool> written_, written_in_phase_, read_;
  const ir::Phase* phase_ = nullptr;
  std::unordered_map<ir::Expr, std::optional<ir::Bounds>> bounds_; ///< in this phase
  std::unordered_map<const ir::SymNode*, bool> fits_;
  LaneAnalysis* analysis_ = nullptr;
  std::string live_;
  /// Of the access whose indices are being written: checks hold only where it is true.
  ir::Expr mask_ = nullptr;
};

} // namespace tbx::codegen
