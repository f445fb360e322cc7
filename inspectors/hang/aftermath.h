// Ranks that left the cell only because a collective broke under them: another rank died, closed the group, or failed
// in it. They are consequences, and so is whoever waits for them now. For the cause to be found they are put back to
// where they waited. Pure.
#pragma once
#include <optional>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// The same picture, in which such ranks still sit in the collective that broke; only those for which somebody can be
/// blamed. Nothing where there are none.
std::optional<HangPicture> put_back(const HangPicture& picture);

}  // namespace lockstep::inspect
