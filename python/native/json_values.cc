#include "json_values.h"

#include <limits>
#include <string>

#include <fmt/format.h>

#include "base/error.h"

namespace di::python {
namespace {

constexpr int kMaxDepth = 64;

std::string class_name(nb::handle value) {
  return nb::cast<std::string>(nb::str(value.type().attr("__name__")));
}

[[noreturn]] void refuse(nb::handle value, std::string_view where, const char* expected) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} holds a value of type {}; {}", where, class_name(value), expected)
  );
}

/// The whole number that `value` is, as an int of Python; nothing when it is none.
nb::object whole_number(nb::handle value) {
  if (PyIndex_Check(value.ptr()) == 0) return {};
  PyObject* number = PyNumber_Index(value.ptr());
  if (number == nullptr) throw nb::python_error();
  return nb::steal(number);
}

Json json_of_whole(nb::handle number, std::string_view where) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return int64_t{value};
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) return uint64_t{large};
    PyErr_Clear();
  }
  throw Error(
      ErrorCode::kInvalidArgument, fmt::format("{} holds a whole number beyond 64 bits", where)
  );
}

Json json_of(nb::handle value, std::string_view where, int depth);

Json json_of_dict(nb::handle value, std::string_view where, int depth) {
  Json::Object object;
  for (const auto& [key, item] : nb::borrow<nb::dict>(value)) {
    if (!nb::isinstance<nb::str>(key)) refuse(key, where, "keys must be str");
    object.emplace_back(nb::cast<std::string>(key), json_of(item, where, depth + 1));
  }
  return object;
}

Json json_of_sequence(nb::handle value, std::string_view where, int depth) {
  Json::Array array;
  for (const nb::handle item : nb::iter(value))
    array.push_back(json_of(item, where, depth + 1));
  return array;
}

Json json_of(nb::handle value, std::string_view where, int depth) {
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is nested {} deep", where, kMaxDepth));
  }
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::dict>(value)) return json_of_dict(value, where, depth);
  // Before numbers: an array of numpy offers to be a number, too.
  if (PySequence_Check(value.ptr()) && !nb::isinstance<nb::bytes>(value)) {
    return json_of_sequence(value, where, depth);
  }
  if (const nb::object number = whole_number(value)) return json_of_whole(number, where);
  if (PyFloat_Check(value.ptr()) || nb::hasattr(value, "__float__")) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return number;
  }
  refuse(value, where, "expected None, bool, int, float, str, a list or a dict");
}

}  // namespace

Json to_json(nb::handle value, std::string_view where) {
  return json_of(value, where, 0);
}

nb::object from_json(const Json& json) {
  if (json.is_null()) return nb::none();
  if (json.is_bool()) return nb::bool_(json.as_bool());
  if (json.is_integer()) {
    PyObject* number = PyLong_FromString(json.integer_text()->c_str(), nullptr, 10);
    if (number == nullptr) throw nb::python_error();
    return nb::steal(number);
  }
  if (json.is_number()) return nb::float_(json.as_number());
  if (json.is_string()) return nb::str(json.as_string().data(), json.as_string().size());
  if (json.is_array()) {
    nb::list list;
    for (const Json& item : json.as_array())
      list.append(from_json(item));
    return list;
  }
  nb::dict dict;
  for (const auto& [key, value] : json.as_object())
    dict[nb::str(key.data(), key.size())] = from_json(value);
  return dict;
}

std::vector<int32_t> to_token_ids(nb::handle ids) {
  std::vector<int32_t> tokens;
  for (const nb::handle item : nb::iter(ids)) {
    const nb::object number = whole_number(item);
    if (!number) refuse(item, "a list of token ids", "expected whole numbers");
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0 || id < std::numeric_limits<int32_t>::min() ||
        id > std::numeric_limits<int32_t>::max()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "token {} is {}, not an id of 32 bits",
              tokens.size(),
              nb::cast<std::string>(nb::str(number))
          )
      );
    }
    tokens.push_back(static_cast<int32_t>(id));
  }
  return tokens;
}

}  // namespace di::python
