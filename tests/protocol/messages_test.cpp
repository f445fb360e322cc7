// Every message survives the way through JSON, and what is no message is refused with words.
#include <gtest/gtest.h>
#include <set>

#include "protocol/compiler_messages.h"
#include "protocol/error.h"
#include "protocol/worker_messages.h"

namespace lockstep::protocol {
namespace {

template <typename T, typename Variant>
T through_json(Variant (*decode)(const nlohmann::json&), const Variant& message) {
  return std::get<T>(decode(nlohmann::json::parse(encode(message).dump())));
}

TEST(Messages, CompileKeepsItsFields) {
  const auto m = through_json<Compile>(
      decode_request,
      CompilerRequest(Compile{.cell = 7, .text = "int k = 1;\n", .ranks = {0, 2}, .optimize = 2, .debug = true}));
  EXPECT_EQ(m.cell, 7);
  EXPECT_EQ(m.text, "int k = 1;\n");
  EXPECT_EQ(m.ranks, (RankSet{0, 2}));
  EXPECT_EQ(m.optimize, 2);
  EXPECT_TRUE(m.debug);
  EXPECT_EQ(m.time_limit_s, 60);
}

TEST(Messages, SettleKeepsRanksAsKeys) {
  const auto m = through_json<Settle>(
      decode_request, CompilerRequest(Settle{.cell = 3, .loaded = true, .steps_done = {{0, 4}, {11, 2}}}));
  EXPECT_EQ(m.steps_done.at(11), 2);
}

TEST(Messages, CompiledKeepsObjectsAndDiagnostics) {
  Compiled sent{.cell = 1, .status = CompileStatus::ok};
  sent.diagnostics.push_back({.severity = DiagnosticSeverity::warning, .line = 2, .column = 5, .message = "unused"});
  sent.objects.push_back({.ranks = {1}, .name = "cell_1.so", .entry = "e", .steps = {{3, {"a", "b"}}}, .frame = 0});
  const auto m = through_json<Compiled>(decode_response, CompilerResponse(sent));
  EXPECT_EQ(m.objects.at(0).steps.at(0).names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(m.diagnostics.at(0).column, 5);
}

TEST(Messages, DoneKeepsItsError) {
  Done sent{.cell = 4, .status = CellStatus::error, .steps_done = 2, .run_ms = 1.5, .collectives = {{"default", 12}}};
  sent.error = CellError{.type = "std::runtime_error", .message = "bad", .where = "cell 4, line 2", .where_line = 2};
  const auto m = through_json<Done>(decode_worker_message, WorkerMessage(sent));
  ASSERT_TRUE(m.error);
  EXPECT_EQ(m.error->where_line, 2);
  EXPECT_EQ(m.collectives.at("default"), 12);
  EXPECT_FALSE(
      (through_json<Done>(decode_worker_message, WorkerMessage(Done{.cell = 4, .status = CellStatus::ok})).error));
}

TEST(Messages, ProgressKeepsAnUnknownTotalUnknown) {
  Progress sent{.cell = 4, .loop = "3:1#0", .label = "epoch", .line = 3, .done = 7, .elapsed_s = 1.5};
  auto m = through_json<Progress>(decode_worker_message, WorkerMessage(sent));
  EXPECT_FALSE(m.total);
  EXPECT_EQ(m.state, LoopState::running);
  sent.total = 10;
  sent.state = LoopState::stopped;
  m = through_json<Progress>(decode_worker_message, WorkerMessage(sent));
  EXPECT_EQ(m.total, 10);
  EXPECT_EQ(m.state, LoopState::stopped);
}

TEST(Messages, AStepOfTheStartMayHaveAnEstimate) {
  const auto m = through_json<CompilerProgress>(
      decode_response, CompilerResponse(CompilerProgress{
                           .message = "", .step = StartStep{.what = "x", .number = 1, .count = 2, .last_s = 20.5}}));
  ASSERT_TRUE(m.step);
  EXPECT_EQ(m.step->last_s, 20.5);
  EXPECT_FALSE(
      (through_json<CompilerProgress>(decode_response, CompilerResponse(CompilerProgress{.message = "m"}))).step);
}

TEST(Messages, FindingKeepsAbsentThingsAbsent) {
  Finding finding{.severity = Severity::fault, .inspector = "verify", .verdict = Verdict::mismatch, .ranks = {2}};
  finding.tensors.push_back(
      {.name = "fc1.weight", .dtype = "float32", .shape = {256, 64}, .count = 3, .first = {12, 4}});
  const nlohmann::json json = finding;
  EXPECT_TRUE(json.at("step").is_null());
  EXPECT_TRUE(json.at("op").is_null());
  EXPECT_EQ(json.at("tensor"), "fc1.weight");
  EXPECT_EQ(json.at("severity"), "fault");
  const auto m = through_json<FindingMessage>(decode_worker_message, WorkerMessage(FindingMessage{finding}));
  EXPECT_EQ(m.finding.tensors.at(0).first, (std::vector<int64_t>{12, 4}));
  EXPECT_FALSE(m.finding.step);
  EXPECT_EQ(m.finding.subject, "");
  set_message_with_ranks(finding, "fc1.weight became NaN");
  EXPECT_EQ(finding.message, "on rank 2 fc1.weight became NaN");
  const auto own = through_json<FindingMessage>(decode_worker_message, WorkerMessage(FindingMessage{finding}));
  EXPECT_EQ(message_without_ranks(own.finding), "fc1.weight became NaN");
}

TEST(Messages, LongWaits) {
  const LongWait wait{7, 12, FindingOp{.name = "barrier", .seq = 3, .shape = {}, .dtype = "", .group = "default"}};
  const auto m = through_json<LongWait>(decode_worker_message, WorkerMessage(wait));
  EXPECT_EQ(m.cell, 7);
  EXPECT_EQ(m.entry, 12);
  EXPECT_EQ(m.op.seq, 3);
}

template <typename Variant>
void expect_own_names(Variant (*decode)(const nlohmann::json&)) {
  std::set<std::string> kinds;
  const auto add = [&](const Variant& message) {
    const nlohmann::json header = encode(message);
    EXPECT_EQ(decode(header).index(), message.index()) << header;
    kinds.insert(header.at("kind"));
  };
  [&]<typename... Message>(std::variant<Message...>*) { (add(Message{}), ...); }(static_cast<Variant*>(nullptr));
  EXPECT_EQ(kinds.size(), std::variant_size_v<Variant>);
}

template <typename Message, typename Part>
void expect_own_parts(Part Message::* part) {
  const auto add = [&](const Part& sent) {
    Message message;
    message.*part = sent;
    const auto arrived = through_json<Message>(decode_hub_message, HubMessage(message));
    EXPECT_EQ((arrived.*part).index(), sent.index()) << encode(HubMessage(message));
  };
  [&]<typename... Each>(std::variant<Each...>*) { (add(Each{}), ...); }(static_cast<Part*>(nullptr));
}

TEST(Messages, EveryQuestionAndFunctionArrivesAsWhatItIs) {
  expect_own_parts(&Query::question);
  expect_own_parts(&Builtin::function);
  const auto m = through_json<Query>(decode_hub_message,
                                     HubMessage(Query{3, question::Hang{.sites = {{7, 0x40, 1}}, .ras_rank = 2}}));
  const auto& hang = std::get<question::Hang>(m.question);
  EXPECT_EQ(hang.sites.at(0).offset, 0x40u);
  EXPECT_EQ(hang.sites.at(0).rank, 1);
  EXPECT_EQ(hang.ras_rank, 2);
}

TEST(Messages, AQuestionThatCanNotBeReadArrivesWithTheReason) {
  const auto problem_of = [](const nlohmann::json& question) {
    const nlohmann::json header = {{"v", kProtocolVersion}, {"kind", "query"}, {"id", 5}, {"question", question}};
    const auto query = std::get<Query>(decode_hub_message(header));
    EXPECT_EQ(query.id, 5);
    return std::get<Unreadable>(query.question).problem;
  };
  const nlohmann::json without = {{"v", kProtocolVersion}, {"kind", "query"}, {"id", 5}};
  const auto query = std::get<Query>(decode_hub_message(without));
  EXPECT_EQ(std::get<Unreadable>(query.question).problem, "the message has no such field");
  EXPECT_NE(problem_of({{"kind", "horoscope"}}).find("'horoscope'"), std::string::npos);
  EXPECT_NE(problem_of({{"kind", "collectives"}, {"last", "all"}}).find("last: type must be number"),
            std::string::npos);
  EXPECT_NE(problem_of({{"kind", "hang"}, {"sites", nlohmann::json::array({4})}}).find("sites: type must be object"),
            std::string::npos);
  EXPECT_NE(problem_of({{"kind", "hang"}, {"sites", {{{"cell", "x"}}}}}).find("sites: cell: type must be number"),
            std::string::npos);
  EXPECT_NE(problem_of(nlohmann::json::array({1})).find("without a kind"), std::string::npos);
}

TEST(Messages, AnAnswerArrivesAsItWasGiven) {
  question::Hang::Answer sent;
  sent.frames = {{.function = "train()", .cell = 7, .line = 4, .object = ""}};
  sent.waits = {{"12", "cell 7, line 4"}};
  sent.sites = {"", "cell 7, line 5"};
  sent.evidence = question::NcclEvidence{.recorder = "{}", .errors = "", .ras = "", .problem = "no RAS"};
  const auto hang = decode_answer<question::Hang>(nlohmann::json::parse(encode_answer(sent).dump()));
  EXPECT_EQ(hang.error, "");
  EXPECT_EQ(hang.frames.value().at(0).cell, 7);
  EXPECT_EQ(hang.waits, sent.waits);
  EXPECT_EQ(hang.sites, sent.sites);
  EXPECT_EQ(hang.evidence.value().problem, "no RAS");
  sent.error = "the rank is busy";
  EXPECT_EQ(encode_answer(sent), (nlohmann::json{{"error", "the rank is busy"}}));
  EXPECT_EQ(decode_answer<question::Hang>(encode_answer(sent)).error, "the rank is busy");
}

TEST(Messages, AnAnswerOfAnotherFormIsAnErrorThatNamesQuestionAndField) {
  EXPECT_EQ(decode_answer<question::Stack>({{"stack", {"f()"}}, {"frames", 3}}).error,
            "the answer to 'stack' can't be read: frames: type must be array, but is number");
  EXPECT_TRUE(decode_answer<question::Stack>({{"stack", {"f()"}}, {"frames", 3}}).stack.empty());
  const auto collective = decode_answer<question::Status>({{"state", "idle"}, {"collective", {{"seq", "x"}}}});
  EXPECT_EQ(collective.error,
            "the answer to 'status' can't be read: collective: seq: type must be number, but is string");
  EXPECT_EQ(decode_answer<question::Status>({{"state", "dancing"}}).error,
            "the answer to 'status' can't be read: state: 'dancing' is not a known word");
  EXPECT_EQ(decode_answer<question::Collectives>(nlohmann::json::array({1})).error,
            "the answer to 'collectives' can't be read: type must be object, but is array");
}

TEST(Messages, EveryKindHasItsOwnName) {
  expect_own_names(decode_hub_message);
  expect_own_names(decode_worker_message);
  expect_own_names(decode_request);
  expect_own_names(decode_response);
}

TEST(Messages, UnknownKindsVersionsAndDamagedFieldsAreRefused) {
  auto load = encode(HubMessage(Load{}));
  load["kind"] = "teleport";
  EXPECT_THROW(decode_hub_message(load), ChannelError);
  auto run = encode(HubMessage(protocol::Run{}));
  run["v"] = kProtocolVersion + 1;
  try {
    decode_hub_message(run);
    FAIL();
  } catch (const ChannelError& error) {
    EXPECT_NE(std::string(error.what()).find("same build"), std::string::npos) << error.what();
  }
  auto damaged = encode(HubMessage(protocol::Run{}));
  damaged["cell"] = "seven";
  EXPECT_THROW(decode_hub_message(damaged), ChannelError);
  Finding finding;
  finding.tensors.emplace_back().norms[1] = 0.5;
  auto of_no_rank = encode(WorkerMessage(FindingMessage{finding}));
  of_no_rank["finding"]["tensors"][0]["norms"] = {{"one", 0.5}};
  EXPECT_THROW(decode_worker_message(of_no_rank), ChannelError);
  EXPECT_THROW(decode_request(nlohmann::json::array()), ChannelError);
  EXPECT_THROW(decode_response(nlohmann::json{{"kind", 3}}), ChannelError);
}

}  // namespace
}  // namespace lockstep::protocol
