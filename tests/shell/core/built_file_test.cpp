// FILE.lockstep: what is written is read again, and what is damaged, cut off, hostile or of another version is refused
// with words and without a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "protocol/error.h"
#include "protocol/installation.h"
#include "shell/built/built_file.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

constexpr size_t kHeader = 48;  // docs/build.md

BuiltFile example() {
  BuiltFile file;
  set_versions(file, Versions{.libtorch = "2.11.0", .compiler = "clang 19.1.7"});
  file.ranks = 3;
  file.scripts.push_back(
      {"lesson.cpp",
       {{.markdown = true, .text = "# A lesson"},
        {.title = "ü", .tags = {{"expects-finding", "verify:mismatch"}}, .text = "int k = 1;\n", .line = 4}}});
  file.blobs = {"the prelude", std::string("\x7f"
                                           "ELF\0of a cell",
                                           13)};
  auto step = std::make_shared<BuiltStep>();
  step->request = protocol::Compile{.cell = 1, .text = "int k = 1;\n", .ranks = {0, 2}, .number = 1};
  protocol::Compiled compiled{.cell = 1, .status = CompileStatus::ok};
  compiled.objects.push_back(
      {.ranks = {0, 2}, .name = "cell_1.so", .entry = "e", .steps = {{1, {"k"}}}, .source = {}, .frame = 1});
  step->answer = compiled;
  step->settle = protocol::Settle{.cell = 1, .loaded = true, .steps_done = {{0, 1}, {2, 1}}};
  step->names = protocol::Names{{{.name = "k", .kind = "variable", .type = "int", .cell = 1, .ranks = {0, 2}}}};
  auto forgets = std::make_shared<BuiltStep>();
  forgets->request = protocol::Forget{.names = {"k"}};
  forgets->answer = protocol::Settled{};
  file.takes.push_back({3, {{step, forgets}}});
  file.takes.push_back({3, {{step}}});
  return file;
}

