// Saved replicas: LibTorch's files and Python's are compared as ranks are, and files that are neither are told why.
#include "inspectors/verify/verify.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "inspectors/pickle/python_pickle.h"
#include "protocol/dist_error.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/inspectors/saved_files.h"

namespace lockstep::inspect {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

/// Written by Python: files/write.py.
std::string python_file(const std::string& name) { return LOCKSTEP_TEST_FILES "/" + name; }

std::map<std::string, Item> items_of(const std::string& path) {
  std::map<std::string, Item> items;
  for (const Item& each : saved_replica(path).items) items.emplace(each.name, each);
  return items;
}

TEST(SavedReplica, ArchivesOfLibTorchAreCompared) {
  const SavedFolder folder;
  std::vector<std::string> paths;
  for (int rank = 0; rank < 3; ++rank) {
    const auto net = equal_net();
    if (rank == 1) change(net->second->bias, [](torch::Tensor& bias) { bias[2] += 0.5; });
    paths.push_back(folder / std::to_string(rank));
    torch::save(net, paths.back());
  }
  const Finding finding = only_finding(verify_files(paths));
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.kind, FindingKind::parameter);
  EXPECT_THAT(names(finding), ElementsAre("second.bias"));
  EXPECT_THAT(finding.tensors[0].first, ElementsAre(2));
  EXPECT_TRUE(verify_files({paths[0], paths[2]}).ok());
}

