// A connection of its own to the store: a wait in it ends when it is interrupted, and nothing is printed of it.
#include "dist/store_connection.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <future>

#include "dist/tcp_store.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(StoreConnection, InterruptEndsAWaitWithoutAWarningOfC10d) {
  const dist::Store store = dist::serve_store("127.0.0.1", 0);
  auto connection = std::make_unique<dist::StoreConnection>(store);
  CaptureStderr();
  std::promise<void> begins;
  auto wait = std::async(std::launch::async, [&] {
    begins.set_value();
    connection->store()->wait({"never"}, std::chrono::minutes(1));
  });
  begins.get_future().wait();
  connection->interrupt();
  EXPECT_ANY_THROW(wait.get());
  EXPECT_ANY_THROW(connection->store()->wait({"never"}, std::chrono::minutes(1)));
  EXPECT_EQ(GetCapturedStderr(), "");

  // Afterwards warnings are shown again, and the store's other connections work.
  connection.reset();
  CaptureStderr();
  TORCH_WARN("of the program");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("of the program"));
  store->set("key", "value");
  EXPECT_EQ(store->get_to_str("key"), "value");
}

}  // namespace
}  // namespace lockstep
