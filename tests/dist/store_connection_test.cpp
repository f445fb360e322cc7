// A connection of its own to the store: a wait in it ends when it is interrupted, and nothing is printed of it.
#include "dist/store_connection.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netdb.h>

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

TEST(StoreConnection, AnAddressOfIpv4IsItsOwnName) {
  Dl_info where{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getnameinfo), &where), 0);
  EXPECT_THAT(where.dli_fname, HasSubstr("liblockstep")) << "the C library's would ask a name server";

  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
  char host[NI_MAXHOST] = "";
  ASSERT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof address, host, sizeof host, nullptr, 0, 0), 0);
  EXPECT_STREQ(host, "::ffff:127.0.0.1");
}

}  // namespace
}  // namespace lockstep
