// What Query asks the I/O thread of a rank, and the answer to each question, which is the body of Reply. A rank of a Python
// job answers Status and Stack, and those that only ranks in Python answer; one of a session of Python answers Hang, too.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/status.h"

namespace lockstep::protocol {

/// Every answer begins with the reason why there is none, if so.
struct MayFail {
  std::string error;  // empty: what follows is the answer
};
struct NoAnswer : MayFail {};

/// A function or a question that could not be read. The answer is `problem`, which names the field.
struct Unreadable {
  using Answer = NoAnswer;
  std::string problem = "the message has no such field";
};
constexpr std::string_view kind_of(const Unreadable*) { return "unreadable"; }
void to_json(nlohmann::json& json, const Unreadable& unreadable);
void from_json(const nlohmann::json& json, Unreadable& unreadable);

namespace question {
/// A record of the collective log (dist::CollectiveRecord).
struct Collective {
  std::string group;
  int64_t seq = 0;
  std::string op = "?", dtype;
  std::vector<int64_t> shape;
  int tensors = 0;
  std::optional<int> root;
  std::optional<std::string> reduce_op;
  std::optional<int> tag;  // this and the next: of messages between two ranks
  std::optional<int64_t> tag_seq;
  int64_t bytes = 0;
  int64_t cell = 0;
  std::optional<std::string> where;  // "cell 7, line 4"
  std::string state;  // entered, done, failed
  std::optional<std::string> stage;  // dist::stage_name(), where a device does it
  double entered_s_ago = 0;
  double took_us = 0;
};
void to_json(nlohmann::json& json, const Collective& collective);
void from_json(const nlohmann::json& json, Collective& collective);

struct Status {
  struct Answer : MayFail {
    RankState state = RankState::starting;
    int64_t cell = 0;
    std::optional<int> line;  // the first of the step that runs
    double since_s = 0;  // in this state
    std::optional<Collective> collective;  // that the rank waits in
    std::string device;
    std::optional<std::string> device_name, device_bus_id;  // of a GPU
    bool on_device = false;  // the cell has ended, and its work on the device has not
    std::optional<int64_t> rss_bytes;
    int threads = 0;
    int64_t cells_loaded = 0;
    bool on_preempt = false;  // the rank has registered a function with on_preempt()
  };
};

/// A frame of a stack.
struct Frame {
  std::string function;
  std::optional<int64_t> cell;  // nothing, or 0: not code of a cell
  std::optional<int> line;
  std::string object;
};

struct Stack {
  struct Answer : MayFail {  // innermost first; empty while the rank is idle
    std::vector<std::string> stack;  // "train() at cell 7, line 4"
    std::vector<Frame> frames;
  };
};

struct Collectives {
  struct Answer : MayFail {
    std::vector<Collective> collectives;  // oldest first
  };
  int64_t last = 20;  // how many of the newest
};

/// An exception that the rank has thrown and caught.
struct Throw {
  int64_t cell = 0;
  std::string type, where;
  int64_t time_ns = 0;
};

/// What NCCL and c10d say of a rank (inspectors/evidence reads it). A text is empty where there is none.
struct NcclEvidence {
  std::string recorder;  // JSON
  std::string errors;  // lines of JSON
  std::string ras;  // JSON
  std::string problem;
};

struct Hang {
  struct Answer : MayFail {
    std::optional<std::vector<Frame>> frames;  // nothing: the thread that runs cells does not answer
    bool held = false;  // the kernel says that the thread does not run
    bool asleep = false;  // it sleeps in a function of the worker's
    std::map<std::string, std::string> waits;  // lines of collectives that it is in, by number in the collective log
    std::string last;  // the line of the newest collective
    std::vector<Throw> throws;
    std::vector<std::string> sites;  // lines of Hang::sites; empty where this rank has not loaded the cell
    std::optional<NcclEvidence> evidence;  // nothing without NCCL
  };
  struct Site {  // a place in the code of a cell, at which `rank` has called a collective
    int64_t cell = 0;
    uint64_t offset = 0;
    int rank = 0;
  };
  std::vector<Site> sites;
  int ras_rank = -1;  // the rank that asks NCCL's RAS
};

struct Replay {
  struct Answer : MayFail {
    std::string text;  // how far the replay of this rank is the recorded run
    bool departed = false;  // it is another one
    bool over = false;  // it has come to the end of the recording, or of what was asked for
    bool skipping = false;  // it is between steps that are left out
  };
};

// Only ranks in Python answer those that follow.
struct Cpp {
  struct Answer : MayFail {
    std::string torch, headers;  // folders to compile C++ cells with
    std::string version;  // of torch
    std::string problem;  // why they can't be compiled for this rank
  };
};
struct IsComplete {
  struct Answer : MayFail {
    TextStatus status = TextStatus::complete;
    int indent = 0;  // levels, of the line that follows
  };
  std::string text;
};
struct Complete {
  struct Answer : MayFail {
    int64_t begin = 0;  // the candidates may stand for the bytes from here to `offset`
    std::vector<std::string> candidates;
  };
  std::string text;
  int64_t offset = 0;  // in bytes
};
struct Describe {
  struct Answer : MayFail {
    std::optional<std::string> text;  // nothing: there is no such thing
  };
  std::string expression;  // of names, attributes and subscripts
};
}  // namespace question

using Question =
    std::variant<Unreadable, question::Status, question::Stack, question::Collectives, question::Hang, question::Cpp,
                 question::IsComplete, question::Complete, question::Describe, question::Replay>;
using Answer = std::variant<NoAnswer, question::Status::Answer, question::Stack::Answer, question::Collectives::Answer,
                            question::Hang::Answer, question::Cpp::Answer, question::IsComplete::Answer,
                            question::Complete::Answer, question::Describe::Answer, question::Replay::Answer>;

/// A question that can't be read arrives as Unreadable.
void to_json(nlohmann::json& json, const Question& question);
void from_json(const nlohmann::json& json, Question& question);

/// Returns all fields; {"error": why not} where there is no answer.
nlohmann::json encode_answer(const Answer& answer);
/// Returns the answer to a question like `question`. The error of one that has another form names the question and the
/// field. Fields that it does not have keep their defaults.
Answer decode_answer(const Question& question, const nlohmann::json& body);
template <typename Q>
typename Q::Answer decode_answer(const nlohmann::json& body) {
  return std::get<typename Q::Answer>(decode_answer(Q(), body));
}

/// Returns the answers of ranks to a question of type Q.
template <typename Q>
std::map<int, typename Q::Answer> answers_to(std::map<int, Answer> answers) {
  std::map<int, typename Q::Answer> result;
  for (auto& [rank, answer] : answers) result.emplace(rank, std::get<typename Q::Answer>(std::move(answer)));
  return result;
}

/// Returns a line for each rank whose answer is an error: "rank 3: the answer to …". Who has not answered is not there.
template <typename Answer>
std::string errors_in(const std::map<int, Answer>& answers) {
  std::string lines;
  for (const auto& [rank, answer] : answers)
    if (!answer.error.empty()) lines += "rank " + std::to_string(rank) + ": " + answer.error + "\n";
  return lines;
}

}  // namespace lockstep::protocol
