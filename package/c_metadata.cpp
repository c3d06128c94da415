// What a model says of itself, in the C interface (include/tensorbox/c.h).
#include <iterator>
#include <string_view>

#include "package/c_handles.h"

namespace {

const std::string* field_of(const tbx_session& session, std::string_view name) {
  const tbx::ModelMetadata& m = session.session.metadata();
  const std::pair<std::string_view, const std::string*> fields[] = {
      {"producer_name", &m.producer_name}, {"producer_version", &m.producer_version},
      {"graph_name", &m.graph_name},       {"domain", &m.domain},
      {"description", &m.description},     {"graph_description", &m.graph_description},
      {"version", &session.model_version},
  };
  for (const auto& [field, value] : fields)
    if (field == name) return value;
  return nullptr;
}

} // namespace

const char* tbx_metadata(const tbx_session* session, const char* name) {
  const std::string* value = session && name ? field_of(*session, name) : nullptr;
  return value && !value->empty() ? value->c_str() : nullptr;
}

const char* tbx_custom_metadata(const tbx_session* session, const char* key) {
  if (!session || !key) return nullptr;
  const auto& custom = session->session.metadata().custom;
  const auto found = custom.find(key);
  return found == custom.end() ? nullptr : found->second.c_str();
}

size_t tbx_num_custom_metadata(const tbx_session* session) {
  return session ? session->session.metadata().custom.size() : 0;
}

const char* tbx_custom_metadata_key(const tbx_session* session, size_t number) {
  if (number >= tbx_num_custom_metadata(session)) return nullptr;
  return std::next(session->session.metadata().custom.begin(), static_cast<ptrdiff_t>(number))->first.c_str();
}
