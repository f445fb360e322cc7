// All of lockstep::inspect.
#pragma once
#include "inspectors/data.h"
#include "inspectors/fingerprint.h"
#include "inspectors/ranks.h"
#include "inspectors/report.h"
#include "inspectors/saved_replica.h"
#include "inspectors/saved_state.h"
#include "inspectors/verify.h"
#include "inspectors/watch.h"
