#include "shell/terminal/renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell/text/text.h"

using namespace lockstep;
using namespace lockstep::shell;
using testing::HasSubstr;
using testing::Not;

namespace {

/// A transcript: what a pipe would get.
struct Transcript {
  explicit Transcript(int ranks = 4, Screen screen = {.unicode = true})
      : renderer(screen, [this](std::string_view bytes) { text += bytes; }) {
    renderer.set_quiet(true);
    renderer.take(SessionEvent{.id = "1-a", .ranks = RankSet::all(ranks)});
    renderer.set_quiet(false);
  }
  void output(RankSet ranks, std::string bytes, Stream stream = Stream::standard_output) {
    renderer.take(OutputEvent{1, std::move(ranks), stream, std::move(bytes)});
  }
  void end(RankSet ranks, CellStatus status = CellStatus::ok) {
    CellEvent event{.cell = 1, .ranks = ranks, .status = status};
    for (const int rank : ranks) event.rank_status[rank] = status;
    renderer.take(event);
  }

  std::string text;
  Renderer renderer;
};

Finding drifted() {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "verify";
  finding.verdict = Verdict::mismatch;
  finding.ranks = {2};
  finding.object = "net";
  finding.message = "rank 2 differs from ranks 0-1,3 in fc1.weight";
  finding.tensors = {{"fc1.weight", "float32", {256, 64}, 3, {12, 4}, 0.0012}, {"b", "float32", {8}, 1, {0}, 2.0}};
  finding.where = "cell 7, line 4";
  return finding;
}

}  // namespace

TEST(Renderer, EqualOutputOnceWithItsRanks) {
  Transcript t;
  t.output({0, 1, 2, 3}, "loss 0.5\n");
  t.output({0}, "zero\n");
  t.output({1, 2, 3}, "others\n", Stream::standard_error);
  t.end({0, 1, 2, 3});
  EXPECT_EQ(t.text,
            "0-3 │ loss 0.5\n"
            "0   │ zero\n"
            "1-3 ┊ others\n");
}

TEST(Renderer, LinesAreNeverMixed) {
  Transcript t(2);
  t.output({0, 1}, "loss ");
  t.output({0}, "0.5\nnext");
  t.output({1}, "0.6\n");
  t.output({0}, " line\nrest");
  t.end({0, 1});
  EXPECT_EQ(t.text,
            "0   │ loss 0.5\n"
            "1   │ loss 0.6\n"
            "0   │ next line\n"
            "0   │ rest\n");
}

TEST(Renderer, ProgressInAPipeIsItsLastState) {
  Transcript t(2);
  for (int i = 0; i <= 100; ++i) t.output({0, 1}, std::string("\r").append(std::to_string(i)).append("%"));
  EXPECT_EQ(t.text, "");
  t.end({0, 1});
  EXPECT_EQ(t.text, "0-1 │ 100%\n");
}

TEST(Renderer, ProgressOnATerminalIsDrawnInPlace) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 40});
  t.output({0}, "10%");
  EXPECT_EQ(t.text, "0   │ 10%");
  t.text.clear();
  t.output({1}, "7%");
  EXPECT_EQ(t.text, "\r\033[J0   │ 10%\n1   │ 7%");
  t.text.clear();
  t.output({0}, "\r20%");
  EXPECT_EQ(t.text, "\r\033[1A\033[J0   │ 20%\n1   │ 7%");
  t.text.clear();
  t.output({0}, "\n");
  EXPECT_EQ(t.text, "\r\033[1A\033[J0   │ 20%\n1   │ 7%");
  t.text.clear();
  t.end({0, 1});
  EXPECT_EQ(t.text, "\r\033[J1   │ 7%\n");
}

TEST(Renderer, RowsInPlaceNeverWrap) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 20});
  t.output({0, 1}, std::string(50, 'x') + "END");
  EXPECT_EQ(t.text, "0-1 │ …" + std::string(9, 'x') + "END");
  t.text.clear();
  t.output({0, 1}, "\n");
  EXPECT_EQ(t.text, "\r\033[J0-1 │ " + std::string(50, 'x') + "END\n");
}

