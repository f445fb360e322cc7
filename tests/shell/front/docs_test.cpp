// The pages on magics and commands name all that there are, and no others.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "shell/commands/command.h"
#include "shell/scripts/magic.h"

using namespace lockstep::shell;

namespace {

std::string page(const std::string& name) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST(Docs, EveryMagicIsInTheTable) {
  const std::string text = page("magics.md");
  ASSERT_FALSE(text.empty());
  std::set<std::string> in_table;
  const std::regex row("\\n\\| ([^\\n]*) \\|");
  for (std::sregex_iterator match(text.begin(), text.end(), row), end; match != end; ++match) {
    const std::string cell = (*match)[1].str().substr(0, (*match)[1].str().find(" | "));
    const std::regex name("`%%?([A-Za-z_0-9]+)");
    for (std::sregex_iterator each(cell.begin(), cell.end(), name); each != end; ++each) in_table.insert((*each)[1]);
    if (cell == "`EXPR?`, `EXPR??`") in_table.insert({"?", "??"});
    if (cell == "`!COMMAND`") in_table.insert("!");
  }
  std::set<std::string> registered;
  for (const Magic* magic : MagicRegistry::instance().all()) registered.insert(magic->name);
  EXPECT_EQ(in_table, registered);
}

TEST(Docs, EveryMagicSaysWhatItDoes) {
  for (const Magic* magic : MagicRegistry::instance().all()) {
    EXPECT_FALSE(magic->summary.empty()) << magic->name;
    EXPECT_TRUE(magic->line || magic->cell) << magic->name;
  }
}

TEST(Docs, EveryCommandAndOptionIsOnThePage) {
  const std::string text = page("commands.md");
  ASSERT_GE(commands().size(), 4u);
  for (const Command& command : commands()) {
    EXPECT_NE(text.find("## lockstep" + (command.name.empty() ? "" : " " + command.name) + " —"), std::string::npos)
        << command.name;
    CLI::App app;
    const auto run = command.set_up(app);
    std::vector<const CLI::App*> apps = {&app};
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) apps.push_back(sub);
    for (const CLI::App* each : apps)
      for (const CLI::Option* option : each->get_options())
        for (const std::string& name : option->get_lnames()) {
          if (name == "help") continue;
          EXPECT_NE(text.find("--" + name), std::string::npos) << command.name << " --" << name;
        }
  }
}
