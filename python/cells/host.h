// Provides what worker/process/host.h asks for, in a rank of a Python job.
#pragma once
#include <string>

namespace lockstep::python {

/// A shell begins to send cells, of which this rank has none yet. What earlier shells have loaded stays, and is not
/// found by cells of this one. `folder`: where files of objects go while they are opened.
void begin_objects(const std::string& folder);

}  // namespace lockstep::python
