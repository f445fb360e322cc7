#include "shell/jupyter/code_positions.h"

#include <algorithm>
#include <functional>

#include "shell/text/text.h"

namespace lockstep::shell::jupyter {
int64_t byte_of(std::string_view text, int64_t position) {
  if (position < 0) position += character_of(text, static_cast<int64_t>(text.size()));
  size_t byte = 0;
  for (int64_t k = 0; k < position && byte < text.size(); ++k) do
      ++byte;
    while (byte < text.size() && is_continuation_byte(text[byte]));
  return static_cast<int64_t>(byte);
}

int64_t character_of(std::string_view text, int64_t byte) {
  const auto end = text.begin() + std::clamp<int64_t>(byte, 0, static_cast<int64_t>(text.size()));
  return std::count_if(text.begin(), end, std::not_fn(is_continuation_byte));
}

}  // namespace lockstep::shell::jupyter
