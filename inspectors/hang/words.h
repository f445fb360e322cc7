// Words for messages about hangs: calls, and how ranks left.
#pragma once
#include <string>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// Replaces `{has}`, `{wait}`, `{its}`, … in `words` by the singular or plural.
std::string plural(std::string words, size_t count);
/// Turns a sentence about one rank that begins with its verb into one about `count` ranks: "waits …", "wait …".
std::string said_of(const std::string& sentence, size_t count);
/// " (cell 7, line 4)"; empty for an empty place.
std::string in_brackets(const std::string& place);
/// "all_reduce #12 of group_1 (cell 7, line 4)", "recv #1 from rank 2 with tag 5 (…)".
std::string call_words(const RankWait& wait);
/// "12.3 s".
std::string seconds_words(double seconds);
/// How a rank left: "{has} finished without entering it". For plural().
std::string left_words(const RankPicture& rank);
/// The effect of an exception that `rank` caught on its calls in the group of `call`: "; rank 1 threw
/// std::runtime_error (cell 1, line 3) after all_reduce #2 and caught it: …". Empty if it caught none.
std::string caught_words(const RankPicture& rank, const dist::CollectiveRecord& call);
/// The line of a call of `rank`; empty if it is not known.
std::string line_of(const RankPicture& rank, const dist::CollectiveRecord& record);

}  // namespace lockstep::inspect
