// Invitations of shells, as the agent's requests and the rank see them (python/operators/invitations.h).
#include "python/operators/invitations.h"

#include <gtest/gtest.h>

#include "python/agent/agent.h"
#include "python/agent/server.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

json ask(const char* name, const json& request) { return agent::find_handler(name)->first(request); }

TEST(Invitations, AShellTakesItsOwnBack) {
  expect_invitations();
  EXPECT_EQ(take_invitation(), json({{"invitation", nullptr}, {"detached", false}}));
  ask("serve", {{"hub", "a"}, {"identity", "i"}});
  EXPECT_EQ(ask("take_back", {{"hub", "b"}})["taken_back"], false);
  EXPECT_EQ(ask("take_back", {{"hub", "a"}})["taken_back"], true);
  EXPECT_TRUE(take_invitation()["invitation"].is_null());
  ask("serve", {{"hub", "a"}, {"identity", "i"}});
  EXPECT_EQ(take_invitation()["invitation"], json({{"hub", "a"}, {"identity", "i"}}));
}

TEST(Invitations, ARankThatComesToItsStepCountsAsStopped) {
  expect_invitations();
  EXPECT_FALSE(stops_at(3));
  const json late = ask("stop_at", {{"step", 3}});
  EXPECT_EQ(late["late"], true);
  EXPECT_TRUE(late["stopped"].is_null());
  EXPECT_EQ(ask("stop_at", {{"step", 5}})["late"], false);
  EXPECT_FALSE(stops_at(4));
  EXPECT_TRUE(stops_at(5));
  EXPECT_EQ(ask("stop_at", json::object())["stopped"], "");
  set_stopped("t.py");
  EXPECT_EQ(ask("stop_at", json::object())["stopped"], "t.py");
  set_stopped(nullptr);
  EXPECT_TRUE(ask("stop_at", json::object())["stopped"].is_null());
}

TEST(Invitations, DetachReachesARankAtAnyTime) {
  expect_invitations();
  ask("detach", json::object());
  EXPECT_EQ(take_invitation()["detached"], true);
}

}  // namespace
}  // namespace lockstep::python
