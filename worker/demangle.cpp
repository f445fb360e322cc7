#include "worker/demangle.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "protocol/cell_abi.h"

namespace {

using Demangle = char*(const char*, char*, size_t*, int*);

Demangle* real_demangle() {
  static auto* const real = reinterpret_cast<Demangle*>(::dlsym(RTLD_NEXT, "__cxa_demangle"));
  return real;
}

constexpr std::string_view kCTag = ".__cell_";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

namespace lockstep::worker {

size_t clean_name(char* name, size_t length) {
  constexpr std::string_view kPrefix = "__cell_";
  size_t to = 0;
  for (size_t from = 0; from < length;) {
    const std::string_view rest(name + from, length - from);
    if (rest.starts_with(kCellTagDemangled)) {
      const size_t end = rest.find(']');
      from += end == std::string_view::npos ? rest.size() : end + 1;
      continue;
    }
    if (rest.starts_with(kPrefix) && (to == 0 || !is_word(name[to - 1]))) {
      size_t end = kPrefix.size();
      while (end < rest.size() && is_word(rest[end])) ++end;
      if (rest.substr(end).starts_with("::")) {
        from += end + 2;
        continue;
      }
    }
    name[to++] = name[from++];
  }
  return to;
}

std::string clean_name(std::string name) {
  name.resize(clean_name(name.data(), name.size()));
  // What clang calls $_0, $_1, ... has no name.
  for (size_t at = name.find("$_"); at != std::string::npos; at = name.find("$_", at)) {
    size_t end = at + 2;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    const bool lambda = name.compare(end, 12, "::operator()") == 0;
    if (end > at + 2) name.replace(at, end - at, lambda ? "{lambda}" : "{unnamed}");
    ++at;
  }
  return name;
}

std::string demangle(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? clean_name(std::string(text)) : symbol;
  // What is extern "C" has the cell's tag behind its name.
  if (status != 0 || !text) result.resize(std::min(result.find(kCTag), result.size()));
  std::free(text);
  return result;
}

std::string demangle(const std::type_info& type) { return demangle(type.name()); }

}  // namespace lockstep::worker

// The buffer is the caller's or malloc's; cleaning only shortens what is in it.
extern "C" char* __cxa_demangle(const char* mangled, char* buffer, size_t* length, int* status) {
  int result = 0;
  char* text = real_demangle()(mangled, buffer, length, &result);
  if (status) *status = result;
  if (text && result == 0) text[lockstep::worker::clean_name(text, std::strlen(text))] = '\0';
  return text;
}