TEST(Renderer, OfALineWithoutEndItsEndIsDrawnInPlace) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 20});
  const std::string end = "\033[31m" + std::string(6, 'y') + "\033[0m" +
                          "\xe6\x97\xa5"
                          "END";
  for (int piece = 0; piece < 64; ++piece) t.output({0, 1}, std::string(16 << 10, 'x') + end);
  t.text.clear();
  t.output({0, 1}, end);
  EXPECT_EQ(t.text,
            "\r\033[J0-1 │ …D\033[31myyyyyy\033[0m\xe6\x97\xa5"
            "END\033[0m");
  t.text.clear();
  t.output({0}, "0");
  t.output({1}, "1\n");
  EXPECT_THAT(t.text, testing::HasSubstr("END1"));
}

TEST(Renderer, NothingIsDrawnInPlaceAboveAPrompt) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 40});
  t.renderer.set_live(false);
  t.output({0}, "half");
  EXPECT_EQ(t.text, "");
  t.output({0}, " whole\n");
  EXPECT_EQ(t.text, "0   │ half whole\n");
}

TEST(Renderer, ControlCharactersDoNotReachATerminal) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 60});
  t.output({0, 1}, "bell\a \x01 \xFF tab\t\033[31mred\033[5;5H\n");
  EXPECT_EQ(t.text, "0-1 │ bell^G ^A \uFFFD tab\t\033[31mred\033[0m\n");
}

TEST(Renderer, ControlCharactersOfNamesAndMessagesAreShownAndNotObeyed) {
  // OSC 52, which writes to the clipboard, and CSI as one character (C1), in every text that an event has.
  const std::string evil = "\033]52;c;QQ==\a\u009b2J", seen = "^[]52;c;QQ==^G\uFFFD2J";
  Transcript t(1, {.terminal = true, .colour = true, .unicode = true});
  Finding finding = drifted();
  finding.object = finding.where = evil;
  finding.message = evil + " differs";
  finding.tensors[0].name = finding.tensors[0].dtype = evil;
  finding.op = FindingOp{.name = evil, .seq = 1, .shape = {1}, .dtype = evil, .group = evil};
  t.renderer.take(FindingEvent{finding});
  t.renderer.take(ErrorEvent{.cell = 1,
                             .ranks = {0},
                             .type = evil,
                             .message = evil,
                             .where = evil,
                             .stack = {"f() at cell 1, line 1 " + evil}});
  t.renderer.take(ErrorEvent{.cell = 1, .ranks = {0}, .type = "E", .message = "m", .traceback = evil});
  t.renderer.take(ErrorEvent{.cell = 1, .ranks = {}, .type = "compile_error", .message = "error: " + evil});
  t.renderer.take(MessageEvent{.cell = 1, .text = evil});
  t.renderer.take(MarkdownEvent{"# " + evil});
  t.renderer.take(PageEvent{.cell = 1, .text = evil});
  t.renderer.take(ValueEvent{.cell = 1, .ranks = {0}, .text = "\033[31mred\033[0m " + evil});
  t.renderer.take(RankEvent{.rank = 0, .state = RankState::dead, .message = evil});
  t.renderer.take(ProgressEvent{.cell = 1,
                                .label = evil,
                                .ranks = {0},
                                .done = {{0, 1}},
                                .total = {{0, 1}},
                                .elapsed_s = {{0, 1}},
                                .state = LoopState::completed});
  t.renderer.take(CellEvent{.cell = 1, .title = evil, .ranks = {0}});
  t.renderer.begin_cell(1, {0}, evil, "");
  EXPECT_THAT(t.text, Not(HasSubstr("\033]")));
  EXPECT_THAT(t.text, Not(HasSubstr("\a")));
  EXPECT_THAT(t.text, Not(HasSubstr("\u009b")));
  EXPECT_THAT(t.text, HasSubstr("\033[31mred\033[0m " + seen)) << "a value's colours stay";
  size_t times = 0;
  for (size_t at = 0; (at = t.text.find(seen, at)) != std::string::npos; ++at) ++times;
  EXPECT_GE(times, 15u) << t.text;
  // What ranks write keeps its colours.
  t.output({0}, "\033[32mgreen\033[0m\n");
  EXPECT_THAT(t.text, HasSubstr("\033[32mgreen\033[0m"));
}

