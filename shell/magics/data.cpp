// %data: do the ranks divide the samples among themselves? A cell that calls inspect::data on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/job_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kDataUsage = "%data EXPR [--size N] [--batch-size N] [--epoch K] [--join] [--ranks SPEC]";

CellOutcome data(MagicCall& call) {
  MagicArguments arguments(call.arguments, kDataUsage);
  const auto size = arguments.take_value("", "--size");
  const auto batch = arguments.take_value("", "--batch-size");
  const auto epoch = arguments.take_value("", "--epoch");
  const bool join = arguments.take_flag("", "--join");
  const auto spec = arguments.take_value("", "--ranks");
  const auto expression = arguments.rest_word();
  if (!expression)
    throw UsageError(std::string("%data needs the indices that a rank reads, or its sampler: %data sampler; usage: ") +
                     kDataUsage);
  const CellSettings settings = inspector_settings(call, spec);
  std::string options = ".name(" + cxx_string(*expression) + ")";
  if (size) options += fmt::format(".size({})", parse_count(*size, "--size", 0));
  if (batch) options += fmt::format(".batch_size({})", parse_count(*batch, "--batch-size"));
  if (epoch) options += fmt::format(".epoch({})", parse_count(*epoch, "--epoch", 0));
  if (join) options += ".join(true)";
  if (spec) options += ".ranks(" + cxx_ranks(*settings.ranks) + ")";
  return run_inspector(call, fmt::format("__lockstep::data({}, __lockstep::DataOptions(){})", *expression, options),
                       settings);
}

const RegisterMagic kData(
    {.name = "data",
     .usage = kDataUsage,
     .summary = "which samples each rank reads: doubled, missing, unequal numbers of batches, forgotten set_epoch",
     .help = "EXPR: the indices that this rank reads in an epoch (a tensor, a vector, a vector of batches), or its "
             "sampler, of which a copy is read.\n"
             "--size N         samples in the dataset: then those that no rank reads are found\n"
             "--batch-size N   counts batches\n"
             "--epoch K        which epoch this is: an order that equals that of another epoch is reported\n"
             "--join           the loop runs under join(), so numbers of batches may differ\n"
             "--ranks SPEC     these ranks only",
     .line = data,
     .cell = {},
     .job_line = [](MagicCall& call) {
       return run_package_inspector(call, "data",
                                    {{"size", PythonOption::number},
                                     {"batch-size", PythonOption::number},
                                     {"epoch", PythonOption::number},
                                     {"join", PythonOption::flag}});
     }});

}  // namespace
}  // namespace lockstep::shell
