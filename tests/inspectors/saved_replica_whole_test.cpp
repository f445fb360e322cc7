// Saved replicas, all of them: no two files are equal that differ in something, wherever in the file that lies.
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "inspectors/pickle/python_pickle.h"
#include "inspectors/verify/verify.h"
#include "inspectors/verify/zip_archives.h"
#include "protocol/dist_error.h"
#include "tests/inspectors/reports.h"
#include "tests/inspectors/saved_files.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

class SavedReplicaWhole : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  std::string written(const std::string& name, const std::string& bytes) const {
    return inspect::written(path(name), bytes);
  }

  /// As torch.save of Python writes it: `pickled` is an object in the pickle's opcodes.
  std::string python_file(const std::string& name, const std::string& pickled,
                          const std::map<std::string, std::string>& records = {}) const {
    caffe2::serialize::PyTorchStreamWriter writer(path(name));
    const std::string pickle = "\x80\x02" + pickled + ".";
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    for (const auto& [record, bytes] : records) writer.writeRecord(record, bytes.data(), bytes.size());
    writer.writeEndOfFile();
    return path(name);
  }

  /// What is said of two files that hold these.
  Finding compared(const std::string& a, const std::string& b, const std::map<std::string, std::string>& records_a = {},
                   const std::map<std::string, std::string>& records_b = {}) const {
    return only_finding(verify_files({python_file("a.pt", a, records_a), python_file("b.pt", b, records_b)}));
  }

 private:
  const SavedFolder folder_;
};

// Objects as pickles of protocol 2 have them (Lib/pickletools.py of CPython).

