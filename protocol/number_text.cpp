#include "protocol/number_text.h"

#include <charconv>

namespace lockstep {

std::string shortest(double value, int digits) {
  char text[64];
  const auto end = digits <= 9 ? std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr
                               : std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string shortest(long double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace lockstep
