// Describes a record of the collective log to a shell that asks for it.
#pragma once
#include <string>

#include "collectives/log/collective_record.h"
#include "protocol/questions.h"

namespace lockstep::dist {

/// `where`: the line of the call; empty: unknown. Times are as of now by CLOCK_MONOTONIC: `entered_s_ago` in seconds,
/// `took_us` in microseconds, until now where the call is not done.
protocol::question::Collective describe_to_shell(const CollectiveRecord& record, const std::string& where);

}  // namespace lockstep::dist
