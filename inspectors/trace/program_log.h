// Finds the log that has the collectives of the program that is inspected, for inspectors that read it.
#pragma once
#include <memory>

#include "collectives/log/collective_log.h"

namespace lockstep::inspect {

/// Returns, in a session and in a C++ program, the log of dist::, of the calling thread's rank; else that of the
/// process groups for which set_program_log was called. Null where there is none.
std::shared_ptr<dist::CollectiveLog> program_log();

/// Serves a program whose process groups dist:: does not make (a Python job). `find` returns their log, or null as long
/// as there is none. Null: from here on the log is that of dist:: again.
void set_program_log(std::shared_ptr<dist::CollectiveLog> (*find)());

}  // namespace lockstep::inspect
