// What is in an object: nothing that runs when it is loaded, few mappings, small, a file name of its own.
#include <elf.h>

#include <cstring>
#include <set>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

struct Elf {
  std::set<uint32_t> segments, sections;
  int loads = 0;
};

Elf read_elf(const std::string& bytes) {
  Elf elf;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    elf.segments.insert(segment.p_type);
    elf.loads += segment.p_type == PT_LOAD;
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
    elf.sections.insert(section.sh_type);
  }
  return elf;
}

TEST(Objects, LoadingRunsNothingAndTakesTwoMappings) {
  CellSession session;
  const auto first = session.run(
      "int x = std::abs(-1); struct Loud { Loud() { printf(\"made\\n\"); } }; Loud loud; static Loud again; inline "
      "Loud third;");
  EXPECT_EQ(first.text(), "made\nmade\nmade\n");
  const auto elf = read_elf(first.frames.at(0));
  EXPECT_FALSE(elf.sections.contains(SHT_INIT_ARRAY));
  EXPECT_TRUE(elf.segments.contains(PT_GNU_EH_FRAME));
  EXPECT_EQ(elf.loads, 2);
  EXPECT_LT(first.frames.at(0).size(), 80u << 10);
  const int64_t before = session.tell_host(0, {{"do", "nothing"}}).at("mappings").get<int64_t>();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(session.run("x += 1;").text(), "");
  const int64_t after = session.tell_host(0, {{"do", "nothing"}}).at("mappings").get<int64_t>();
  EXPECT_LE(after - before, 3 * 50);
}

/// Names in .symtab: what is defined, and what is not.
std::pair<std::set<std::string>, int> symbols_of(const std::string& bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof sections[0]);
  std::pair<std::set<std::string>, int> found;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (uint64_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF)
        ++found.second;
      else
        found.first.insert(bytes.data() + sections.at(section.sh_link).sh_offset + symbol.st_name);
    }
  }
  return found;
}

TEST(Objects, NameForDebuggersWhatTheyDefineOnly) {
  CellSession session;
  const auto run =
      session.run("int twice(int k) { return 2 * k; } int four = twice(2); std::puts(std::to_string(four).c_str());");
  EXPECT_EQ(run.text(), "4\n");
  const auto [defined, taken] = symbols_of(run.frames.at(0));
  EXPECT_EQ(taken, 0);
  EXPECT_TRUE(defined.contains("_Z5twiceB8__cell_1i"));
  EXPECT_TRUE(defined.contains("_Z4fourB8__cell_1"));
}

TEST(Objects, NamesStepsAndSource) {
  CellSession session;
  const auto first = session.run("int a = 1;\nint b = std::abs(-2), c = std::abs(-3);\nprintf(\"\\n\");\n");
  const auto& object = first.compiled.objects.at(0);
  EXPECT_EQ(object.name, "cell_1.so");
  EXPECT_EQ(object.source, "int a = 1;\nint b = std::abs(-2), c = std::abs(-3);\nprintf(\"\\n\");\n");
  ASSERT_EQ(object.steps.size(), 3u);
  // A declaration's names are there when all of it has been initialised; those without an initialiser that runs are
  // there when what stands before them has run.
  EXPECT_TRUE(object.steps[0].names.empty());
  EXPECT_EQ(object.steps[1].names, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(object.steps[1].line, 2);
  EXPECT_EQ(object.steps[2].line, 3);
  const auto later = session.run("std::puts(\"\"); int d = 4; int e = 5;").compiled.objects.at(0);
  EXPECT_EQ(later.steps.at(0).names, (std::vector<std::string>{"d", "e"}));
  protocol::Compile part;
  part.number = 1;
  const auto second = session.run("int d = missing;", part);
  EXPECT_NE(second.compiled.rendered.find("cell 1:1:9: error"), std::string::npos) << second.compiled.rendered;
}

TEST(Objects, OptimisedAndDebug) {
  CellSession session;
  EXPECT_EQ(
      session.run("int x = 5; struct Net { int f() const { return 3; } }; auto twice = [](int a) { return 2 * a; };")
          .text(),
      "");
  protocol::Compile optimised;
  optimised.optimize = 2;
  EXPECT_EQ(session
                .run("int sum = 0; for (int i = 0; i < 1000; ++i) sum += i % x; std::vector<int> v(10, 2);\nsum + v[3] "
                     "+ Net().f() + twice(2)",
                     optimised)
                .text(),
            "=> 2009\n");
  EXPECT_EQ(session.run("sum + v.size()", optimised).text(), "=> 2010\n");
  protocol::Compile debug;
  debug.debug = true;
  const auto full = session.run("torch::Tensor local = torch::ones({x});\nlocal.size(0) + Net().f() + twice(1)", debug);
  EXPECT_EQ(full.text(), "=> 10\n");
  const auto lean = session.run("local.size(0) + Net().f() + twice(1)");
  EXPECT_EQ(lean.text(), "=> 10\n");
  EXPECT_GT(full.frames.at(0).size(), 3 * lean.frames.at(0).size());
  EXPECT_NE(lean.frames.at(0).find(".debug_line"), std::string::npos);
  protocol::Compile third;
  third.optimize = 3;
  EXPECT_EQ(session.run("std::accumulate(v.begin(), v.end(), 0) + x", third).text(), "=> 25\n");
}

TEST(Objects, DemangledNamesAreThoseOfTheCell) {
  CellSession session;
  EXPECT_EQ(session.run("struct Net {}; namespace lib { template <class T> struct Box {}; }").text(), "");
  const auto tagged = session.run("c10::demangle(typeid(lib::Box<Net>).name())").text();
  EXPECT_EQ(tagged, "=> \"lib::Box[abi:__cell_1]<Net[abi:__cell_1]>\"\n");  // the worker takes the tags out
}

}  // namespace
}  // namespace lockstep::compiler_test
