// Ranks that end before anybody has looked for them.
#include "shell/jobs/rank_watch.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/log/process_identity.h"

namespace lockstep::shell {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RankWatchTest, ARankThatEndedBeforeItWasSeenHasComeAndEnded) {
  Pipe go = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    go.write.reset();
    char byte = 0;
    [[maybe_unused]] const ssize_t end = ::read(go.read.get(), &byte, 1);
    ::_exit(3);
  }
  JobMember member{.facts = {.rank = 1, .world_size = 2, .pid = pid}, .socket = ""};
  member.facts.start_time = dist::process_start_time(pid).value();
  go.write.reset();
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);

  EventLoop loop;
  std::vector<std::string> events;
  RankWatch watch(loop, [&] { return std::vector<JobMember>{member}; },
                  {.came = [&](const JobMember& rank) { events.push_back("came " + std::to_string(rank.facts.rank)); },
                   .changed = [](const JobMember&) {},
                   .ended = [&](const JobMember&, const SeenEnd& end) { events.push_back(end.words()); }});
  member.facts.start_time -= 1;  // another process had the number
  watch.look();
  EXPECT_THAT(events, IsEmpty());
  member.facts.start_time += 1;
  member.is_alive = true;  // as it was when its file was read
  watch.look();
  loop.run_once();
  watch.look();
  EXPECT_THAT(
      events,
      ElementsAre("came 1",
                  "ended with exit code 3 and said nothing of an exception (os._exit, or exit() of a library)"));
  ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace lockstep::shell