std::string refusal(const std::string& bytes) {
  try {
    parse_built_file(bytes, "demo.lockstep");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of_versions(const BuiltFile& file) {
  try {
    check_versions(file, "demo.lockstep");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(BuiltFile, IsReadAsItWasWritten) {
  const BuiltFile file = parse_built_file(serialize(example()), "demo.lockstep");
  EXPECT_EQ(file.versions.compiler, "clang 19.1.7");
  EXPECT_EQ(file.ranks, 3);
  EXPECT_EQ(file.blobs, example().blobs);
  ASSERT_EQ(file.scripts.size(), 1u);
  EXPECT_TRUE(file.scripts[0].cells[0].markdown);
  EXPECT_EQ(file.scripts[0].cells[1].title, "ü");
  EXPECT_EQ(file.scripts[0].cells[1].tags[0].value, "verify:mismatch");
  EXPECT_EQ(file.scripts[0].cells[1].line, 4);
  ASSERT_EQ(file.takes.size(), 2u);
  ASSERT_EQ(file.takes[0].sessions.at(0).size(), 2u);
  const BuiltStep& step = *file.takes[0].sessions[0][0];
  EXPECT_EQ(std::get<protocol::Compile>(step.request).ranks, (RankSet{0, 2}));
  EXPECT_EQ(std::get<protocol::Compiled>(step.answer).objects.at(0).steps.at(0).names, (std::vector<std::string>{"k"}));
  EXPECT_EQ(step.settle->steps_done.at(2), 1);
  EXPECT_EQ(step.names->names.at(0).type, "int");
  EXPECT_EQ(std::get<protocol::Forget>(file.takes[0].sessions[0][1]->request).names.at(0), "k");
  EXPECT_EQ(file.takes[1].sessions[0][0], file.takes[0].sessions[0][0]) << "takes share their steps";
}

TEST(BuiltFile, IsRefusedWhereverItIsCutOff) {
  const std::string bytes = serialize(example());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THAT(refusal(bytes.substr(0, size)), HasSubstr("demo.lockstep: ")) << size;
  EXPECT_THAT(refusal(bytes.substr(0, bytes.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(refusal(bytes + "x"), HasSubstr("something after its end"));
}

TEST(BuiltFile, IsRefusedWhicheverByteIsAnother) {
  const std::string bytes = serialize(example());
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at >= 20 && at < 24) continue;  // of no meaning yet
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    EXPECT_NE(refusal(damaged), "") << at;
  }
  std::string damaged = bytes;
  damaged.back() = 'x';
  EXPECT_THAT(refusal(damaged), HasSubstr("checksum"));
}

TEST(BuiltFile, HostileSizesAreNotBelieved) {
  const std::string bytes = serialize(example());
  for (const size_t field : {size_t{24}, size_t{32}, kHeader, kHeader + 8})
    for (const unsigned char byte : {0x7f, 0xff}) {
      std::string hostile = bytes;
      hostile.replace(field, 8, std::string(8, static_cast<char>(byte)));
      EXPECT_THAT(refusal(hostile), HasSubstr("cut off, or its header is damaged")) << field;
    }
}

/// Bytes whose description is `edit`ed, with a checksum that fits.
std::string with_description(const std::function<void(nlohmann::json&)>& edit) {
  // The description stands between the table of blobs and the blobs; a file without blobs has neither.
  const std::string bytes = serialize(example());
  const auto size_at = [&](size_t at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]);
    return value;
  };
  const size_t table = size_at(32) * 8, length = size_at(24);
  nlohmann::json json = nlohmann::json::parse(bytes.substr(kHeader + table, length));
  edit(json);
  const std::string description = json.dump();
  const std::string rest = bytes.substr(kHeader, table) + description + bytes.substr(kHeader + table + length);
  const auto put = [](uint64_t value) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
  };
  uint64_t sum = 0xcbf29ce484222325u;
  size_t at = 0;
  for (; at + 8 <= rest.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;) word = word << 8 | static_cast<unsigned char>(rest[at + i]);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  for (; at < rest.size(); ++at) sum = (sum ^ static_cast<unsigned char>(rest[at])) * 0x100000001b3u;
  return bytes.substr(0, 24) + put(description.size()) + bytes.substr(32, 8) + put(sum) + rest;
}

TEST(BuiltFile, ADescriptionThatRefersToNothingIsRefused) {
  EXPECT_EQ(refusal(with_description([](nlohmann::json&) {})), "") << "the checksum of this test is right";
  const std::vector<std::function<void(nlohmann::json&)>> edits = {
      [](auto& json) { json = nlohmann::json::array(); },
      [](auto& json) { json.erase("takes"); },
      [](auto& json) { json["prelude"] = 9; },
      [](auto& json) { json["prelude"] = -1; },
      [](auto& json) { json["takes"][0]["sessions"][0][0] = 77; },
      [](auto& json) { json["takes"][0]["ranks"] = 0; },
      [](auto& json) { json["takes"][0]["ranks"] = 1 << 30; },
      [](auto& json) { json["steps"][0]["names"] = 5; },
      [](auto& json) { json["steps"][0]["request"]["kind"] = "sing"; },
      [](auto& json) { json["steps"][0]["answer"] = {{"kind", "settled"}}; },
      [](auto& json) { json["steps"][0]["answer"]["objects"][0]["frame"] = 2; },
      [](auto& json) { json["steps"][0]["answer"]["objects"][0]["frame"] = -1; },
      [](auto& json) { json["scripts"] = 3; }};
  for (size_t i = 0; i < edits.size(); ++i)
    EXPECT_THAT(refusal(with_description(edits[i])), HasSubstr("its description is damaged")) << i;
}

TEST(BuiltFile, AnotherFormatAndWhatIsNoneAreNamed) {
  std::string bytes = serialize(example());
  bytes[16] = 9;
  EXPECT_THAT(refusal(bytes), HasSubstr("format 9"));
  EXPECT_THAT(refusal("// %%\nint k;\n"), HasSubstr("no file of lockstep build"));
  EXPECT_THAT(refusal(""), HasSubstr("no file of lockstep build"));
}

TEST(BuiltFile, Rule12OtherVersionsAreRefusedWithWhatToDo) {
  const BuiltFile good = [] {
    BuiltFile file = example();
    file.versions.libtorch = protocol::libtorch_version();
    return file;
  }();
  EXPECT_EQ(refusal_of_versions(good), "");
  BuiltFile file = good;
  file.versions.libtorch = "1.0.0";
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("built for LibTorch 1.0.0"));
  file = good;
  file.versions.protocol = 77;
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("built for protocol 77"));
  file = good;
  file.versions.lockstep = "0.0.1";
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("built for Lockstep 0.0.1"));
  file = good;
  file.cell_abi = 99;
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("cell ABI 99"));
  file = good;
  file.machine = "aarch64";
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("aarch64"));
  file = good;
  file.headers = "others";
  EXPECT_THAT(refusal_of_versions(file), HasSubstr("build it again with the Lockstep that is to run it"));
}

TEST(BuiltFile, IsWrittenAsAWhole) {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep-built-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::string path = name + "/demo.lockstep";
  write_built_file(example(), path);
  EXPECT_TRUE(is_built_file(path));
  EXPECT_FALSE(is_built_file(name));
  EXPECT_FALSE(is_built_file(name + "/none"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(name), std::filesystem::directory_iterator()), 1)
      << "no draft is left";
  EXPECT_THROW(write_built_file(example(), name + "/none/demo.lockstep"), UsageError);
  EXPECT_THROW(read_built_file(name + "/none"), UsageError);
  std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace lockstep::shell
