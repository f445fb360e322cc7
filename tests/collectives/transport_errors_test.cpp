// What an exception of the transport means is known from its type, the connections and the clock: its text may say
// anything.
#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/transport/backend_factory.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

/// What the backend below does in the next call.
struct Behaviour {
  std::string text;
  bool is_transport_error = false, lost_connection = false;
} behaviour;

class FailingBackend : public c10d::Backend {
 public:
  FailingBackend() : c10d::Backend(0, 1) {}
  const std::string getBackendName() const override { return "failing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    throw std::runtime_error(behaviour.text);
  }
};

class FailingConnector : public dist::BackendConnector {
 public:
  std::string announcement() override { return "here"; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>&, const std::vector<std::string>&,
                                            std::chrono::milliseconds) override {
    return c10::make_intrusive<FailingBackend>();
  }
  void interrupt() noexcept override {}
  bool is_transport_error(const std::exception_ptr&) const noexcept override { return behaviour.is_transport_error; }
  bool lost_connection() const noexcept override { return behaviour.lost_connection; }
};

/// Of an all_reduce of one rank that the backend fails.
Outcome failure(Behaviour next, std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  dist::register_backend("failing", c10::DeviceType::CPU,
                         [](const dist::GroupDescription&) { return std::make_unique<FailingConnector>(); });
  behaviour = std::move(next);
  return testing::run_as_threads(
             1,
             [&](int, int) {
               dist::init_process_group(dist::InitOptions{.backend = "failing",
                                                          .timeout = timeout,
                                                          .world_size = 1,
                                                          .rank = 0,
                                                          .store = c10::make_intrusive<c10d::HashStore>()});
               dist::all_reduce(at::ones({3}));
             },
             {.initialise = false})
      .front();
}

TEST(TransportErrors, AnArgumentThatIsRefusedIsNoLostConnectionWhateverItsTextSays) {
  for (const char* text : {"the tensor of layer 'socket' is refused", "Connection.weight has a wrong shape",
                           "this was Timed out of scope", "Broken pipeline"}) {
    const Outcome outcome = failure({.text = text});
    EXPECT_EQ(outcome.type, "lockstep::dist::Error") << outcome;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(text), Not(HasSubstr("left"))));
  }
}

TEST(TransportErrors, ALostConnectionIsKnownWithoutItsText) {
  const Outcome outcome = failure({.text = "E107", .is_transport_error = true, .lost_connection = true});
  EXPECT_EQ(outcome.type, "lockstep::dist::PeerLeft") << outcome;
}

TEST(TransportErrors, ATimeLimitIsKnownWithoutItsText) {
  EXPECT_EQ(failure({.text = "E110", .is_transport_error = true}).type, "lockstep::dist::TimedOut");
}

// Ranks with the same limit reach it together: the first closes its connections, and the next still timed out.
TEST(TransportErrors, PastItsLimitACallHasTimedOutAlthoughConnectionsHaveEnded) {
  const Outcome outcome =
      failure({.text = "E107", .is_transport_error = true, .lost_connection = true}, std::chrono::milliseconds(0));
  EXPECT_EQ(outcome.type, "lockstep::dist::TimedOut") << outcome;
}

}  // namespace
}  // namespace lockstep
