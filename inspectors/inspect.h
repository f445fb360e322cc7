// All of lockstep::inspect.
#pragma once
#include "inspectors/fingerprint.h"
#include "inspectors/report.h"
#include "inspectors/saved_replica.h"
#include "inspectors/verify.h"
#include "inspectors/watch.h"
