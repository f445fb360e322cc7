// Ranks listen on the loopback interface, or where MASTER_ADDR says.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "collectives/dist.h"
#include "collectives/transport/group_sockets.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::spawn_processes;

TEST(Listeners, AreOnTheLoopbackInterfaceOnly) {
  spawn_processes(2, [](int, int) {
    const dist::Group group = dist::new_group();
    dist::barrier(group);
    int listening = 0;
    for (const dist::TcpSocket& socket : dist::open_tcp_sockets()) {
      if (!socket.listening) continue;
      ++listening;
      EXPECT_THAT(socket.local, ::testing::StartsWith("[127.0.0.1]:"));
    }
    EXPECT_EQ(listening, 2);  // one for each group
  });
}

TEST(Listeners, RankZerosStoreListensWhereMasterAddrSays) {
  spawn_processes(2,
                  [](int rank, int) {
                    // The port of the test's own store + an address of its own: 127.0.0.2 is free there.
                    setenv("MASTER_ADDR", "127.0.0.2", 1);
                    setenv("MASTER_PORT", std::getenv("LOCKSTEP_TEST_PORT"), 1);
                    setenv("RANK", std::to_string(rank).c_str(), 1);
                    setenv("WORLD_SIZE", "2", 1);
                    dist::init_process_group();
                    dist::barrier();
                    for (const dist::TcpSocket& socket : dist::open_tcp_sockets())
                      if (socket.listening) {
                        EXPECT_THAT(socket.local, ::testing::StartsWith("[127.0.0."));
                      }
                    dist::barrier();
                  },
                  {.initialise = false});
}

}  // namespace
}  // namespace lockstep
