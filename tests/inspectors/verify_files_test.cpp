// Saved replicas in different formats: what is compared, what is left out, and that it is said.
#include "inspectors/verify/verify.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "protocol/dist_error.h"
#include "tests/inspectors/reports.h"
#include "tests/inspectors/saved_files.h"

namespace lockstep::inspect {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

/// Written by Python: files/write_formats.py.
std::string saved(const std::string& name) { return LOCKSTEP_TEST_FILES "/" + name; }

Finding only_fault(const Report& report) {
  Report faults;
  for (const Finding& each : report.findings)
    if (each.severity == Severity::fault) faults.findings.push_back(each);
  return only_finding(faults);
}

std::string messages(const Report& report) {
  std::string text;
  for (const Finding& each : report.findings) text += std::string(to_string(each.verdict)) + ": " + each.message + "\n";
  return text;
}

/// A copy of a checkpoint's folder that a test may damage.
std::string copied(const SavedFolder& to, const std::string& folder) {
  const std::string path = to / folder;
  std::filesystem::copy(saved(folder), path, std::filesystem::copy_options::recursive);
  return path;
}

TEST(VerifyFiles, MessagesNameFilesAndNoRanks) {
  const Report report =
      verify_files({saved("formats.safetensors"), saved("formats-other.safetensors"), saved("formats.safetensors")});
  const Finding finding = only_fault(report);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.object, "3 files");
  // Two of the three have the same last part, so the paths stand.
  EXPECT_THAT(finding.message, AllOf(HasSubstr("formats-other.safetensors differs from "), Not(HasSubstr("rank"))));
  EXPECT_THAT(names(finding), ElementsAre("0.weight"));
  const Report two = verify_files({saved("formats.safetensors"), saved("formats-other.safetensors")});
  EXPECT_THAT(messages(two), HasSubstr("formats.safetensors and formats-other.safetensors differ"));
  EXPECT_THAT(messages(two), HasSubstr("in formats-other.safetensors"));
  EXPECT_THAT(messages(two), Not(HasSubstr("rank")));
}

TEST(VerifyFiles, ShortNamesAreTheLastPartsWhereTheseDiffer) {
  EXPECT_THAT(short_names({"a/x.pt", "b/y.pt"}), ElementsAre("x.pt", "y.pt"));
  EXPECT_THAT(short_names({"a/x.pt", "b/x.pt"}), ElementsAre("a/x.pt", "b/x.pt"));
  EXPECT_THAT(short_names({"step-1/", "step-2"}), ElementsAre("step-1", "step-2"));
}

TEST(VerifyFiles, SafetensorsHasTheTensorsOfTheStateDict) {
  const SavedReplica replica = saved_replica(saved("formats.safetensors"));
  EXPECT_EQ(replica.items.size(), 7U);
  EXPECT_EQ(replica.unseen.size(), 1U);  // its metadata
  const Report report = verify_files({saved("formats-state.pt"), saved("formats.safetensors")});
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_EQ(report.findings.size(), 1U) << report;
  EXPECT_EQ(report.tensors, 7);
  EXPECT_THAT(names(only_fault(verify_files({saved("formats-state.pt"), saved("formats-other.safetensors")}))),
              ElementsAre("0.weight"));
}

TEST(VerifyFiles, ACompleteModelIsComparedWithAStateDict) {
  const Report report = verify_files({saved("formats-model.pt"), saved("formats-state.pt")});
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_EQ(report.tensors, 7);
  // The ok does not cover what a state dict has not.
  EXPECT_THAT(messages(report), AllOf(HasSubstr("not compared: 1 buffer of formats-model.pt"),
                                      HasSubstr("attributes of formats-model.pt")));
  EXPECT_FALSE(verify_files({saved("formats-model.pt"), saved("formats-other.safetensors")}).ok());
}

TEST(VerifyFiles, AWrappersPrefixIsNamedAndComparedWithout) {
  const Report report = verify_files({saved("formats-state.pt"), saved("formats-wrapped.pt")});
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_THAT(messages(report), HasSubstr("the names in formats-wrapped.pt are compared without `module.`"));
  EXPECT_EQ(report.tensors, 7);
  // A prefix that all of them have is part of the names.
  EXPECT_THAT(messages(verify_files({saved("formats-wrapped.pt"), saved("formats-wrapped.pt")})),
              Not(HasSubstr("compared without")));
}

TEST(VerifyFiles, TheModelInACheckpointIsComparedWithAStateDict) {
  const Report report = verify_files({saved("formats-job.pt"), saved("formats-other.safetensors")});
  EXPECT_THAT(names(only_fault(report)), ElementsAre("0.weight"));
  EXPECT_THAT(messages(report), AllOf(HasSubstr("of formats-job.pt the tensors below `model.module` are compared"),
                                      HasSubstr("not compared: 1 value of formats-job.pt")));
}

TEST(VerifyFiles, WhatOneFileLacksIsAFaultWhateverTheFormats) {
  const SavedFolder folder;
  torch::serialize::OutputArchive archive;
  for (const Item& each : saved_replica(saved("formats.safetensors")).items)
    if (each.name == "0.weight") archive.write(each.name, each.tensor);
  archive.save_to(folder / "part.pt");
  const Report report = verify_files({folder / "part.pt", saved("formats.safetensors")});
  EXPECT_EQ(only_fault(report).verdict, Verdict::missing);
  EXPECT_EQ(only_fault(report).tensors.size(), 6U) << report;
}

