// Names of kernels from their symbols.
#include <cstdlib>
#include <memory>
#include <string_view>

#include <cxxabi.h>

#include "ops/cuda/kernel_trace.h"

namespace di::ops::cuda {
namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free
  );
  return status == 0 ? name.get() : symbol;
}

/// Where the parentheses begin that end with the text; npos when it ends with none.
std::size_t last_parentheses(std::string_view text) {
  if (text.empty() || text.back() != ')') return std::string_view::npos;
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    depth += text[i] == ')' ? 1 : text[i] == '(' ? -1 : 0;
    if (depth == 0) return i;
  }
  return std::string_view::npos;
}

void drop_all(std::string& text, std::string_view part) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos;)
    text.erase(at, part.size());
}

}  // namespace

std::string kernel_name(const char* symbol) {
  std::string name = demangled(symbol);
  if (const std::size_t begin = last_parentheses(name);
      begin != std::string_view::npos && begin > 0)
    name.resize(begin);
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  for (const char* part :
       {"(anonymous namespace)::", "di::ops::cuda::", "di::sampling::cuda::", "di::"})
    drop_all(name, part);
  return name;
}

}  // namespace di::ops::cuda
