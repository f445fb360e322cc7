// Recordings of `lockstep compare`, which may come from another machine, and the options of a run.
#include <cstring>
#include <functional>

#include "inspectors/compare/folders.h"
#include "inspectors/compare/judge.h"
#include "inspectors/compare/recording.h"
#include "protocol/checksum.h"
#include "protocol/error.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

namespace compare = inspect::compare;

/// Returns the file with checksums that fit its records, which no change by chance finds.
std::string with_checksums(std::string_view bytes) {
  constexpr size_t kStart = 20, kHeader = 24;  // of the file, of a record (docs/compare.md)
  std::string file(bytes);
  for (size_t at = kStart; at + kHeader <= file.size();) {
    uint64_t size = 0;
    std::memcpy(&size, file.data() + at + 8, sizeof size);
    if (size > file.size() - at - kHeader) break;
    const uint64_t sum = protocol::checksum({file.data() + at + kHeader, size});
    std::memcpy(file.data() + at + 16, &sum, sizeof sum);
    at += kHeader + size;
  }
  return file;
}

/// What was read is compared with itself.
void compare_with_itself(std::string_view bytes) {
  compare::Run run;
  try {
    run.ranks.push_back(compare::read_recording(written("rank-0.rec", bytes)));
  } catch (const Error&) {
    return;
  }
  for (const compare::Piece& piece : run.ranks.front().pieces) {
    try {
      if (piece.values_at != 0) run.ranks.front().values(piece);
    } catch (const Error&) {
    }
  }
  for (const auto& judged : {std::function([&] { compare::judge_same_layout(run, run); }),
                             std::function([&] { compare::judge(run, {run}, run); }),
                             std::function([&] { compare::judge(run, {}, run, {.rtol = 1e-6}); })}) {
    try {
      judged();
    } catch (const Error&) {
    }
  }
}

/// As it is, and with the checksums that fit it.
void compare_recording(std::string_view bytes) {
  compare_with_itself(bytes);
  compare_with_itself(with_checksums(bytes));
}

void compare_options(std::string_view bytes) {
  written("run/options.json", bytes);
  try {
    compare::read_run_options(folder() + "/run");
  } catch (const Error&) {
  }
}

const AddTarget kCompareRecording("compare_recording", compare_recording),
    kCompareOptions("compare_options", compare_options);

}  // namespace
}  // namespace lockstep::fuzz
