// The registry of operators: domain and name -> forms by first opset.
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "graph/node_attributes.h"
#include "lowering/op_registry.h"

namespace tbx::lowering {

OpEntry& Registry::add(const std::string& name, int since, LowerFn lower, const std::string& domain) {
  auto forms = entries_.find(NameView{domain, name});
  if (forms == entries_.end()) forms = entries_.try_emplace({domain, name}).first;
  auto [it, fresh] =
      forms->second.try_emplace(since, OpEntry{domain, name, since, std::move(lower), Narrow::sensitive});
  TBX_INTERNAL(fresh); // an operator is registered once per opset
  return it->second;
}

void Registry::narrow(Narrow trait, std::initializer_list<const char*> names, const std::string& domain) {
  for (const char* name : names) {
    auto it = entries_.find(NameView{domain, name});
    TBX_INTERNAL(it != entries_.end());
    for (auto& [since, entry] : it->second) entry.narrow = trait;
  }
}

void Registry::mark(Trait trait, std::initializer_list<const char*> names, const std::string& domain) {
  for (const char* name : names) facts_for(domain, name).traits |= uint32_t{1} << static_cast<int>(trait);
}

bool Registry::has(Trait trait, const Node& node) const {
  const Facts* facts = facts_of(node);
  return facts && ((facts->traits >> static_cast<int>(trait)) & 1) != 0;
}

void Registry::moves_where(std::initializer_list<const char*> names, const char* attribute, const char* value,
                           const char* otherwise) {
  mark(Trait::moves, names);
  for (const char* name : names) facts_for("", name).moving = {attribute, value, otherwise};
}

bool Registry::moves(const Node& node) const {
  if (!has(Trait::moves, node)) return false;
  auto [attribute, value, otherwise] = facts_of(node)->moving;
  return !attribute || attribute_or<std::string>(node, attribute, otherwise) == value;
}

void Registry::labels_in(const char* attribute, const char* name, const std::string& domain) {
  facts_for(domain, name).labels = attribute;
}

const std::string* Registry::labels_of(const Node& node) const {
  const Facts* facts = facts_of(node);
  return facts && !facts->labels.empty() ? &facts->labels : nullptr;
}

void Registry::type_from(int input, std::initializer_list<const char*> names, const std::string& domain) {
  for (const char* name : names) facts_for(domain, name).type_giver = input;
}

int Registry::type_giver(const Node& node) const {
  const Facts* facts = facts_of(node);
  return facts ? facts->type_giver : -1;
}

void Registry::masks(int first, int end, std::initializer_list<const char*> names,
                     const std::string& domain) {
  for (const char* name : names) {
    Facts& facts = facts_for(domain, name);
    facts.first_mask = first;
    facts.end_of_masks = end;
  }
}

bool Registry::is_mask(const Node& node, int input) const {
  const Facts* facts = facts_of(node);
  return facts && facts->first_mask <= input && input < facts->end_of_masks;
}

void Registry::past_at(int input, std::initializer_list<const char*> names, const std::string& domain) {
  for (const char* name : names) facts_for(domain, name).past = input;
}

int Registry::past_of(const Node& node) const {
  const Facts* facts = facts_of(node);
  return facts ? facts->past : -1;
}

void Registry::need(const char* name, size_t input, const NeedOf& need, const std::string& domain) {
  const bool fresh = facts_for(domain, name).needs.try_emplace(input, need).second;
  TBX_INTERNAL(fresh);
}

const NeedOf* Registry::need_of(const Node& node, size_t input) const {
  const Facts* facts = facts_of(node);
  if (!facts) return nullptr;
  auto it = facts->needs.find(input);
  return it == facts->needs.end() ? nullptr : &it->second;
}

Registry::Facts& Registry::facts_for(std::string_view domain, std::string_view name) {
  auto it = facts_.find(NameView{domain, name});
  if (it == facts_.end()) it = facts_.try_emplace({std::string(domain), std::string(name)}).first;
  return it->second;
}

const Registry::Facts* Registry::facts_of(const Node& node) const {
  auto it = facts_.find(NameView{node.domain, node.op_type});
  return it == facts_.end() ? nullptr : &it->second;
}

const OpEntry* Registry::find(std::string_view domain, std::string_view name, int opset) const {
  auto it = entries_.find(NameView{domain, name});
  if (it == entries_.end()) return nullptr;
  auto form = it->second.upper_bound(opset);
  return form == it->second.begin() ? nullptr : &std::prev(form)->second;
}

std::vector<const OpEntry*> Registry::all() const {
  std::vector<const OpEntry*> out;
  for (const auto& [key, forms] : entries_)
    for (const auto& [since, entry] : forms) out.push_back(&entry);
  auto key = [](const OpEntry* e) { return std::tie(e->domain, e->name, e->since); };
  std::sort(out.begin(), out.end(), [&](const OpEntry* a, const OpEntry* b) { return key(a) < key(b); });
  return out;
}

const Registry& Registry::instance() {
  static const Registry registry = [] {
    Registry r;
    register_all_ops(r);
    return r;
  }();
  return registry;
}

std::vector<LoweredValue> lower_as(OpContext& ctx, const std::string& op_type, int opset,
                                   std::vector<LoweredValue> inputs,
                                   std::map<std::string, Attribute> attributes) {
  const OpEntry* entry = Registry::instance().find("", op_type, opset);
  if (!entry) throw_unsupported("operator {} has no lowering for opset {}", op_type, opset);
  Node node = ctx.node; // keeps the names of the results and the origin
  node.op_type = op_type;
  node.domain.clear();
  node.opset = opset;
  node.attributes = std::move(attributes);
  node.inputs.assign(inputs.size(), -1);
  OpContext as(ctx.program, ctx.graph, node, std::move(inputs), ctx.pool, ctx.lower_subgraph);
  return entry->lower(as);
}

} // namespace tbx::lowering
