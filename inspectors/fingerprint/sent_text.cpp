#include "inspectors/fingerprint/sent_text.h"

#include <fmt/format.h>

#include <cmath>

#include "inspectors/fingerprint/fingerprint.h"

namespace lockstep::inspect {

nlohmann::json sent_text(const std::vector<at::Tensor>& tensors) {
  Hash hash{};
  double squares = 0;
  int64_t nan = 0, inf = 0;
  for (const Fingerprint& each : fingerprint(tensors)) {
    hash = combine(hash, each.hash);
    squares += each.norm * each.norm;
    nan += each.nan_count;
    inf += each.inf_count;
  }
  std::string words = fmt::format("norm {:.9g}", std::sqrt(squares));
  if (nan > 0) words += fmt::format(", {} NaN", nan);
  if (inf > 0) words += fmt::format(", {} Inf", inf);
  return {{"hash", hash}, {"words", fmt::format("{} (hash {:016x})", words, hash[0])}};
}

}  // namespace lockstep::inspect
