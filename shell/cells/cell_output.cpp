#include "shell/cells/cell_output.h"

#include <malloc.h>

#include <map>
#include <utility>

#include "shell/processes/session_plan.h"

namespace lockstep::shell {

using Clock = EventLoop::Clock;

constexpr size_t kMuch = 16 << 20;  // bytes of output

CellOutput::CellOutput(const CellServices& services, std::function<void(const RankSet&, const std::string&)> marked)
    : workers_(services.workers),
      early_(services.options.early_output),
      merger_(
          services.emit, [this](const RankSet& ranks, int64_t bytes) { give_credit(ranks, bytes); },
          [marked = std::move(marked)](const RankSet& ranks, int64_t, const std::string& mark) { marked(ranks, mark); },
          fold_time().value_or(OutputMerger::kDefaultFoldTime)),
      due_(services.loop) {}

CellOutput::~CellOutput() { flush(); }

void CellOutput::left(int rank) {
  merger_.left(rank, Clock::now());
  due_.serve(merger_);
}

void CellOutput::output(int rank, int64_t number, Stream stream, std::string bytes) {
  if (early_) early_(rank, stream, bytes);
  taken_ += bytes.size();
  merger_.output(rank, number, stream, std::move(bytes), Clock::now());
  due_.serve(merger_);
}

void CellOutput::value(int rank, int64_t number, protocol::Value value) {
  value.cell = number;
  merger_.value(rank, std::move(value), Clock::now());
  due_.serve(merger_);
}

void CellOutput::mark(int rank, int64_t number, std::string name) {
  merger_.mark(rank, number, std::move(name), Clock::now());
  due_.serve(merger_);
}

void CellOutput::flush() {
  merger_.flush();
  if (std::exchange(taken_, 0) > kMuch) ::malloc_trim(0);  // glibc keeps what is freed in the middle of its heap
}

void CellOutput::give_credit(const RankSet& ranks, int64_t bytes) {
  std::map<int64_t, RankSet> due;  // ranks that have written the same are one message
  for (const int rank : ranks) {
    int64_t& owed = owed_credit_[rank];
    owed += bytes;
    if (owed >= protocol::output_window(workers_.world_size()) / 4) due[std::exchange(owed, 0)].insert(rank);
  }
  for (const auto& [amount, to] : due) workers_.hub().send(to, protocol::Credit{amount});
}

}  // namespace lockstep::shell