std::string text(const std::string& word) {
  const auto size = static_cast<uint32_t>(word.size());
  return "X" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + word;
}
std::string number(int value) { return "K"s + static_cast<char>(value); }
std::string dictionary(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string pickled = "}(";
  for (const auto& [key, value] : entries) pickled += text(key) + value;
  return pickled + "u";
}
std::string storage(const std::string& key, int elements) {
  return "(" + text("storage") + "ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(elements) + "tQ";
}
/// `count` elements of a storage, from `offset` on.
std::string tensor(const std::string& key, int elements, int offset, int count) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage(key, elements) + number(offset) + number(count) + "\x85" +
         number(1) + "\x85\x89" + "ccollections\nOrderedDict\n)RtR";
}
std::string module_of(const std::string& name, const std::string& attribute) {
  return "ctorch.nn.modules\n" + name + "\n)\x81" +
         dictionary({{"training", attribute}, {"_parameters", "}"}, {"_buffers", "}"}, {"_modules", "}"}}) + "b";
}
std::string floats(std::vector<float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// ---- several archives in one file ---------------------------------------------------------------------------------

TEST_F(SavedReplicaWhole, EveryArchiveOfADistributedCheckpointIsComparedUnderItsName) {
  const std::string files[] = {LOCKSTEP_TEST_FILES "/distributed-0/__0_0.distcp",
                               LOCKSTEP_TEST_FILES "/distributed-1/__0_0.distcp"};
  std::vector<std::string> found;
  for (const Item& each : saved_replica(files[0]).items) found.push_back(each.name);
  EXPECT_THAT(found, ElementsAre("epoch", "model.bias", "model.weight"));
  const Finding finding = only_finding(verify_files({files[0], files[1]}));
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_THAT(names(finding), ElementsAre("model.weight"));
  EXPECT_THAT(finding.tensors[0].first, ElementsAre(1, 2));
  EXPECT_EQ(only_finding(verify_files({files[0], files[0]})).verdict, Verdict::ok);
  // Without the names beside it, by place.
  const std::string moved = written("moved.distcp", file_bytes(files[0]));
  found.clear();
  for (const Item& each : saved_replica(moved).items) found.push_back(each.name);
  EXPECT_THAT(found, ElementsAre("[0]", "[1]", "[2]"));
  EXPECT_THAT(load_error(written("cut.distcp", file_bytes(files[0]).substr(0, 3000))),
              HasSubstr("belong to no archive"));
}

TEST_F(SavedReplicaWhole, ArchivesOfLibTorchBehindOneAnotherAreAllRead) {
  torch::save(torch::ones({3}), path("ones"));
  torch::save(torch::full({3}, 2), path("twos"));
  const std::string ones = file_bytes(path("ones")), twos = file_bytes(path("twos"));
  const Report report = verify_files({written("a", ones + ones), written("b", ones + twos)});
  EXPECT_FALSE(report.ok()) << report;
  EXPECT_EQ(zip_archives(ones + twos + ones).size(), 3U);
}

TEST_F(SavedReplicaWhole, BytesThatBelongToNoArchiveAreAnError) {
  const std::string file = file_bytes(python_file("a.pt", "N"));
  EXPECT_EQ(load_error(written("whole.pt", file)), "none");
  EXPECT_THAT(load_error(written("more.pt", file + "and more")), HasSubstr("8 of its bytes"));
  EXPECT_THAT(load_error(written("begun.pt", file + file.substr(0, 50))), HasSubstr("belong to no archive"));
}

TEST_F(SavedReplicaWhole, AnArchiveWithinARecordIsNoneOfTheFile) {
  const std::string inner = file_bytes(python_file("inner.pt", "N"));
  EXPECT_EQ(zip_archives(file_bytes(python_file("outer.pt", "N", {{"extra/inner.pt", inner}}))).size(), 1U);
  EXPECT_EQ(
      zip_archives(file_bytes(python_file("fake.pt", "N", {{"extra/end", "PK\5\6" + std::string(18, '\0')}}))).size(),
      1U);
}

// ---- Python's files -----------------------------------------------------------------------------------------------

TEST_F(SavedReplicaWhole, AStorageWithoutATensorIsComparedByItsBytes) {
  const std::string saved = dictionary({{"raw", storage("0", 2)}});
  const Finding finding = compared(saved, saved, {{"data/0", floats({1, 2})}}, {{"data/0", floats({1, 3})}});
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_THAT(names(finding), ElementsAre("record data/0"));
  EXPECT_EQ(compared(saved, saved, {{"data/0", floats({1, 2})}}, {{"data/0", floats({1, 2})}}).verdict, Verdict::ok);
}

TEST_F(SavedReplicaWhole, BytesOfAStorageThatNoTensorShowsAreNoOkAndNoFault) {
  const std::string some = dictionary({{"some", tensor("0", 4, 0, 2)}}),
                    all = dictionary({{"all", tensor("0", 2, 0, 2)}});
  const Finding finding = compared(some, some, {{"data/0", floats({1, 2, 3, 4})}}, {{"data/0", floats({1, 2, 3, 5})}});
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.message, HasSubstr("some.storage(); tensors and values are equal"));
  EXPECT_EQ(compared(some, some, {{"data/0", floats({1, 2, 3, 4})}}, {{"data/0", floats({1, 2, 3, 4})}}).verdict,
            Verdict::ok);
  EXPECT_EQ(compared(all, all, {{"data/0", floats({1, 2})}}, {{"data/0", floats({1, 2})}}).verdict, Verdict::ok);
  // Two tensors that show the whole of it between them leave nothing.
  const std::string halves = dictionary({{"first", tensor("0", 4, 0, 2)}, {"second", tensor("0", 4, 2, 2)}});
  EXPECT_TRUE(saved_replica(python_file("c.pt", halves, {{"data/0", floats({1, 2, 3, 4})}})).unseen.empty());
}

TEST_F(SavedReplicaWhole, AttributesOfADictionaryAreNoOkAndNoFault) {
  const auto with = [](const std::string& version) {
    return "ccollections\nOrderedDict\n)R(" + text("epoch") + number(3) + "u" + dictionary({{"_metadata", version}}) +
           "b";
  };
  const Finding finding = compared(with(number(1)), with(number(2)));
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.message, HasSubstr("__dict__"));
  EXPECT_EQ(compared(with(number(1)), with(number(1))).verdict, Verdict::ok);
}

TEST_F(SavedReplicaWhole, AKeyWithNothingBehindItIsADifference) {
  for (const char* nothing : {"}", "]", ")", "N", "ccollections\nOrderedDict\n)R"}) {
    const Finding finding =
        compared(dictionary({{"epoch", number(1)}, {"state", nothing}}), dictionary({{"epoch", number(1)}}));
    EXPECT_EQ(finding.verdict, Verdict::missing) << nothing;
    EXPECT_THAT(names(finding), ElementsAre("state"));
  }
}