TEST(Renderer, OneRankNeedsNoGutter) {
  Transcript t(1);
  t.output({0}, "plain\n");
  t.renderer.take(ValueEvent{1, {0}, "42", nullptr});
  EXPECT_EQ(t.text, "plain\n= 42\n");
}

TEST(Renderer, ValuesPerRank) {
  Transcript t(2);
  t.renderer.take(ValueEvent{1, {0, 1}, "2", nullptr});
  t.renderer.take(ValueEvent{2, {0}, "0", nullptr});
  t.renderer.take(ValueEvent{2, {1}, " 1  1\n[ Float{2} ]", nullptr});
  EXPECT_EQ(t.text,
            "0-1 = 2\n"
            "0   = 0\n"
            "1   =  1  1\n"
            "1   = [ Float{2} ]\n");
}

TEST(Renderer, CompileErrorsKeepTheirCarets) {
  Transcript t;
  const std::string message =
      "cell 7, line 1, column 9: error: use of undeclared identifier 'foo'\n    1 | int a = foo;\n      |         ^\n";
  t.renderer.take(ErrorEvent{.cell = 7, .ranks = {0, 1, 2, 3}, .type = "compile_error", .message = message});
  EXPECT_EQ(t.text, message);
}

TEST(Renderer, CompileErrorsInColour) {
  Transcript t(2, {.terminal = true, .colour = true, .unicode = true, .width = 80});
  t.renderer.take(
      ErrorEvent{.cell = 7, .type = "compile_error", .message = "cell 7, line 1: error: no\n  1 | x\n    | ^\n"});
  EXPECT_EQ(t.text, "cell 7, line 1: \033[1;31merror:\033[0m\033[1m no\033[0m\n  1 | x\n\033[32m    | ^\033[0m\n");
}

TEST(Renderer, TheRootCauseComesLast) {
  Transcript t;
  t.renderer.take(ErrorEvent{.cell = 1,
                             .ranks = {1},
                             .type = "std::runtime_error",
                             .message = "replicas differ",
                             .where = "cell 1, line 3",
                             .stack = {"raise() in libc.so.6", "?? in libx.so", "at::add() in libtorch_cpu.so",
                                       "check() at cell 1, line 3", "main in lockstep-worker"}});
  t.output({0}, "still here\n");
  t.renderer.take(ErrorEvent{.cell = 1,
                             .ranks = {0, 2, 3},
                             .type = "dist::Aborted",
                             .message = "all_reduce was aborted",
                             .root_cause = false});
  EXPECT_EQ(t.text, "0   │ still here\n");
  t.end({0, 1, 2, 3}, CellStatus::error);
  EXPECT_EQ(t.text,
            "0   │ still here\n"
            "• ranks 0,2-3: dist::Aborted\n"
            "    all_reduce was aborted\n"
            "✗ rank 1: std::runtime_error in cell 1, line 3\n"
            "    replicas differ\n"
            "      at::add() in libtorch_cpu.so\n"
            "      check() at cell 1, line 3\n");
}

TEST(Renderer, ARecursionIsShownOnce) {
  Transcript t;
  std::vector<std::string> stack(94, "deep(int) at cell 2, line 1");
  stack.push_back("cell 2, line 2");
  t.renderer.take(
      ErrorEvent{.cell = 2, .ranks = {1}, .type = "SIGSEGV", .message = "the stack overflowed", .stack = stack});
  t.end({0, 1}, CellStatus::error);
  EXPECT_EQ(t.text,
            "✗ rank 1: SIGSEGV\n"
            "    the stack overflowed\n"
            "      deep(int) at cell 2, line 1\n"
            "      … 93 times more\n"
            "      cell 2, line 2\n");
}

