#include "shell/cells/rank_queries.h"

#include <utility>

namespace lockstep::shell {

std::map<int, nlohmann::json> RankQueries::ask(const RankSet& ranks, const protocol::Question& question,
                                               std::chrono::milliseconds limit) {
  RankGroup& workers = services_.workers;
  const RankSet asked = ranks & workers.live();
  const int64_t id = ++last_id_;
  auto& answers = answers_[id];
  workers.hub().send(asked, protocol::Query{id, question});
  services_.loop.run_until([&] { return answers.size() >= (asked & workers.live()).size(); },
                           EventLoop::Clock::now() + limit);
  auto result = std::move(answers);
  answers_.erase(id);
  return result;
}

void RankQueries::answered(int rank, protocol::Reply reply) {
  if (const auto question = answers_.find(reply.id); question != answers_.end())
    question->second[rank] = std::move(reply.body);
}

}  // namespace lockstep::shell