TEST(VerifyFiles, ACheckpointsTensorsArePutTogetherFromItsShards) {
  const SavedReplica two = saved_replica(saved("sharded-2"));
  std::vector<std::string> found;
  for (const Item& each : two.items) found.push_back(each.name);
  std::sort(found.begin(), found.end());
  EXPECT_THAT(found, ElementsAre("epoch", "model.bias", "model.none", "model.weight"));
  for (const Item& each : two.items)
    if (each.name == "model.weight") EXPECT_TRUE(at::equal(each.tensor, torch::arange(15.0f).reshape({5, 3})));
  EXPECT_TRUE(two.unseen.empty());
  const Report same = verify_files({saved("sharded-2"), saved("sharded-3"), saved("sharded-whole.pt")});
  EXPECT_TRUE(same.ok()) << same;
  EXPECT_EQ(same.findings.size(), 1U) << same;
  const Finding finding = only_fault(verify_files({saved("sharded-2"), saved("sharded-2-other")}));
  EXPECT_THAT(names(finding), ElementsAre("model.weight"));
  EXPECT_THAT(finding.tensors[0].first, ElementsAre(3, 2));
}

TEST(VerifyFiles, OneFileOfACheckpointIsNotTakenForAllOfIt) {
  // Its rank's shards are the same; those of the other rank are not.
  const Report report = verify_files({saved("sharded-2/__0_0.distcp"), saved("sharded-2-other/__0_0.distcp")});
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_THAT(messages(report), HasSubstr("are files of a checkpoint, and the rest of it is not compared"));
  EXPECT_FALSE(verify_files({saved("sharded-2/__1_0.distcp"), saved("sharded-2-other/__1_0.distcp")}).ok());
}

TEST(VerifyFiles, ADamagedCheckpointSaysWhere) {
  const SavedFolder folder;
  const std::string lost = copied(folder, "sharded-2");
  std::filesystem::remove(lost + "/__1_0.distcp");
  EXPECT_THAT(load_error(lost), AllOf(HasSubstr("sharded-2"), HasSubstr("__1_0.distcp is missing")));
  const std::string cut = copied(folder, "sharded-3");
  written(cut + "/__1_0.distcp", file_bytes(cut + "/__1_0.distcp").substr(0, 2000));
  EXPECT_THAT(load_error(cut), HasSubstr("__1_0.distcp"));
  EXPECT_THAT(load_error(folder / "."), HasSubstr("without the file .metadata"));
  // Whichever byte of the metadata is wrong, the folder is read, or refused in words.
  const std::string damaged = copied(folder, "sharded-2-other");
  const std::string metadata = file_bytes(damaged + "/.metadata");
  for (size_t at = 0; at < metadata.size(); at += 7) {
    std::string bytes = metadata;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x15);
    written(damaged + "/.metadata", bytes);
    const std::string error = load_error(damaged);
    EXPECT_TRUE(error == "none" || error.find("sharded-2-other") != std::string::npos) << at << ": " << error;
  }
  // No file outside of the folder.
  std::string outside = metadata;
  outside.replace(outside.find("__0_0.distcp"), 12, "../../../etc");
  written(damaged + "/.metadata", outside);
  EXPECT_THAT(load_error(damaged), HasSubstr("which is not in its folder"));
  // No bytes that belong to two shards: a small file could stand for any number of them.
  std::string shared = metadata;
  for (size_t at; (at = shared.find("__1_0.distcp")) != std::string::npos;) shared.replace(at, 12, "__0_0.distcp");
  written(damaged + "/.metadata", shared);
  EXPECT_THAT(load_error(damaged), HasSubstr("its metadata name the same bytes of __0_0.distcp"));
}

TEST(VerifyFiles, BytesThatBelongToNoShardAreNoOk) {
  const SavedFolder folder;
  const std::string more = copied(folder, "sharded-2");
  written(more + "/__1_0.distcp", file_bytes(more + "/__1_0.distcp") + "more");
  written(more + "/__7_0.distcp", "of an older job");
  const Report report = verify_files({more, saved("sharded-2")});
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_THAT(finding.message, AllOf(HasSubstr("__1_0.distcp from byte 5928 on"), HasSubstr("file __7_0.distcp")));
}

std::string safetensors(const std::string& header, const std::string& bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + bytes;
}

TEST(VerifyFiles, SafetensorsThatDoNotKeepToTheFormatAreRefused) {
  const SavedFolder folder;
  const auto error = [&](const std::string& header, const std::string& bytes) {
    return load_error(written(folder / "x.safetensors", safetensors(header, bytes)));
  };
  const std::string one = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(error(one, "1234"), "none");
  EXPECT_THAT(error(one, "12345"), HasSubstr("belong to no tensor"));
  EXPECT_THAT(error(one, "123"), HasSubstr("ends early"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("its shape needs 8"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", ""),
              HasSubstr("a size that no tensor has"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                    "123"),
              HasSubstr("belong to two tensors"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                    "1"),
              HasSubstr("names 'a' twice"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "1"), HasSubstr("dtype F4"));
  EXPECT_THAT(error("{\"a\"", ""), HasSubstr("no JSON"));
  EXPECT_THAT(error(R"({"a":7})", ""), HasSubstr("without dtype"));
  EXPECT_THAT(load_error(written(folder / "cut.safetensors", "12")), HasSubstr("cut off"));
}

}  // namespace
}  // namespace lockstep::inspect