TEST(Renderer, ATerminalShowsAFailureWhileOthersRun) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 40});
  t.renderer.take(ErrorEvent{
      .cell = 1, .ranks = {1}, .type = "std::runtime_error", .message = "boom, and a long explanation\nmore"});
  EXPECT_EQ(t.text, "✗ rank 1: std::runtime_error: boom, and");
}

TEST(Renderer, UsageErrorsAreShownAtOnceAndWrapped) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 40});
  t.renderer.take(
      ErrorEvent{.cell = 3, .type = "usage_error", .message = "rank 7 is not in the session; it has ranks 0-1"});
  EXPECT_EQ(t.text, "✗ rank 7 is not in the session; it has\n  ranks 0-1\n");
}

TEST(Renderer, FindingsAsTables) {
  Transcript t;
  t.renderer.take(FindingEvent{drifted()});
  EXPECT_EQ(t.text,
            "✗ net: rank 2 differs from ranks 0-1,3 in fc1.weight\n"
            "    fc1.weight  [256, 64] float32   3 of 16384 elements, first at [12, 4]   max |Δ| 1.2e-03\n"
            "    b           [8] float32         1 of 8 elements, first at [0]   max |Δ| 2.0e+00\n"
            "    at cell 7, line 4\n");
}

TEST(Renderer, FindingsOnANarrowTerminal) {
  Transcript t(4, {.terminal = true, .unicode = true, .width = 44});
  t.renderer.take(FindingEvent{drifted()});
  EXPECT_EQ(t.text,
            "✗ net: rank 2 differs from ranks 0-1,3 in\n"
            "  fc1.weight\n"
            "    fc1.weight\n"
            "      [256, 64] float32\n"
            "      3 of 16384 elements, first at [12, 4]\n"
            "      max |Δ| 1.2e-03\n"
            "    b\n"
            "      [8] float32\n"
            "      1 of 8 elements, first at [0]\n"
            "      max |Δ| 2.0e+00\n"
            "    at cell 7, line 4\n");
}

TEST(Renderer, AValueThatTheMessageTellsHasNoRow) {
  Transcript t;
  Finding finding = drifted();
  finding.message = "rank 2 differs from ranks 0-1,3 in 2 of 6 hyperparameters; lr: 0.1 on rank 0, 0.2 on rank 2";
  finding.tensors = {{.name = "lr"}, {.name = "momentum"}};
  finding.where = std::nullopt;
  t.renderer.take(FindingEvent{finding});
  EXPECT_EQ(t.text,
            "✗ net: rank 2 differs from ranks 0-1,3 in 2 of 6 hyperparameters; lr: 0.1 on rank 0, 0.2 on rank 2\n"
            "    momentum\n");
}

TEST(Renderer, NotesAndOkAreNoFaults) {
  Transcript t;
  Finding finding;
  finding.inspector = "verify";
  finding.verdict = Verdict::ok;
  finding.object = "net";
  finding.message = "14 parameters equal on ranks 0-3";
  t.renderer.take(FindingEvent{finding});
  finding.verdict = Verdict::straggler;
  finding.object.reset();
  finding.inspector = "time_sync";
  finding.message = "rank 2 is 1.8 x slower";
  t.renderer.take(FindingEvent{finding});
  finding.inspector = "hang";
  finding.verdict = Verdict::dead;
  finding.message = "rank 2 raised ValueError";
  t.renderer.take(FindingEvent{finding});
  EXPECT_EQ(t.text,
            "✓ net: 14 parameters equal on ranks 0-3\n• time_sync: rank 2 is 1.8 x slower\n"
            "• rank 2 raised ValueError\n");
}

