// How hangs are told: calls, and what became of a rank.
#pragma once
#include <string>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// `{has}`, `{wait}`, `{its}`, … in `words` become what suits so many.
std::string plural(std::string words, size_t count);
/// A sentence about one rank, whose first word is its verb, as it is said of `count`: "waits …" becomes "wait …".
std::string said_of(const std::string& sentence, size_t count);
/// " (cell 7, line 4)"; nothing for nothing.
std::string in_brackets(const std::string& place);
/// "all_reduce #12 of group_1 (cell 7, line 4)", "recv #1 from rank 2 with tag 5 (…)".
std::string call_words(const RankWait& wait);
/// "12.3 s".
std::string seconds_words(double seconds);
/// What a rank that has gone did: "{has} finished without entering it". For plural().
std::string left_words(const RankPicture& rank);
/// What an exception that `rank` caught has done to its calls in the group of `call`: "; rank 1 threw
/// std::runtime_error (cell 1, line 3) behind all_reduce #2 and caught it: …". Empty where it caught none.
std::string caught_words(const RankPicture& rank, const dist::CollectiveRecord& call);
/// The line of a call of `rank`; empty where it is not known.
std::string line_of(const RankPicture& rank, const dist::CollectiveRecord& record);

}  // namespace lockstep::inspect
