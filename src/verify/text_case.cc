// Comparing and converting; see text_case.h.
#include "verify/text_case.h"

namespace di::verify {

CaseOutcome compare(const std::string& what, const Json& expected, const Json& found) {
  if (expected == found) return CaseOutcome::passed();
  return CaseOutcome::failed(what + " " + expected.dump(), what + " " + found.dump());
}

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array())
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

Json json_of(std::span<const int32_t> ids) {
  Json::Array list;
  list.reserve(ids.size());
  for (const int32_t id : ids)
    list.emplace_back(id);
  return list;
}

}  // namespace di::verify
