// Loads and stores as text: scalar, contiguous, strided or per lane, by the lane form of the address.
#include <fmt/format.h>

#include "base/error.h"
#include "codegen/writer.h"

namespace tbx::codegen {

using ir::Expr;
using ir::Stmt;
using ir::StoreMode;
using ir::SymInt;

namespace {

/// Sets the mask under which index checks hold, for the life of the object.
class MaskFor {
public:
  MaskFor(Expr& slot, Expr mask) : slot_(slot), before_(slot) { slot = mask; }
  ~MaskFor() { slot_ = before_; }
  MaskFor(const MaskFor&) = delete;
  MaskFor& operator=(const MaskFor&) = delete;

private:
  Expr& slot_;
  Expr before_;
};

bool is_coded(DType t) { return t == DType::boolean || is_low_precision_float(t); }

} // namespace

std::string Writer::decode(DType t, const std::string& raw) {
  return is_coded(t) ? fmt::format("dec_{}({})", tag_of(t), raw) : raw;
}

std::string Writer::encode(DType t, const std::string& value) {
  // Infinity is a value of f8e5m2 that a cast without saturation makes: storing must keep it.
  if (t == DType::f8e5m2) return fmt::format("enc_{}({}, false)", tag_of(t), value);
  return is_coded(t) ? fmt::format("enc_{}({})", tag_of(t), value) : value;
}

int Writer::access_bytes(int buffer, SymInt address) const {
  if (const ir::SymNode* variable = analysis_ ? analysis_->variable() : nullptr; variable && row_begin)
    if (const auto place = ir::affine_in(address, variable); place && !place->coefficient.is(0)) {
      // The address is the sum of this and of a multiple of the lanes.
      const SymInt apart = place->rest - *row_begin;
      return std::min(
          codegen::access_bytes(kernel_.buffers[buffer], apart, nullptr, 1),
          static_cast<int>(std::min<int64_t>(16, lanes_ * size_of(kernel_.buffers[buffer].dtype))));
    }
  return codegen::access_bytes(kernel_.buffers[buffer], address, analysis_ ? analysis_->variable() : nullptr,
                               lanes_);
}

std::string Writer::whole_load(int b, SymInt address, const std::string& at) {
  if (!by_value) return fmt::format("ldv({} + {})", buffer(b), at);
  return fmt::format("load_lanes<W, {}>({} + {})", access_bytes(b, address), buffer(b), at);
}

std::string Writer::whole_store(const Stmt& s, const std::string& at, const std::string& value) const {
  if (!by_value) return fmt::format("stv({}, {});", at, value);
  return fmt::format("store_lanes<{}>({}, {});", access_bytes(s.buffer, s.address), at, value);
}

std::string Writer::stored(Expr load) {
  const std::string at = index_text(load->indices[0]);
  if (!analysis_) return fmt::format("{}[{}]", buffer(load->buffer), at);
  return is_tail() ? fmt::format("ldn({} + {}, {})", buffer(load->buffer), at, live_)
                   : whole_load(load->buffer, load->indices[0], at);
}

/// A load that is being written.
struct Writer::Load {
  Expr e;
  DType type; ///< in memory
  std::string pointer, vector_type;
  Value mask; ///< where `e` has one
  LaneForm form;

