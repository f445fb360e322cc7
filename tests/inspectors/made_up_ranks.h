// Pictures of ranks that do not exist, for tests of what is said about them.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

inline constexpr int64_t kMillisecond = 1'000'000;

/// Ranks that have done nothing yet, all in cell 7, in the group "default".
class MadeUp {
 public:
  explicit MadeUp(int size) : size_(size) {
    picture.cell = picture.number = 7;
    picture.now_ns = 100'000 * kMillisecond;
    for (int r = 0; r < size; ++r) {
      RankPicture rank;
      rank.rank = r;
      rank.has_log = true;
      rank.main_thread = 1000 + r;
      rank.activity = FindingKind::computing;
      rank.stack = {{"compute()", 7, 20 + r, ""}, {"", 7, 30, ""}};
      picture.ranks.push_back(rank);
    }
    std::vector<int> all;
    for (int r = 0; r < size; ++r) all.push_back(r);
    add_group("default", all);
  }

  void add_group(const std::string& name, const std::vector<int>& ranks) {
    for (RankPicture& rank : picture.ranks) {
      dist::LoggedGroup group;
      group.name = name;
      group.ranks = ranks;
      group.member = std::find(ranks.begin(), ranks.end(), rank.rank) != ranks.end();
      rank.groups.push_back(group);
    }
  }

  dist::LoggedGroup& group(int rank, const std::string& name) {
    for (auto& each : at(rank).groups)
      if (each.name == name) return each;
    throw std::out_of_range(name);
  }

  struct Options {
    std::string group = "default";
    int root = -1;
    int tag = 0;
    bool async = false;
    std::string reduce_op = "SUM";
    std::string dtype = "float32";
    std::vector<int64_t> shape = {2};
    int line = 4;
    bool waits = true;  // in it, for what is in flight
  };

  /// The rank has made the call, and it is over.
  void done(int rank, const std::string& op, const Options& options) { record(rank, op, options, true); }
  void done(int rank, const std::string& op) { done(rank, op, Options()); }
  /// The rank has made the call and sits in it.
  void enters(int rank, const std::string& op, const Options& options) {
    auto call = record(rank, op, options, false);
    at(rank).waits.push_back({call, "cell 7, line " + std::to_string(options.line)});
    if (!options.waits) return;
    at(rank).activity = FindingKind::collective;
    at(rank).stack = {{"lockstep::dist::" + op, 0, 0, "liblockstep.so"}, {"", 7, options.line, ""}};
  }
  void enters(int rank, const std::string& op) { enters(rank, op, Options()); }
  void enters(int rank, const std::string& op, const std::string& group) {
    Options options;
    options.group = group;
    enters(rank, op, options);
  }
  void finishes(int rank) { leave(rank, CellStatus::ok); }
  void throws(int rank, const std::string& type = "std::runtime_error", const std::string& text = "boom") {
    leave(rank, CellStatus::error);
    at(rank).error_type = type;
    at(rank).error_text = text;
    at(rank).where = "cell 7, line 3";
  }
  /// The collective that it sits in breaks, because of another rank, and that ends its cell.
  void breaks_off(int rank) {
    auto& waits = at(rank).waits;
    for (auto& record : at(rank).recent)
      if (record.entry == waits.back().call.entry) record.state = dist::CollectiveState::failed;
    const std::string where = waits.back().where;
    waits.clear();
    throws(rank, "lockstep::dist::PeerLeft", "a rank left");
    at(rank).where = where;
    at(rank).consequence = true;
  }
  void destroys(int rank, const std::string& group) {
    std::erase_if(at(rank).groups, [&](const auto& each) { return each.name == group; });
  }
  void dies(int rank) {
    at(rank).place = RankPicture::Place::dead;
    at(rank).error_type = "SIGKILL";
  }

  RankPicture& at(int rank) { return picture.ranks.at(static_cast<size_t>(rank)); }
  int size() const { return size_; }

  HangPicture picture;

 private:
  void leave(int rank, CellStatus how) {
    at(rank).place = RankPicture::Place::left;
    at(rank).how = how;
    at(rank).activity = FindingKind::idle;
    at(rank).stack.clear();
  }

  dist::CollectiveRecord record(int rank, const std::string& op, const Options& options, bool over) {
    auto& group = this->group(rank, options.group);
    dist::CollectiveRecord call;
    call.group = options.group;
    call.op = op;
    call.point_to_point = op.starts_with("send") || op.starts_with("recv");
    call.root = options.root;
    call.tag = options.tag;
    if (call.point_to_point && call.root < 0) ++group.received_from_any;
    if (call.point_to_point) {
      call.tag_seq = ++tags_[{rank, op, call.root, call.tag}];
      call.seq = call.root < 0 ? 0 : ++(op.starts_with("send") ? group.sent : group.received)[options.root];
    }
    if (!call.point_to_point) call.seq = ++group.entered;
    if (op == "new_group") {
      call.shape = options.shape;  // its ranks
    } else if (op != "barrier" && op.find("object") == std::string::npos) {
      call.dtype = options.dtype;
      call.shape = options.shape;
      call.tensor_count = 1;
      call.bytes = 4;
      for (const int64_t n : options.shape) call.bytes *= n;
    }
    if (op.find("reduce") != std::string::npos) call.reduce_op = options.reduce_op;
    call.async = options.async;
    call.thread = at(rank).main_thread;
    call.cell = picture.cell;
    call.entry = at(rank).recent.size();
    call.entered_ns = picture.now_ns - 3000 * kMillisecond;
    call.state = over ? dist::CollectiveState::done : dist::CollectiveState::entered;
    if (over) call.done_ns = call.entered_ns + kMillisecond;
    at(rank).recent.push_back(call);
    at(rank).last_where = "cell 7, line " + std::to_string(options.line);
    return call;
  }

  int size_;
  std::map<std::tuple<int, std::string, int, int>, int64_t> tags_;  // calls of a rank by operation, peer and tag
};

}  // namespace lockstep::inspect
