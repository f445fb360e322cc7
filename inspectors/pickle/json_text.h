// Reads JSON that another program wrote within a limit.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

enum class EqualKeys { the_last_counts, are_refused };

/// Returns a discarded value for text that is no JSON. Throws ReadingLimitError for values that take more than `limit`,
/// and std::runtime_error for a key that an object has twice, where these are refused.
nlohmann::json read_json(std::string_view text, ReadingLimit& limit, EqualKeys equal_keys = EqualKeys::the_last_counts);

}  // namespace lockstep::inspect