TEST_F(SavedReplicaWhole, ValuesThatReadAlikeAreNotEqual) {
  const auto set = [](const std::string& items) {
    return dictionary({{"x", "c__builtin__\nset\n](" + items + "e\x85R"}});
  };
  EXPECT_EQ(compared(set(text("a', 'b")), set(text("a") + text("b"))).verdict, Verdict::mismatch);
  const std::string one = "G\x3f\xf0"s + std::string(6, '\0');
  EXPECT_EQ(compared(dictionary({{"x", number(1)}}), dictionary({{"x", one}})).verdict, Verdict::mismatch);
}

TEST_F(SavedReplicaWhole, NamesThatReadAlikeAreNotTakenForOneAnother) {
  const auto saved = [](int value, bool more) {
    std::vector<std::pair<std::string, std::string>> entries = {{"a.b", number(1)},
                                                                {"a", dictionary({{"b", number(value)}})}};
    if (more) entries.emplace_back("more", number(0));
    return dictionary(entries);
  };
  const Report report = verify_files({python_file("a.pt", saved(1, false)), python_file("b.pt", saved(2, true))});
  std::map<Verdict, std::vector<std::string>> found;
  for (const Finding& each : report.findings) found[each.verdict] = names(each);
  EXPECT_THAT(found[Verdict::missing], ElementsAre("more")) << report;
  EXPECT_THAT(found[Verdict::mismatch], ElementsAre("a.b#2")) << report;
}

TEST_F(SavedReplicaWhole, AModulesClassAndAttributesAreCompared) {
  EXPECT_THAT(names(compared(module_of("ReLU", "\x88"), module_of("Tanh", "\x88"))), ElementsAre("__class__"));
  EXPECT_THAT(names(compared(module_of("ReLU", "\x88"), module_of("ReLU", "\x89"))), ElementsAre("training"));
  EXPECT_EQ(compared(module_of("ReLU", "\x88"), module_of("ReLU", "\x88")).verdict, Verdict::ok);
}

TEST_F(SavedReplicaWhole, AnAttributeThatCantBeTakenApartIsNoOk) {
  // The module's attribute is the module.
  const std::string within =
      "ctorch.nn\nReLU\n)\x81q\0"s +
      dictionary({{"parent", "(h\0t"s}, {"_parameters", "}"}, {"_buffers", "}"}, {"_modules", "}"}}) + "b";
  const Finding finding = compared(within, within);
  EXPECT_EQ(finding.verdict, Verdict::unsupported);
  EXPECT_THAT(finding.message, HasSubstr("the rest is equal"));
}

TEST_F(SavedReplicaWhole, RecordsThatOtherToolsHaveAddedAreCompared) {
  const std::string saved = dictionary({{"epoch", number(1)}});
  const Finding finding = compared(saved, saved, {{"extra/notes", "good"}}, {{"extra/notes", "bad!"}});
  EXPECT_THAT(names(finding), ElementsAre("record extra/notes"));
}

TEST_F(SavedReplicaWhole, BytesBehindAPickleAreAnError) {
  EXPECT_THROW(Pickle("K\1.K\2."), std::runtime_error);
  EXPECT_EQ(Pickle("K\1.").value()->text, "1");
}

// ---- Small files that stand for much --------------------------------------------------------------------------------

constexpr uint64_t kLittle = 1 << 20;

TEST_F(SavedReplicaWhole, WhatAnArchiveUnpacksToHasALimit) {
  caffe2::serialize::PyTorchStreamWriter writer(path("packed.pt"));
  const std::string pickle = "\x80\x02" + dictionary({{"a", tensor("0", 1 << 7, 0, 1)}}) + ".",
                    zeros(4 * kLittle, '\0');
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("data/0", zeros.data(), zeros.size(), /*compress=*/true);
  writer.writeEndOfFile();
  const std::string bytes = file_bytes(path("packed.pt"));
  EXPECT_LT(bytes.size(), kLittle / 16);
  EXPECT_GE(zip_archives(bytes).front().unpacked, zeros.size() + pickle.size());
  EXPECT_THAT(load_error(path("packed.pt"), ReadingLimit(kLittle)), HasSubstr("take more memory than is given"));
  EXPECT_EQ(load_error(path("packed.pt")), "none");
}