TEST(Renderer, AsciiWhereTheLocaleHasNoUnicode) {
  Transcript t(4, {});
  t.output({0, 1, 2, 3}, "out\n");
  t.output({2}, "err\n", Stream::standard_error);
  t.renderer.take(FindingEvent{drifted()});
  for (const char c : t.text) ASSERT_LT(static_cast<unsigned char>(c), 0x80) << t.text;
  EXPECT_THAT(t.text, HasSubstr("0-3 | out\n2   ! err\nx net: rank 2"));
  EXPECT_THAT(t.text, HasSubstr("max |diff| 1.2e-03"));
}

TEST(Renderer, InterruptionsSayThatStateIsKept) {
  Transcript t(2);
  t.end({0, 1}, CellStatus::interrupted);
  EXPECT_EQ(t.text, "■ ranks 0-1: interrupted; variables are kept\n");
  t.text.clear();
  t.renderer.take(CellEvent{
      .status = CellStatus::interrupted, .rank_status = {{0, CellStatus::interrupted}}, .keeps_names = false});
  EXPECT_EQ(t.text, "■ rank 0: interrupted\n");
}

TEST(Renderer, DeathsAreToldOnce) {
  Transcript t;
  t.renderer.take(RankEvent{2, RankState::dead, "killed by SIGKILL in cell 1"});
  t.renderer.take(RankEvent{3, RankState::dead, "exited with code 3"});
  t.renderer.take(RankEvent{1, RankState::running, ""});
  t.renderer.take(ErrorEvent{
      .cell = 1, .ranks = {2}, .type = "SIGKILL", .message = "killed by SIGKILL", .where = "cell 1, line 2"});
  EXPECT_EQ(t.text, "");
  t.end({0, 1, 2, 3}, CellStatus::dead);
  EXPECT_EQ(t.text,
            "✗ rank 3: exited with code 3\n"
            "✗ rank 2: SIGKILL in cell 1, line 2\n"
            "    killed by SIGKILL\n");
}

TEST(Renderer, AThousandRanksThatWaitAreNotAThousandLines) {
  Transcript t;
  const auto wait = [&](int rank) { t.renderer.take(RankEvent{rank, RankState::waiting, "waits in barrier #1"}); };
  for (int rank = 0; rank < 1024; ++rank) wait(rank);
  t.renderer.take(RankEvent{1024, RankState::waiting, "does something else"});
  t.renderer.flush();
  EXPECT_THAT(lines_of(t.text), testing::SizeIs(10));
  EXPECT_THAT(t.text, testing::StartsWith("• rank 0: waits in barrier #1\n"));
  EXPECT_THAT(t.text, testing::EndsWith("• ranks 8-1023: wait in barrier #1\n• rank 1024: does something else\n"));
  t.renderer.take(CellEvent{.status = CellStatus::ok});
  t.text.clear();
  wait(3);
  EXPECT_EQ(t.text, "• rank 3: waits in barrier #1\n") << "the next cell begins again";
}

TEST(Renderer, ATerminalShowsRanksThatWaitBeforeTheyAreDrawnTogether) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 60});
  for (int rank = 0; rank < 16; ++rank) t.renderer.take(RankEvent{rank, RankState::waiting, "waits in barrier #1"});
  EXPECT_THAT(t.text, testing::EndsWith("• ranks 8-15: wait in barrier #1"));
}

TEST(Renderer, DeathsAtThePromptAreToldAtOnceAndOnce) {
  Transcript t;
  t.renderer.set_live(false);
  t.renderer.take(RankEvent{2, RankState::dead, "ended by SIGKILL"});
  t.renderer.take(ErrorEvent{.cell = 0, .ranks = {2}, .type = "SIGKILL", .message = "killed while no cell ran on it"});
  EXPECT_EQ(t.text, "✗ rank 2: SIGKILL\n    killed while no cell ran on it\n");
  t.renderer.flush();
  EXPECT_THAT(t.text, testing::EndsWith("on it\n"));
}

