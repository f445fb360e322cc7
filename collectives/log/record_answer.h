// Describes a record of the collective log to a shell that asks for it.
#pragma once
#include <string>

#include "collectives/log/collective_record.h"
#include "protocol/questions.h"

namespace lockstep::dist {

/// `where`: the line of the call; empty: unknown.
protocol::question::Collective describe_to_shell(const CollectiveRecord& record, const std::string& where);

}  // namespace lockstep::dist