TEST_F(SavedReplicaWhole, ValuesThatContainOneAnotherOftenHaveALimit) {
  std::string doubled = ")";
  for (int i = 0; i < 40; ++i) doubled += "2\x86";
  EXPECT_THAT(load_error(python_file("doubled.pt", doubled), ReadingLimit(kLittle)), HasSubstr("take more memory"));
  EXPECT_THAT(load_error(python_file("set.pt", "\x8f("s + doubled + "\x90"), ReadingLimit(kLittle)),
              HasSubstr("take more memory"));
  // A tensor of 2^30 elements, which are all the same four bytes.
  const std::string repeated = "ctorch._utils\n_rebuild_tensor_v2\n(" + storage("0", 1) + number(0) +
                               "J\0\0\0\x40\x85"s + number(0) + "\x85\x89" + "ccollections\nOrderedDict\n)RtR";
  EXPECT_THAT(load_error(python_file("repeated.pt", dictionary({{"a", repeated}}), {{"data/0", floats({1})}})),
              HasSubstr("take more memory"));
}

TEST_F(SavedReplicaWhole, APickleOfManyValuesHasALimit) {
  EXPECT_THROW(Pickle(std::string(kLittle, ']'), ReadingLimit(kLittle)), ReadingLimitError);
  EXPECT_THROW(Pickle(std::string(kLittle, '('), ReadingLimit(kLittle)), ReadingLimitError);
}

TEST_F(SavedReplicaWhole, ALongNumberIsReadInOnePass) {
  const uint32_t size = 2 * kLittle;
  std::string bytes = "\x8b" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + "\x01";
  bytes += std::string(size - 2, '\0') + "\x2f.";
  const Pickle pickle(bytes);
  EXPECT_EQ(pickle.value()->text.size(), 2 + 2 * size);
  EXPECT_EQ(pickle.value()->text.substr(0, 5), "0x2f0");
  EXPECT_TRUE(pickle.value()->text.ends_with("001"));
}

TEST_F(SavedReplicaWhole, APipeIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe.pt").c_str(), 0600), 0);
  EXPECT_THAT(load_error(path("pipe.pt")), HasSubstr("no regular file"));
}

// ---- LibTorch's files ---------------------------------------------------------------------------------------------

TEST_F(SavedReplicaWhole, TensorsInContainersOfAnArchiveAreComparedByTheirBytes) {
  const auto save = [&](const std::string& name, double value, double number) {
    torch::serialize::OutputArchive archive;
    c10::Dict<std::string, torch::Tensor> dict;
    dict.insert("weight", torch::tensor({1.0, value}));
    archive.write("list", c10::IValue(std::vector<torch::Tensor>{torch::tensor({1.0, value})}));
    archive.write("dict", c10::IValue(dict));
    archive.write("tuple", c10::ivalue::Tuple::create(torch::tensor({value}), number));
    archive.save_to(path(name));
    return path(name);
  };
  // They would be printed alike.
  const std::string one = save("one", 1, 0.1), other = save("other", 1 + 1e-7, 0.1),
                    third = save("third", 1, 0.1 + 1e-15);
  EXPECT_THAT(names(only_finding(verify_files({one, other}))),
              ::testing::UnorderedElementsAre("list[0]", "dict.weight", "tuple[0]"));
  EXPECT_THAT(names(only_finding(verify_files({one, third}))), ElementsAre("tuple[1]"));
  EXPECT_EQ(only_finding(verify_files({one, one})).verdict, Verdict::ok);
}

TEST_F(SavedReplicaWhole, CodeOfTorchScriptIsCompared) {
  const auto save = [&](const std::string& name, const std::string& body) {
    torch::jit::Module module("Net");
    module.register_parameter("weight", torch::ones({2}), false);
    module.define("def forward(self, x: Tensor) -> Tensor:\n    return " + body + "\n");
    module.save(path(name));
    return path(name);
  };
  const std::string plus = save("plus", "x + self.weight"), minus = save("minus", "x - self.weight");
  const Finding finding = only_finding(verify_files({plus, minus}));
  EXPECT_EQ(finding.verdict, Verdict::mismatch);
  EXPECT_THAT(names(finding)[0], HasSubstr("record code/"));
  EXPECT_EQ(only_finding(verify_files({plus, save("again", "x + self.weight")})).verdict, Verdict::ok);
}

TEST_F(SavedReplicaWhole, AnOkSaysWhatItHasNotCompared) {
  const std::string saved = dictionary({{"epoch", number(1)}});
  EXPECT_THAT(compared(saved, saved).message, HasSubstr("not checked: devices and strides"));
}

}  // namespace
}  // namespace lockstep::inspect