TEST(Renderer, ATerminalShowsADeathAtOnceWhileOthersRun) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 40});
  t.renderer.take(RankEvent{1, RankState::dead, "ended by SIGKILL in cell 1"});
  EXPECT_EQ(t.text, "✗ rank 1: ended by SIGKILL in cell 1");
}

TEST(Renderer, ADeathIsToldBeforeTheEndOfTheCellAndIsTheLastCauseThere) {
  Transcript t(3);
  t.renderer.take(RankEvent{1, RankState::dead, "ended by SIGKILL in cell 1"});
  ErrorEvent death{.cell = 1, .ranks = {1}, .type = "SIGKILL", .message = "killed", .where = "cell 1, line 2"};
  death.others_run = true;
  t.renderer.take(death);
  EXPECT_EQ(t.text, "✗ rank 1: SIGKILL in cell 1, line 2\n    killed\n");
  t.text.clear();
  t.output({0, 2}, "goes on\n");
  t.renderer.take(
      ErrorEvent{.cell = 1, .ranks = {0, 2}, .type = "dist::PeerLost", .message = "rank 1 died", .root_cause = false});
  t.end({0, 1, 2}, CellStatus::dead);
  EXPECT_EQ(t.text,
            "0,2 │ goes on\n"
            "• ranks 0,2: dist::PeerLost\n"
            "    rank 1 died\n"
            "✗ rank 1: SIGKILL in cell 1, line 2, see above\n");
}

TEST(Renderer, DroppedOutputIsCountedAndEndsWithTheCell) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 80});
  t.output({0, 1}, "shown\nhalf");
  t.text.clear();
  t.renderer.drop_output(1000);
  EXPECT_EQ(t.text, "\n■ interrupted; output that is not shown yet is dropped\n");
  t.text.clear();
  t.output({0, 1}, std::string(2'000'000, 'x') + "\n");
  t.renderer.take(ValueEvent{1, {0}, "42", nullptr});
  EXPECT_EQ(t.text, "");
  t.end({0, 1}, CellStatus::interrupted);
  EXPECT_EQ(t.text, "… 2.0 MB of output not shown\n■ ranks 0-1: interrupted; variables are kept\n");
  t.text.clear();
  t.output({0, 1}, "next\n");
  EXPECT_EQ(t.text, "0-1 │ next\n");
}

TEST(Renderer, AFirstLineOfMegabytesIsCut) {
  Transcript t;
  t.renderer.begin_cell(1, {0}, "", std::string(1 << 20, 'x'));
  EXPECT_LT(t.text.size(), 1000u);
}

TEST(Renderer, TheStartNamesDevicesAndVersions) {
  Screen screen{.unicode = true};
  std::string text;
  Renderer renderer(screen, [&](std::string_view bytes) { text += bytes; });
  renderer.take(SessionEvent{.id = "1-a",
                             .ranks = {0, 1},
                             .backend = "gloo",
                             .devices = {{0, "cpu"}, {1, "cpu"}},
                             .versions = {{"libtorch", "2.11.0"}, {"compiler", "clang 19.1.7"}}});
  EXPECT_THAT(text, HasSubstr("✓ 2 ranks, gloo, LibTorch 2.11.0, clang 19.1.7\n    ranks 0-1 on cpu\n"));
  EXPECT_THAT(text, HasSubstr("%help"));
}

TEST(Renderer, CellsBeginAsPromptsShowThem) {
  Transcript t;
  t.renderer.begin_cell(7, {0, 1, 2, 3}, "", "%verify net");
  t.renderer.begin_cell(8, {0}, "", "\nint a;\nint b;");
  t.renderer.begin_cell(9, {0, 1}, "a title", "int c;\nint d;");
  EXPECT_EQ(t.text, "In [7] ranks 0-3 ▸ %verify net\nIn [8] rank 0 ▸ int a; …\nIn [9] ranks 0-1 ▸ a title\n");
}

