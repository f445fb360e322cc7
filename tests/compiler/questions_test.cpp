// %who, %reset, completion, inspection.
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

std::map<std::string, protocol::Name> names(CellSession& session) {
  std::map<std::string, protocol::Name> found;
  const auto answer = std::get<protocol::Names>(session.ask(protocol::ListNames()));
  for (const auto& name : answer.names) found[name.name] = name;
  return found;
}

TEST(Questions, ListNames) {
  SessionSettings settings;
  settings.ranks = 2;
  CellSession session(settings);
  session.run(
      "int x = 1; struct Net {}; int f(int a) { return a; } template <class T> T id(T a) { return a; } using Alias = "
      "std::vector<int>;");
  session.run("double x = 2; namespace lib { int inner = 1; }", RankSet{1});
  const auto found = names(session);
  EXPECT_EQ(found.at("x").type, "double");
  EXPECT_EQ(found.at("x").cell, 2);
  EXPECT_EQ(found.at("Net").kind, "type");
  EXPECT_EQ(found.at("f").kind, "function");
  EXPECT_EQ(found.at("f").type, "int (int)");
  EXPECT_EQ(found.at("f").ranks, (RankSet{0, 1}));
  EXPECT_EQ(found.at("id").kind, "template");
  EXPECT_EQ(found.at("Alias").kind, "alias");
  EXPECT_EQ(found.at("lib::inner").ranks, RankSet{1});
  for (const auto& [name, what] : found) EXPECT_EQ(name.find("cell"), std::string::npos) << name;
}

TEST(Questions, ForgetNames) {
  CellSession session;
  session.run("int x = 1; int y = 2;");
  session.run("int x = 3;");
  session.ask(protocol::Forget{{"x"}});
  EXPECT_EQ(session.run("x").compiled.status, CompileStatus::error);
  EXPECT_EQ(session.run("y").text(), "=> 2\n");
  EXPECT_FALSE(names(session).contains("x"));
  EXPECT_EQ(session.run("double x = 1.5; x").text(), "=> 1.5\n");
  session.ask(protocol::Forget{});
  EXPECT_TRUE(names(session).empty());
  EXPECT_EQ(session.run("y").compiled.status, CompileStatus::error);
  EXPECT_EQ(session.run("std::string y = \"again\"; y").text(), "=> \"again\"\n");
  // What %undo has restored stays when another name is forgotten.
  const auto undone = session.run("int y = 5; int z = 6;").compiled.cell;
  session.ask(protocol::Forget{.names = {}, .undo = undone});
  session.ask(protocol::Forget{{"z"}});
  EXPECT_EQ(session.run("y").text(), "=> \"again\"\n");
}

std::map<std::string, protocol::Completion> complete(CellSession& session, const std::string& text, int64_t& begin) {
  const auto answer = std::get<protocol::Completions>(
      session.ask(protocol::Complete{text, static_cast<int64_t>(text.size()), RankSet{0}}));
  begin = answer.begin;
  std::map<std::string, protocol::Completion> found;
  for (const auto& completion : answer.completions) found[completion.text] = completion;
  return found;
}

TEST(Questions, Completion) {
  CellSession session;
  session.run(
      "struct Net { int width = 1; torch::Tensor forward(torch::Tensor x) { return x; } }; Net network; int number = "
      "3; torch::Tensor t;");
  int64_t begin = 0;
  auto found = complete(session, "netw", begin);
  EXPECT_TRUE(found.contains("network"));
  EXPECT_EQ(begin, 0);
  found = complete(session, "network.f", begin);
  EXPECT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at("forward").kind, "member");
  EXPECT_NE(found.at("forward").detail.find("Tensor x"), std::string::npos) << found.at("forward").detail;
  EXPECT_EQ(begin, 8);
  found = complete(session, "t.matm", begin);
  EXPECT_TRUE(found.contains("matmul"));
  found = complete(session, "for (int i = 0; i < 3; ++i) {\n  auto inner = network.wi", begin);
  EXPECT_TRUE(found.contains("width"));
  found = complete(session, "torch::optim::Ad", begin);
  EXPECT_EQ(found.at("Adam").kind, "type");
  found = complete(session, "int local_thing = 1; { loc", begin);
  EXPECT_TRUE(found.contains("local_thing"));
  EXPECT_TRUE(found.contains("local_rank"));
  for (const auto& [text, completion] : found) EXPECT_EQ(completion.detail.find("__cell"), std::string::npos);
  EXPECT_EQ(session.run("number").text(), "=> 3\n");
}

