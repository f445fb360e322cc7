// %data checks how the ranks divide the samples. It is a cell that calls inspect::data on all live ranks.
#include <fmt/format.h>

#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"

namespace lockstep::shell {
namespace {

constexpr InspectorOption kDataOptions[] = {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_ROW
#include "inspectors/options/data.def"
};

CellOutcome data(MagicCall& call) {
  const std::string expression = *call.given.word();
  const CellSettings settings = inspector_settings(call, call.given.value("--ranks"));
  return run_inspector(
      call,
      fmt::format("__lockstep::data({}, __lockstep::DataOptions().name({}){}{})", expression, quoted(expression),
                  cxx_options(call.given, kDataOptions), cxx_ranks_option(call.given, settings)),
      settings);
}

const RegisterMagic kData(
    {.name = "data",
     .summary = "which samples each rank reads: doubled, missing, unequal numbers of batches, forgotten set_epoch",
     .takes = with_options_and_ranks({{"EXPR",
                                       "the indices that this rank reads in an epoch (a tensor, a vector, a vector of "
                                       "batches), or its sampler, of which a copy is read"}},
                                     kDataOptions),
     .line = data,
     .job_line = [](MagicCall& call) { return run_package_inspector(call, "data", kDataOptions); },
     .job_takes = package_arguments(kDataOptions)});

}  // namespace
}  // namespace lockstep::shell