  SymInt address() const { return e->indices[0]; }
  bool is_masked() const { return e->mask() != nullptr; }
};

Value Writer::load(Expr e) {
  const DType t = kernel_.buffers[e->buffer].dtype;
  if (const std::string& held = held_[e->buffer]; !held.empty()) {
    const bool lanes = analysis_ && analysis_->varies(e->indices[0]);
    return define(current(), type_of(t, lanes), decode(t, held), lanes);
  }
  Load load{e, t, buffer(e->buffer), type_of(t, true), {}, {}};
  if (auto it = tiles_.find(e); it != tiles_.end()) {
    const Value& tile = it->second;
    return define(tile.scope, type_of(t, tile.vector), decode(t, tile.text), tile.vector);
  }
  if (load.is_masked()) load.mask = emit(e->mask());
  MaskFor guard(mask_, e->mask());
  if (analysis_) load.form = analysis_->form(load.address());
  if (is_row_vector(e->buffer)) return load_row_vector(load);
  if (load.form.kind == LaneForm::uniform) return load_one(load);
  if (load.form.kind == LaneForm::affine && load.form.stride.is(1)) return load_contiguous(load);
  return load_apart(load);
}

Value Writer::define_loaded(const Load& load, int scope, const std::string& raw) {
  return define(load_scope(load.e->buffer, std::max(scope, load.mask.scope)), load.vector_type,
                decode(load.type, raw), true);
}

/// Whether an address that all lanes share is one of the buffer.
std::string Writer::some_lane(const Value& mask) const {
  if (!mask.vector) return mask.text;
  return is_tail() ? fmt::format("any({} & first({}))", mask.text, live_) : fmt::format("any({})", mask.text);
}

Value Writer::load_row_vector(const Load& load) {
  TBX_INTERNAL(load.form.kind == LaneForm::uniform);
  Value a = index(load.address());
  std::string raw = fmt::format("ldv({} + {} * W)", load.pointer, a.text);
  if (load.is_masked())
    raw = fmt::format("{} ? {} : {}v{{}}", some_lane(load.mask), raw, storage_of(load.type));
  Value x = define_loaded(load, load.mask.vector && is_tail() ? current() : a.scope, raw);
  if (!load.mask.vector) return x;
  std::string m = as_vector(load.mask, DType::boolean).text;
  return define(x.scope, load.vector_type, fmt::format("sel({}, {}, {}{{}})", m, x.text, load.vector_type),
                true);
}

/// One element for all lanes.
Value Writer::load_one(const Load& load) {
  const DType t = load.type;
  const std::string zero = literal(t, 0);
  const Value& mask = load.mask;
  Value a = index(load.address());
  std::string text = decode(t, fmt::format("{}[{}]", load.pointer, a.text));
  int scope = load_scope(load.e->buffer, std::max(a.scope, mask.scope));
  if (!load.is_masked()) return define(scope, type_of(t, false), text, false);
  if (mask.vector && is_tail()) scope = current();
  Value x = define(scope, type_of(t, false), fmt::format("{} ? {} : {}", some_lane(mask), text, zero), false);
  if (!mask.vector) return x;
  std::string all = as_vector(x, t).text;
  return define(scope, load.vector_type, fmt::format("sel({}, {}, {}{{}})", mask.text, all, load.vector_type),
                true);
}

Value Writer::load_contiguous(const Load& load) {
  Value a = index(load.address());
  if (load.mask.vector)
    return define_loaded(load, a.scope,
                         fmt::format("ldm({} + {}, {}, {})", load.pointer, a.text, load.mask.text, live()));
  std::string raw = is_tail() ? fmt::format("ldn({} + {}, {})", load.pointer, a.text, live_)
                              : whole_load(load.e->buffer, load.address(), a.text);
  if (load.is_masked()) raw = fmt::format("{} ? {} : {}v{{}}", load.mask.text, raw, storage_of(load.type));
  return define_loaded(load, a.scope, raw);
}

/// Lanes that are not neighbours in memory.
Value Writer::load_apart(const Load& load) {
  const LaneForm& form = load.form;
  const std::string& p = load.pointer;
  if (form.repeat != 0 && !load.is_masked() && !is_tail() && !by_value) {
    Value a = index(load.address());
    return define_loaded(load, a.scope, fmt::format("ld_repeated<{}>({} + {})", form.repeat, p, a.text));
  }
  if (form.steps && !load.is_masked() && !is_tail() && !by_value) {
    const SymInt x = form.steps->args[0], c = form.steps->args[1];
    Value a = index(load.address()), rest = index(ir::mod(x, c));
    return define_loaded(load, std::max(a.scope, rest.scope),
                         fmt::format("ld_steps<{}>({} + {}, {})", c.constant(), p, a.text, rest.text));
  }
  // Small constant strides.
  std::string by_shuffles;
  if (auto s = form.stride.as_constant(); form.kind == LaneForm::affine && s && !is_tail() && !by_value) {
    const std::string at = fmt::format("({} + {})", p, index_text(load.address()));
    if (*s == -1) by_shuffles = "ldr" + at;
    if (*s >= 2 && *s <= 4) by_shuffles = fmt::format("lds{}{}", *s, at);
  }
  if (form.kind == LaneForm::affine && !load.is_masked()) {
    Value a = index(load.address()), stride = index(form.stride);
    if (!by_shuffles.empty()) return define_loaded(load, a.scope, by_shuffles);
    return define_loaded(load, std::max(a.scope, stride.scope),
                         fmt::format("lds({} + {}, {}, {})", p, a.text, stride.text, live()));
  }
  Value x = index_vector(load.address());
  if (!load.is_masked())
    return define_loaded(load, x.scope, fmt::format("ldx({}, {}, {})", p, x.text, live()));
  std::string m = as_vector(load.mask, DType::boolean).text;
  std::string lanes = fmt::format("ldx({}, {}, {}, {})", p, x.text, m, live());
  if (!by_shuffles.empty()) lanes = fmt::format("every({}) ? {} : {}", m, by_shuffles, lanes);
  return define_loaded(load, x.scope, lanes);
}

std::string Writer::stored_lanes(const Stmt& s, const Value& value) {
  const DType t = kernel_.buffers[s.buffer].dtype;
  return encode(t, as_vector(value, t).text);
}

void Writer::store(const Stmt& s, const Value& value) {
  const DType t = kernel_.buffers[s.buffer].dtype;
  if (const std::string& held = held_[s.buffer]; !held.empty()) {
    const bool lanes = analysis_ && analysis_->varies(s.address);
    line(fmt::format("{} = {};", held, encode(t, lanes ? as_vector(value, t).text : value.text)));
    if (kernel_.buffers[s.buffer].access == ir::Access::row_local) return forget_loads(s.buffer);
  }
  const std::string p = buffer(s.buffer);
  Value mask = s.mask ? emit(s.mask) : Value{};
  {
    MaskFor guard(mask_, s.mask);
    LaneForm form = analysis_ ? analysis_->form(s.address) : LaneForm{};
    const bool set = s.mode == StoreMode::set;
    if (is_row_vector(s.buffer)) {
      TBX_INTERNAL(form.kind == LaneForm::uniform && set);
      std::string at = fmt::format("{} + {} * W", p, index_text(s.address));
      std::string x = stored_lanes(s, value);
      if (s.mask) x = fmt::format("sel({}, {}, ldv({}))", as_vector(mask, DType::boolean).text, x, at);
      line(fmt::format("stv({}, {});", at, x));
    } else if (form.kind == LaneForm::uniform && !mask.vector && (!analysis_ || (set && !value.vector))) {
      std::string a = index_text(s.address), element = fmt::format("{}[{}]", p, a);
      std::string x = value.text;
      if (!set) x = combined(s, decode(t, element), x);
      line(
          fmt::format("{}{} = {};", s.mask ? fmt::format("if ({}) ", mask.text) : "", element, encode(t, x)));
    } else if (!set && !s.mask && form.kind == LaneForm::affine && form.stride.is(1)) {
      // Every lane has an element of its own.
      std::string at = fmt::format("{} + {}", p, index_text(s.address));
      std::string old = is_tail() ? fmt::format("ldn({}, {})", at, live_)
                                  : whole_load(s.buffer, s.address, index_text(s.address));
      std::string x = encode(t, combined(s, decode(t, old), as_vector(value, t).text));
      line(is_tail() ? fmt::format("stn({}, {}, {});", at, x, live_) : whole_store(s, at, x));
    } else if (!set) {
      combine_lanes(s, value, s.mask ? as_vector(mask, DType::boolean).text : "");
    } else if (form.kind == LaneForm::affine && form.stride.is(1) && (!s.mask || mask.vector)) {
      std::string at = fmt::format("{} + {}", p, index_text(s.address));
      std::string x = stored_lanes(s, value);
      line(s.mask      ? fmt::format("stm({}, {}, {}, {});", at, x, mask.text, live())
           : is_tail() ? fmt::format("stn({}, {}, {});", at, x, live_)
                       : whole_store(s, at, x));
    } else if (form.kind == LaneForm::affine && !s.mask) {
      std::string at = fmt::format("{} + {}", p, index_text(s.address));
      line(fmt::format("sts({}, {}, {}, {});", at, index_text(form.stride),
                       encode(t, as_vector(value, t).text), live()));
    } else {
      std::string at = index_vector(s.address).text;
      std::string m = s.mask ? as_vector(mask, DType::boolean).text + ", " : "";
      line(fmt::format("stx({}, {}, {}, {}{});", p, at, encode(t, as_vector(value, t).text), m, live()));
    }
  }
  forget_loads(s.buffer);
}

std::string Writer::combined(const Stmt& s, const std::string& old, const std::string& value) const {
  const bool boolean = kernel_.buffers[s.buffer].dtype == DType::boolean;
  switch (s.mode) {
  case StoreMode::add:
    return boolean ? fmt::format("{} | {}", old, value) : fmt::format("{} + {}", old, value);
  case StoreMode::mul:
    return boolean ? fmt::format("{} & {}", old, value) : fmt::format("{} * {}", old, value);
  case StoreMode::max:
    return boolean ? fmt::format("{} | {}", old, value) : fmt::format("vmax({}, {})", old, value);
  case StoreMode::min:
    return boolean ? fmt::format("{} & {}", old, value) : fmt::format("vmin({}, {})", old, value);
  case StoreMode::set: break;
  }
  return value;
}

/// Lanes may hit the same element: one after the other, in order.
void Writer::combine_lanes(const Stmt& s, const Value& value, const std::string& mask) {
  const DType t = kernel_.buffers[s.buffer].dtype;
  std::string at = index_vector(s.address).text, x = as_vector(value, t).text, p = buffer(s.buffer);
  std::string lanes = fresh("x");
  line(fmt::format("const {} {} = {};", type_of(t, true), lanes, x));
  // Several such loops may become one: names of their own, and no lane ends the others.
  std::string e = fresh("e");
  open(fmt::format("for (i64 l = 0; l < {}; ++l)", live()));
  line(fmt::format("{}& {} = {}[{}[l]];", storage_of(t), e, p, at));
  std::string lane = t == DType::boolean ? fmt::format("({}[l] != 0)", lanes)
                                         : fmt::format("({}){}[l]", compute_of(t), lanes);
  line(fmt::format(
      "{}{} = {};", mask.empty() ? "" : fmt::format("if ({}[l]) ", mask), e,
      encode(t, "(" + std::string(type_of(t, false)) + ")(" + combined(s, decode(t, e), lane) + ")")));
  close();
}

} // namespace tbx::codegen