protocol::Completions ask(CellSession& session, const std::string& text, bool signatures_only = false) {
  return std::get<protocol::Completions>(
      session.ask(protocol::Complete{text, static_cast<int64_t>(text.size()), RankSet{0}, signatures_only}));
}

size_t rank_of(const protocol::Completions& answer, const std::string& name) {
  for (size_t i = 0; i < answer.completions.size(); ++i)
    if (answer.completions[i].text == name) return i;
  return std::string::npos;
}

TEST(Questions, NamesOfCellsComeFirstAndMacrosLast) {
  CellSession session;
  session.run(
      "struct Net : torch::nn::Module { int steps = 0; void step() {} }; Net net; int IPP = 1; int stepper = 2;");
  const auto argument = ask(session, "torch::zeros(");
  ASSERT_FALSE(argument.completions.empty());
  EXPECT_EQ(argument.completions[0].text.find("IPPORT"), std::string::npos);
  EXPECT_LT(rank_of(argument, "stepper"), rank_of(argument, "world_size"));
  EXPECT_LT(rank_of(argument, "world_size"), rank_of(argument, "c10"));
  for (const auto& each : argument.completions) EXPECT_NE(each.kind, "macro") << each.text;
  const auto named = ask(session, "IPP");
  EXPECT_EQ(named.completions[0].text, "IPP");
  EXPECT_NE(rank_of(named, "IPPROTO_TCP"), std::string::npos);
  const auto members = ask(session, "net.");
  EXPECT_LT(rank_of(members, "step"), rank_of(members, "parameters"));
  EXPECT_EQ(rank_of(members, "~Net"), std::string::npos);
}

std::set<std::string> texts(const protocol::Completions& answer) {
  std::set<std::string> found;
  for (const auto& each : answer.completions) found.insert(each.text);
  return found;
}

/// Settings of a compiler that has the precompiled header, but no list of its names.
SessionSettings without_the_list(const std::string& cache) {
  namespace fs = std::filesystem;
  const fs::path original = [] {
    SessionSettings settings;
    settings.hosts = false;
    return fs::path(CellSession(settings).ready().prelude).parent_path();
  }();
  const fs::path copy = fs::path(cache) / "lockstep/pch" / original.filename();
  fs::create_directories(copy);
  for (fs::path each = copy; each != fs::path(cache).parent_path(); each = each.parent_path())
    fs::permissions(each, fs::perms::owner_all);
  for (const char* file : {"cells.pch", "libprelude.so"}) fs::create_symlink(original / file, copy / file);
  std::ifstream inventory(original / "inventory");
  std::ofstream kept(copy / "inventory");
  for (std::string line; std::getline(inventory, line);)
    if (!line.starts_with("names.txt")) kept << line << '\n';
  SessionSettings settings;
  settings.hosts = false;
  settings.environment = {{"XDG_CACHE_HOME", cache}};
  return settings;
}

TEST(Questions, TheListOfTheHeadersNamesSaysWhatTheHeaderSays) {
  std::string cache = (std::filesystem::temp_directory_path() / "lockstep-list-XXXXXX").string();
  ASSERT_NE(::mkdtemp(cache.data()), nullptr);
  {
    SessionSettings settings;
    settings.hosts = false;
    CellSession quick(settings), thorough(without_the_list(cache));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(thorough.ready().prelude).parent_path() / "names.txt"));
    for (const char* const text :
         {"torch::nn::Li", "torch::optim::", "torch::nn::functional::", "at::indexing::", "std::filesystem::",
          "std::vec", "std::__cxx11::ba", "dist::", "dist::all_re", "ddp::", "wor", "tor", "SEEK_", "fopen",
          "std::vector<tor", "namespace nn = torch::nn; nn::Lin", "using namespace to", "x = 1; int y = loc"})
      EXPECT_EQ(texts(ask(quick, text)), texts(ask(thorough, text))) << text;
  }
  std::filesystem::remove_all(cache);
}

