// Makes words for messages about hangs: calls, and how ranks left.
#pragma once
#include <string>

#include "inspectors/findings/text.h"
#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// Replaces `{has}`, `{wait}`, `{its}`, … in `words` by the singular or plural.
std::string plural(std::string words, size_t count);
/// Turns a sentence about one rank that begins with its verb into one about `count` ranks: "waits …", "wait …".
std::string said_of(const std::string& sentence, size_t count);
/// "all_reduce #12 of group_1 (cell 7, line 4)", "recv #1 from rank 2 with tag 5 (…)".
std::string call_words(const RankWait& wait);
/// Says how far the collective of a call is on the ranks whose devices do it: "it has started on ranks 0-1, the stream
/// of rank 3 has not reached it (a kernel before it still runs)". Empty if no device does it.
std::string stages_words(const HangPicture& picture, const dist::CollectiveRecord& call);
/// Returns the ranks that have enqueued it and whose streams have not come to it.
RankSet unreached_ranks(const HangPicture& picture, const dist::CollectiveRecord& call);
/// Says what a stream does that has not come to the call: "a kernel before it still runs", "all_reduce #16 before it is
/// not done". `waits` are of the rank.
std::string before_words(const std::vector<RankWait>& waits, const dist::CollectiveRecord& call);
/// Returns "12.3 s".
std::string seconds_words(double seconds);
/// Says how a rank left: "{has} finished without entering it". For plural().
std::string left_words(const RankPicture& rank);
/// Says how an exception that `rank` caught affects its calls in the group of `call`: "; rank 1 threw
/// std::runtime_error (cell 1, line 3) after all_reduce #2 and caught it: …". Empty if it caught none.
std::string caught_words(const RankPicture& rank, const dist::CollectiveRecord& call);
/// Returns the line of a call of `rank`; empty if it is not known.
std::string line_of(const RankPicture& rank, const dist::CollectiveRecord& record);

}  // namespace lockstep::inspect
