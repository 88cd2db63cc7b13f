#include "measurements/json_fields.h"

#include <cmath>

namespace orrery::measurements {

double number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(value) ? value : 0;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string text_at(const Json& list, std::size_t at) {
  return at < list.size() && list[at].is_string() ? list[at].get<std::string>() : "";
}

const Json& list_in(const Json& object, const char* key) {
  static const Json none = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

}  // namespace orrery::measurements
