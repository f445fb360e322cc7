#include "shell/cells/rank_queries.h"

#include <utility>

namespace lockstep::shell {

std::map<int, protocol::Answer> RankQueries::ask(const RankSet& ranks, const protocol::Question& question,
                                                 std::chrono::milliseconds limit) {
  RankGroup& workers = services_.workers;
  const RankSet asked = ranks & workers.live();
  const int64_t id = ++last_id_;
  const auto& bodies = bodies_[id];
  workers.hub().send(asked, protocol::Query{id, question});
  services_.loop.run_until([&] { return bodies.size() >= (asked & workers.live()).size(); },
                           EventLoop::Clock::now() + limit);
  std::map<int, protocol::Answer> answers;
  for (const auto& [rank, body] : bodies) answers.emplace(rank, decode_answer(question, body));
  bodies_.erase(id);
  return answers;
}

void RankQueries::answered(int rank, protocol::Reply reply) {
  if (const auto question = bodies_.find(reply.id); question != bodies_.end())
    question->second[rank] = std::move(reply.body);
}

}  // namespace lockstep::shell
