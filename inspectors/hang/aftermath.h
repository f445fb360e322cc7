// Finds ranks that left the cell only because their collective broke: another rank died, closed the group, or failed in
// it. These ranks are consequences, and so are ranks that wait for them now. To find the cause, they are put back into
// the collective in which they waited. Pure.
#pragma once
#include <optional>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// Returns the collective in which a rank waited when it left the cell: it broke, or the rank was freed from it.
std::optional<RankWait> wait_before_leaving(const HangPicture& picture, const RankPicture& rank);

/// Returns the picture with such ranks in the collective that broke, if another rank is the cause. Nothing if there are
/// no such ranks.
std::optional<HangPicture> put_back(const HangPicture& picture);

}  // namespace lockstep::inspect
