// No name of the user's disturbs what is ours: values are shown, loops can be interrupted, magics find their functions.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(OwnNames, ValuesAreShownWhateverTheUserNames) {
  check_transcript({
      {"bool lockstep = true;", ""},
      {"1 + 1", "=> 2\n"},
      {"lockstep", "=> true\n"},
      {"struct lockstep { int a; }; int show_value = 3; template <class T> void show(T) {}", ""},
      {"show_value + 1", "=> 4\n"},
      {"std::string(\"x\")", "=> \"x\"\n"},
      // A comma of the user's for any type.
      {"struct Row { std::vector<double> cells; };\n"
       "std::ostream& operator<<(std::ostream& out, const Row&) { return out << \"a row\"; }\n"
       "template <class T> Row& operator,(Row& row, T x) { row.cells.push_back(1); return row; }\n"
       "template <class T, class U> int operator,(const T&, const U&) { return 0; }\n"
       "Row row;",
       ""},
      {"row.cells", "=> {}\n"},
      {"row", "=> a row\n"},
      {"row.cells", "=> {}\n"},
      {"namespace lockstep { int inner = 4; }\nlockstep::inner", "=> 4\n"},
      {"2 + 3", "=> 5\n"},
      {"std::endl", "error: reference to overloaded function could not be resolved"},
  });
}

TEST(OwnNames, MagicsHaveANamespaceThatNobodyTypes) {
  check_transcript({
      {"bool lockstep = true; int inspect = 1;", ""},
      {"__lockstep::RankSet{0, 1}.words()", "=> \"ranks 0-1\"\n"},
      {"struct inspect {}; namespace lockstep { struct RankSet {}; }", ""},
      {"__lockstep::RankSet{0, 1}.words()", "=> \"ranks 0-1\"\n"},
      {"sizeof(__lockstep::VerifyOptions) > 0", "=> true\n"},
      {"#define RankSet 1\n#define words bad(\n#define one 0\n1 + RankSet", "=> 2\n"},
      {"__lockstep::RankSet{one, 1}.words()", "=> \"ranks 0-1\"\n"},
      {"RankSet + one", "=> 1\n"},
  });
}

TEST(OwnNames, AVariableLeavesTheNamespaceOfItsName) {
  check_transcript({
      {"auto dist = 0.5; int inspect = 1;", ""},
      {"dist::is_initialized() + dist", "=> 0.5\n"},
      {"using Method = inspect::Method; namespace d = dist;", ""},
      {"d::is_available()", "=> true\n"},
      {"namespace mine { int a = 3; }", ""},
      {"int mine = 4; mine + mine::a", "=> 7\n"},
      {"struct mine { static const int a = 9; };", ""},
      {"mine::a", "=> 9\n"},
  });
}

TEST(OwnNames, AFunctionOfAUsedNamespaceIsCalledDespiteAVariableOfItsName) {
  check_transcript({
      {"using namespace at;\nTensorOptions options = device(kCPU).dtype(kInt); options.device() == device",
       "=> true\n"},
      {"ones({2}, device(device).dtype(kLong)).to(device).dtype() == kLong", "=> true\n"},
      {"rank + world_size", "=> 1\n"},
      {"bool mine(int device) { return device == 3; }\nmine(3)", "=> true\n"},
      {"int device = 4; device", "=> 4\n"},
      {"at::device(kCPU).device().is_cpu()", "=> true\n"},
  });
}

TEST(OwnNames, LoopsEndWhenInterruptedWhateverTheUserNames) {
  CellSession session;
  ASSERT_EQ(session.run("int lockstep_poll = 1; void lockstep_poll_requested() {}").text(), "");
  session.tell_host(0, {{"do", "interrupt"}});
  EXPECT_EQ(session.run("while (true) {}").text(), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(session.run("lockstep_poll").text(), "=> 1\n");
}

}  // namespace
}  // namespace lockstep::compiler_test