TEST(Questions, NamesOfCellsTakeThePlaceOfTheHeaders) {
  CellSession session;
  session.run("int fopen = 3;\n#undef SEEK_CUR\n#define SEEK_OWN 1\nnamespace torch { int own_addition = 1; }");
  session.run("namespace mine { struct Inner { Inner(int n) {} }; } using namespace torch::nn;");
  std::vector<std::string> kinds;
  for (const auto& each : ask(session, "fope").completions)
    if (each.text == "fopen") kinds.push_back(each.kind);
  EXPECT_EQ(kinds, std::vector<std::string>{"variable"});
  const auto seeks = texts(ask(session, "SEEK_"));
  EXPECT_TRUE(seeks.contains("SEEK_SET"));
  EXPECT_TRUE(seeks.contains("SEEK_OWN"));
  EXPECT_FALSE(seeks.contains("SEEK_CUR"));
  EXPECT_TRUE(texts(ask(session, "torch::own_")).contains("own_addition"));
  EXPECT_TRUE(texts(ask(session, "mine::")).contains("Inner"));
  EXPECT_TRUE(texts(ask(session, "auto layer = Line")).contains("Linear"));
  EXPECT_FALSE(texts(ask(session, "using namespace tor")).contains("tornado"));
  EXPECT_EQ(texts(ask(session, "using namespace tor")), (std::set<std::string>{"torch"}));
}

TEST(Questions, ANamespaceOfferedInFullHasItsLastNames) {
  CellSession session;
  const auto found = texts(ask(session, "torch::nn::"));
  EXPECT_TRUE(found.contains("AdaptiveAvgPool1d"));
  EXPECT_TRUE(found.contains("ZeroPad2d"));
}

TEST(Questions, SignaturesMarkTheParameter) {
  CellSession session;
  session.run("int add(int first, double second = 1) { return first; } int add(const char* text) { return 0; }");
  const auto answer = ask(session, "add(1, ", true);
  EXPECT_TRUE(answer.completions.empty());
  ASSERT_FALSE(answer.signatures.empty());
  const protocol::Signature& best = answer.signatures[0];
  EXPECT_EQ(best.label, "int add(int first, double second = 1)");
  ASSERT_EQ(best.parameters.size(), 2u);
  EXPECT_EQ(best.active, 1);
  const auto [begin, end] = best.parameters[1];
  EXPECT_EQ(best.label.substr(begin, end - begin), "double second = 1");
  EXPECT_EQ(ask(session, "add(", true).signatures.size(), 2u);
  EXPECT_GE(ask(session, "torch::zeros(", true).signatures.size(), 1u);
  EXPECT_GE(ask(session, "torch::nn::Linear layer(", true).signatures.size(), 1u);
  EXPECT_TRUE(ask(session, "int x = 1; ", true).signatures.empty());
}

TEST(Questions, InspectionHasTheSource) {
  CellSession session;
  session.run("struct Net { int layers = 2; };\nint more(int a) {\n  return a + 1;\n}");
  const auto inspect = [&](const std::string& expression) {
    return std::get<protocol::Inspection>(session.ask(protocol::Inspect{expression, RankSet{0}}));
  };
  EXPECT_EQ(inspect("more").source, "int more(int a) {\n  return a + 1;\n}");
  EXPECT_EQ(inspect("more").where, "");
  EXPECT_EQ(inspect("Net").source, "struct Net { int layers = 2; }");
  const auto module = inspect("torch::nn::Module");
  EXPECT_NE(module.where.find("torch/nn/module.h:"), std::string::npos) << module.where;
  EXPECT_TRUE(module.source.starts_with("class TORCH_API Module")) << module.source.substr(0, 80);
}

TEST(Questions, Inspection) {
  CellSession session;
  session.run(
      "// How wide.\nint width = 4;\n\n/// Adds one.\nint more(int a) { return a + 1; }\nstruct Net { /* layers */ int "
      "layers = 2; };\nNet net;");
  const auto inspect = [&](const std::string& expression) {
    return std::get<protocol::Inspection>(session.ask(protocol::Inspect{expression, RankSet{0}}));
  };
  EXPECT_EQ(inspect("width").type, "int");
  EXPECT_EQ(inspect("width").cell, 1);
  EXPECT_EQ(inspect("width").comment, "How wide.");
  EXPECT_EQ(inspect("more").declaration, "int more(int a)");
  EXPECT_EQ(inspect("more").comment, "Adds one.");
  EXPECT_NE(inspect("Net").declaration.find("int layers"), std::string::npos) << inspect("Net").declaration;
  EXPECT_EQ(inspect("net.layers").type, "int");
  EXPECT_EQ(inspect("more(1) + 2.5").type, "double");
  EXPECT_NE(inspect("torch::ones").declaration.find("ones("), std::string::npos);
  EXPECT_NE(inspect("torch::nn::Linear").declaration.find("Linear"), std::string::npos);
  EXPECT_FALSE(inspect("no_such_thing").found);
  EXPECT_FALSE(inspect("1 +").found);
  EXPECT_EQ(session.run("width").text(), "=> 4\n");
}

}  // namespace
}  // namespace lockstep::compiler_test