TEST(SavedReplica, OptimizersOfLibTorchAreComparedByTheirParametersPlaces) {
  const SavedFolder folder;
  std::vector<std::string> paths;
  std::vector<std::shared_ptr<ReplicaNet>> nets;  // all alive: each has addresses of its own
  for (int rank = 0; rank < 3; ++rank) {
    nets.push_back(equal_net());
    torch::optim::Adam adam(nets.back()->parameters());
    for (auto& parameter : nets.back()->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    if (rank == 2) nets.back()->parameters()[1].mutable_grad()[3] = 2;
    adam.step();
    paths.push_back(folder / std::to_string(rank));
    torch::save(adam, paths.back());
  }
  EXPECT_TRUE(verify_files({paths[0], paths[1]}).ok()) << verify_files({paths[0], paths[1]});
  const Finding finding = only_finding(verify_files(paths));
  EXPECT_EQ(finding.ranks, RankSet{2});
  EXPECT_EQ(finding.kind, FindingKind::state);
  EXPECT_THAT(names(finding), ElementsAre("state.0.1.exp_avg", "state.0.1.exp_avg_sq"));
}

TEST(SavedReplica, StateDictsOfPythonAreCompared) {
  const std::vector<std::string> paths = {python_file("state-dict-0.pt"), python_file("state-dict-1.pt")};
  const Finding finding = only_finding(verify_files(paths));
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_THAT(names(finding), ElementsAre("0.weight"));
  EXPECT_EQ(finding.tensors[0].count, 1);
  EXPECT_THAT(finding.tensors[0].first, ElementsAre(2, 1));
  EXPECT_NEAR(*finding.tensors[0].max_abs_diff, 0.5, 1e-6);
  EXPECT_TRUE(verify_files({paths[0], paths[0]}).ok());
  EXPECT_EQ(saved_replica(paths[0]).items.size(), 7U);  // those of a Linear and a BatchNorm1d, and nothing else
}

TEST(SavedReplica, ACheckpointOfPythonHasEveryTensorAndValueUnderItsName) {
  auto items = items_of(python_file("checkpoint-1.pt"));
  EXPECT_EQ(items.at("model.1.num_batches_tracked").tensor.item<int64_t>(), 1);
  EXPECT_EQ(items.at("optimizer.state.0.exp_avg").tensor.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(items.at("optimizer.param_groups[0].lr").value, "0.02");
  EXPECT_EQ(items.at("optimizer.param_groups[0].params[3]").value, "3");
  const torch::Tensor half = torch::arange(12, at::kBFloat16);
  half[7] += 1;
  EXPECT_TRUE(at::equal(items.at("shared.whole").tensor, half));
  EXPECT_TRUE(at::equal(items.at("shared.transposed").tensor, half.view({3, 4}).t()));
  EXPECT_TRUE(at::equal(items.at("shared.end").tensor, half.slice(0, 6)));
  EXPECT_EQ(items.at("kinds[0]").tensor.item<int64_t>(), 5);
  EXPECT_EQ(items.at("kinds[1]").tensor.sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_TRUE(at::equal(items.at("kinds[2]").tensor, torch::tensor({true, false})));
  EXPECT_TRUE(items.at("kinds[3]").tensor.is_conj());
  EXPECT_EQ(items.at("kinds[3]").tensor.item<c10::complex<float>>(), (c10::complex<float>(1, -2)));
  EXPECT_EQ(items.at("kinds[4]").tensor.scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(items.at("kinds[5]").tensor.item<int64_t>(), 60000);
  EXPECT_EQ(items.at("kinds[6]").kind, FindingKind::parameter);
  EXPECT_TRUE(items.at("kinds[6]").trainable);
  EXPECT_EQ(items.at("epoch").value, "3");
  EXPECT_EQ(items.at("loss").value, "0.225");
  EXPECT_EQ(items.at("negative").value, "-129");
  EXPECT_EQ(items.at("big").value, "0x400000000000000000");
  EXPECT_EQ(items.at("seen").value, "{'a', 'b', 'c'}");
  EXPECT_THAT(items.at("device").value, HasSubstr("cpu"));
}

TEST(SavedReplica, WhatDiffersBetweenCheckpointsOfPythonIsNamed) {
  const Report report = verify_files({python_file("checkpoint-0.pt"), python_file("checkpoint-1.pt")});
  std::map<std::optional<FindingKind>, std::vector<std::string>> by_kind;
  for (const Finding& each : report.findings) by_kind[each.kind] = names(each);
  EXPECT_THAT(by_kind[FindingKind::value], ElementsAre("optimizer.param_groups[0].lr", "loss"));
  EXPECT_THAT(by_kind[FindingKind::tensor],
              ElementsAre("model.0.weight", "shared.whole", "shared.transposed", "shared.end"))
      << report;
}

TEST(SavedReplica, AWholeModuleOfPythonIsReadWithoutItsClass) {
  const auto items = items_of(python_file("module.pt"));
  std::vector<std::string> found;
  for (const auto& [name, item] : items)
    if (item.tensor.defined()) found.push_back(std::string(to_string(item.kind)) + " " + name);
  EXPECT_EQ(items.at("0.__class__").value, "torch.nn.modules.linear.Linear");
  EXPECT_EQ(items.at("1.eps").value, "1e-05");
  EXPECT_EQ(items.at("training").value, "True");
  EXPECT_THAT(found,
              ElementsAre("parameter 0.bias", "parameter 0.weight", "parameter 1.bias", "buffer 1.num_batches_tracked",
                          "buffer 1.running_mean", "buffer 1.running_var", "parameter 1.weight"));
}

TEST(SavedReplica, TensorsOfPythonsFilesOutliveTheirReading) {
  const SavedFolder folder;
  const std::string path = written(folder / "copy.pt", file_bytes(python_file("state-dict-0.pt")));
  const torch::Tensor weight = items_of(path).at("0.weight").tensor;
  std::filesystem::remove(path);
  EXPECT_TRUE(at::equal(weight, items_of(python_file("state-dict-0.pt")).at("0.weight").tensor));
}

TEST(SavedReplica, FilesThatAreNoneSayWhatTheyAre) {
  const SavedFolder folder;
  EXPECT_THAT(load_error(folder / "absent.pt"), AllOf(HasSubstr("absent.pt"), HasSubstr("does not exist")));
  EXPECT_THAT(load_error(folder / ""), HasSubstr("folder"));
  EXPECT_THAT(load_error(written(folder / "empty.pt", "")), HasSubstr("empty"));
  EXPECT_THAT(load_error(written(folder / "text.pt", "hello")), HasSubstr("no file of torch.save"));
  EXPECT_THAT(load_error(python_file("old-format.pt")), HasSubstr("before 1.6"));
  EXPECT_THROW(verify_files({python_file("module.pt")}), dist::ArgumentError);
}

TEST(SavedReplica, AFileThatIsCutOffOrDamagedEndsInAnError) {
  const SavedFolder folder;
  const std::string whole = file_bytes(python_file("checkpoint-0.pt"));
  for (size_t size = 1; size < whole.size(); size += 97)
    EXPECT_THAT(load_error(written(folder / "cut.pt", whole.substr(0, size))), HasSubstr("cut.pt")) << size << " bytes";
  EXPECT_THAT(load_error(written(folder / "cut.pt", whole.substr(0, whole.size() / 2))), HasSubstr("cut off"));
  // Whichever byte of the pickle is wrong, it is read, or refused in words.
  const size_t pickle = whole.find("\x80\x02"), end = whole.find("PK", pickle);
  for (size_t place = pickle; place < end; place += 5) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x15);
    const std::string error = load_error(written(folder / "damaged.pt", damaged));
    EXPECT_TRUE(error == "none" || error.find("damaged.pt") != std::string::npos) << error;
  }
  std::string damaged = whole;
  damaged[pickle + 2] = '\xff';
  EXPECT_THAT(load_error(written(folder / "damaged.pt", damaged)), HasSubstr("opcode 0xff"));
}

TEST(Pickle, SharesWhatIsSharedAndRunsNothing) {
  // (os.system, 'echo', …): a call stays a call.
  const Pickle call("cos\nsystem\nX\x04\0\0\0echo\x85R."sv);
  EXPECT_TRUE(call.value()->is_call_of("os.system"));
  ReadingLimit limit;
  EXPECT_EQ(text_of(call.value(), limit), "os.system['echo']");
  const Pickle twice(
      "]q\0K\x07"
      "ah\0\x86."sv);
  EXPECT_EQ(twice.value()->items.at(0), twice.value()->items.at(1));
  EXPECT_EQ(text_of(twice.value(), limit), "[[7], [7]]");
}

TEST(Pickle, RefusesWhatIsNoPickle) {
  // Ends early; nothing to take; a mark that is not there; a name that nobody gave; values within themselves.
  for (const std::string_view bytes : {"]"sv, "."sv, "t."sv, "h\x01."sv, "(."sv})
    EXPECT_THROW(Pickle{bytes}, std::runtime_error);
  const Pickle within("]q\0h\0a."sv);
  ReadingLimit limit;
  EXPECT_THROW(text_of(within.value(), limit), std::runtime_error);
}

TEST(Pickle, ValuesWithinValuesAreNoDanger) {
  constexpr size_t kDeep = 1'000'000;
  const Pickle tuples(")" + std::string(kDeep, '\x85') + ".");
  ReadingLimit limit(size_t{1} << 20);
  EXPECT_THROW(text_of(tuples.value(), limit), std::runtime_error);
  EXPECT_THROW(Pickle(")" + std::string(kDeep, '\x85')), std::runtime_error) << "and no end";
  std::string doubled = ")";
  for (int i = 0; i < 60; ++i) doubled += "2\x86";
  const Pickle twice(doubled + ".");
  EXPECT_THROW(text_of(twice.value(), limit), ReadingLimitError);
}

}  // namespace
}  // namespace lockstep::inspect
