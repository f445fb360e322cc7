// Makes the findings about how ranks divide samples. Pure: facts and orders in, numbers and findings out.
#pragma once
#include <vector>

#include "inspectors/data/shares.h"
#include "inspectors/findings/about.h"

namespace lockstep::inspect {

struct DataJudgement {
  DataNumbers numbers;
  std::vector<Finding> findings;  // an `ok` among them if there is no fault
};

DataJudgement data_findings(const About& about, const std::vector<DataFacts>& facts, const SampleOrders& orders);

}  // namespace lockstep::inspect