TEST(Renderer, QuietLeavesOutNotes) {
  Transcript t;
  t.renderer.set_quiet(true);
  Finding ok;
  ok.verdict = Verdict::ok;
  t.renderer.take(FindingEvent{ok});
  t.renderer.take(RankEvent{1, RankState::idle, "2 threads"});
  t.renderer.take(EndEvent{0, {{"cells", 3}}});
  EXPECT_EQ(t.text, "");
  t.renderer.take(FindingEvent{drifted()});
  EXPECT_THAT(t.text, HasSubstr("✗ net"));
}

TEST(Renderer, TheEndSumsUp) {
  Transcript t;
  t.renderer.take(EndEvent{0, {{"cells", 14}, {"failed", 0}, {"faults", 0}}});
  t.renderer.take(EndEvent{1, {{"cells", 1}, {"failed", 1}, {"faults", 2}}});
  EXPECT_EQ(t.text, "✓ 14 cells\n✗ 1 cell, 1 failed, 2 faults (exit code 1)\n");
}

TEST(Renderer, MarkdownOnATerminal) {
  Transcript t(2, {.terminal = true, .colour = true, .unicode = true, .width = 30});
  t.renderer.take(MarkdownEvent{"# Replicas\n\nThey start **equal**."});
  EXPECT_EQ(t.text, "\n\033[1m# Replicas\033[0m\n\nThey start \033[1mequal\033[0m.\n\n");
}

TEST(Renderer, ALoopIsARowInPlaceAndALineAtItsEnd) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 60});
  ProgressEvent event{.cell = 1,
                      .loop = 4,
                      .label = "epoch",
                      .ranks = {0, 1},
                      .done = {{0, 2}, {1, 2}},
                      .total = {{0, 4}, {1, 4}},
                      .elapsed_s = {{0, 1}, {1, 1}}};
  t.renderer.take(event);
  EXPECT_EQ(t.text, "0-1 │ epoch  50% 2/4 [0:01<0:01, 2 it/s]");
  t.text.clear();
  t.output({0, 1}, "half way\n");
  EXPECT_EQ(t.text, "\r\033[J0-1 │ half way\n0-1 │ epoch  50% 2/4 [0:01<0:01, 2 it/s]");
  t.text.clear();
  event.done = {{0, 4}, {1, 4}};
  event.elapsed_s = {{0, 4}, {1, 4}};
  event.state = LoopState::completed;
  t.renderer.take(event);
  EXPECT_EQ(t.text, "\r\033[J0-1 │ epoch  100% 4/4 [0:04, 1 it/s]\n");
}

TEST(Renderer, InAFileALoopIsItsLastLine) {
  Transcript t(2);
  ProgressEvent event{
      .cell = 1, .loop = 4, .label = "epoch", .ranks = {0}, .done = {{0, 1}}, .total = {{0, 4}}, .elapsed_s = {{0, 1}}};
  t.renderer.take(event);
  ProgressEvent inner = event;
  inner.loop = 5;
  inner.parent = 4;
  t.renderer.take(inner);
  inner.state = LoopState::completed;
  t.renderer.take(inner);
  EXPECT_EQ(t.text, "") << "a loop in a loop leaves none";
  event.state = LoopState::stopped;
  t.renderer.take(event);
  EXPECT_EQ(t.text, "0   │ epoch  stopped at 25% 1/4 [0:01, 1 it/s]\n");
}

TEST(Renderer, WhatTakesLongIsBelowTheOutputAndVanishes) {
  Transcript t(2, {.terminal = true, .unicode = true, .width = 60});
  ActivityEvent event{.phase = ActivityEvent::Phase::compiling, .cell = 2, .elapsed_s = 3};
  t.renderer.take(event);
  EXPECT_EQ(t.text, "… compiling cell 2 for 0:03");
  t.text.clear();
  t.renderer.take(ActivityEvent{});
  EXPECT_EQ(t.text, "\r\033[J");
  Transcript file(2);
  file.renderer.take(event);
  EXPECT_EQ(file.text, "");
}
