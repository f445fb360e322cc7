// Recordings in which each rank has kept its share of what all of them have received.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <filesystem>

#include "collectives/record/rank_files.h"
#include "collectives/replay/player.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {
namespace {

using nlohmann::json;

json sum_of(const std::vector<at::Tensor>& tensors) { return {{"sum", tensors.at(0).sum().item<double>()}}; }

/// Two ranks that have received 0, 1, … 7 from an all_reduce of ones.
class ReplayShares : public ::testing::Test {
 protected:
  ReplayShares() {
    std::string name = std::filesystem::temp_directory_path() / "shares-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ReplayShares() override { std::filesystem::remove_all(folder_); }

  static at::Tensor sent() { return torch::ones({8}); }
  static at::Tensor received() { return torch::arange(8, torch::kFloat); }

  void write(RankFiles& files, int rank, bool keeps_share) {
    const TransportCall call{.name = "allreduce", .sent = {sent()}, .received = {received()}};
    json text = call_text(call, "default", nullptr, sum_of);
    text.update({{"number", 1}, {"step", -1}});
    ASSERT_EQ(files.append(0, RecordKind::about, {{"rank", rank}, {"world_size", 2}}), 0);
    ASSERT_EQ(files.append(0, RecordKind::call, text), 0);
    if (!keeps_share) return;
    const at::Tensor all = received();
    const std::string_view bytes(static_cast<const char*>(all.const_data_ptr()), all.nbytes());
    const json result = {
        {"number", 1}, {"received", tensors_text({all})}, {"shared", "default of 0-1/1/1"}, {"share", {rank, 2}}};
    ASSERT_EQ(files.append(0, RecordKind::result, result, {bytes.substr(16 * static_cast<size_t>(rank), 16)}), 0);
  }

  /// What rank 0 receives when it is replayed.
  at::Tensor replayed(bool other_keeps_share = true) {
    RankFiles first(folder_, 0), second(folder_, 1);
    write(first, 0, true);
    write(second, 1, other_keeps_share);
    const std::string path = folder_ + "/recording";
    EXPECT_EQ(write_recording(folder_, 2, path).ranks.str(), "0-1");
    player_ = std::make_shared<Player>(path, 0, sum_of);
    const auto transport = player_->transport("default", 0, 2);
    std::vector<at::Tensor> tensors = {sent()};
    transport->allreduce(tensors, {})->wait();
    return tensors[0];
  }

  std::string folder_;
  std::shared_ptr<Player> player_;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(ReplayShares, ArePutTogether) {
  EXPECT_TRUE(torch::equal(replayed(), received()));
  EXPECT_FALSE(player_->conclusion().departed);
}

TEST_F(ReplayShares, AMissingOneEndsTheReplay) {
  EXPECT_NE(message_of([this] { replayed(false); }).find("share 2 of 2 of its result is missing"), std::string::npos);
  EXPECT_TRUE(player_->conclusion().is_over);
  EXPECT_FALSE(player_->conclusion().departed);
}

}  // namespace
}  // namespace lockstep::dist
