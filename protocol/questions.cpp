#include "protocol/questions.h"

#include "protocol/variant_json.h"

namespace lockstep::protocol {

LOCKSTEP_DECLARED_JSON(Unreadable, problem)
LOCKSTEP_JSON(NoAnswer, error)

namespace question {
LOCKSTEP_DECLARED_JSON(Collective, group, seq, op, dtype, shape, tensors, root, reduce_op, tag, tag_seq, bytes, cell,
                       where, state, stage, entered_s_ago, took_us)
LOCKSTEP_JSON(Frame, function, cell, line, object)
LOCKSTEP_JSON(Throw, cell, type, where, time_ns)
LOCKSTEP_JSON(NcclEvidence, recorder, errors, ras, problem)
LOCKSTEP_JSON(Hang::Site, cell, offset, rank)

LOCKSTEP_EMPTY_MESSAGE("status", Status)
LOCKSTEP_JSON(Status::Answer, state, cell, line, since_s, collective, device, device_name, device_bus_id, on_device,
              rss_bytes, threads, cells_loaded, on_preempt)
LOCKSTEP_EMPTY_MESSAGE("stack", Stack)
LOCKSTEP_JSON(Stack::Answer, stack, frames)
LOCKSTEP_MESSAGE("collectives", Collectives, last)
LOCKSTEP_JSON(Collectives::Answer, collectives)
LOCKSTEP_MESSAGE("hang", Hang, sites, ras_rank)
LOCKSTEP_JSON(Hang::Answer, frames, held, asleep, waits, last, throws, sites, evidence)
LOCKSTEP_EMPTY_MESSAGE("cpp", Cpp)
LOCKSTEP_JSON(Cpp::Answer, torch, headers, version, problem)
LOCKSTEP_MESSAGE("is_complete", IsComplete, text)
LOCKSTEP_JSON(IsComplete::Answer, status, indent)
LOCKSTEP_MESSAGE("complete", Complete, text, offset)
LOCKSTEP_JSON(Complete::Answer, begin, candidates)
LOCKSTEP_MESSAGE("describe", Describe, expression)
LOCKSTEP_JSON(Describe::Answer, text)
LOCKSTEP_EMPTY_MESSAGE("replay", Replay)
LOCKSTEP_JSON(Replay::Answer, text, departed, over, skipping)
}  // namespace question

void to_json(nlohmann::json& json, const Question& question) { json = encode_variant(question); }
void from_json(const nlohmann::json& json, Question& question) { question = decode_part<Question>(json); }

nlohmann::json encode_answer(const Answer& answer) {
  return std::visit(
      [](const auto& each) {
        return each.error.empty() ? nlohmann::json(each) : nlohmann::json{{"error", each.error}};
      },
      answer);
}

Answer decode_answer(const Question& question, const nlohmann::json& body) {
  return std::visit(
      [&]<typename Q>(const Q& asked) -> Answer {
        typename Q::Answer answer;
        try {
          read_field(body, "error", answer.error);
          if (answer.error.empty()) body.get_to(answer);
        } catch (const nlohmann::json::exception& error) {
          const std::string_view why = error.what();  // "[json.exception.type_error.302] stack: type must be …"
          answer = {};
          answer.error = "the answer to '" + std::string(kind_of(&asked)) +
                         "' can't be read:" + std::string(why.substr(why.find(']') + 1));
        }
        return answer;
      },
      question);
}

}  // namespace lockstep::protocol
