// All of lockstep::inspect.
#pragma once
#include "inspectors/buckets.h"
#include "inspectors/data.h"
#include "inspectors/fingerprint.h"
#include "inspectors/memory.h"
#include "inspectors/ranks.h"
#include "inspectors/report.h"
#include "inspectors/saved_replica.h"
#include "inspectors/saved_state.h"
#include "inspectors/time_sync.h"
#include "inspectors/timeline.h"
#include "inspectors/verify.h"
#include "inspectors/watch.h"
