// Whole numbers in texts: of people, of the environment, of names of files.
#pragma once
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep::protocol {

/// Returns the number that all of `text` is, in decimal digits, behind a minus where it is negative. Returns nothing where
/// `text` is anything else, or a number below `least` or above `most`.
template <typename Number>
std::optional<Number> whole_number(std::string_view text, Number least = std::numeric_limits<Number>::min(),
                                   Number most = std::numeric_limits<Number>::max()) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const bool is_good = error == std::errc() && rest == end && number >= least && number <= most;
  return is_good ? std::optional(number) : std::nullopt;
}

}  // namespace lockstep::protocol
