#include "python/operators/compare.h"

#include <ATen/ATen.h>

#include <memory>
#include <mutex>
#include <set>

#include "inspectors/compare/folders.h"
#include "inspectors/compare/recording.h"
#include "inspectors/compare/replacements.h"
#include "inspectors/recorder/tensors.h"
#include "protocol/error.h"

namespace lockstep::python {
namespace {

namespace compare = inspect::compare;
using nlohmann::json;

/// Backward may record on threads of its own.
struct OpenRecording {
  std::mutex mutex;
  std::unique_ptr<compare::RecordingWriter> writer;
  std::unique_ptr<compare::Replacements> replacements;  // null: values stay as they are
  std::vector<std::string> names;
  std::set<std::string> not_replaced;  // of which it was noted
  bool has_values = false;
};

OpenRecording& opened() {
  static OpenRecording recording;
  return recording;
}

template <typename Use>
json with_writer(const Use& use) {
  const std::lock_guard lock(opened().mutex);
  if (!opened().writer) throw Error("no recording is open");
  return use(*opened().writer);
}

compare::Piece piece_of(at::IntArrayRef where) {
  TORCH_CHECK(where.size() == 7, "a piece of a recording: wrong arguments");
  return {.step = static_cast<uint32_t>(where[2]),
          .name = static_cast<uint32_t>(where[1]),
          .micro_batch = static_cast<uint32_t>(where[3]),
          .call = static_cast<uint32_t>(where[4]),
          .kind = static_cast<compare::PieceKind>(where[0]),
          .flags = static_cast<uint8_t>(where[5]),
          .lead = static_cast<int32_t>(where[6])};
}

}  // namespace

json compare_open(const Call& call) {
  const json& given = call.arguments;
  const compare::RecordingAbout about{.rank = given.at("rank"),
                                      .world_size = given.at("world_size"),
                                      .torch = given.at("torch"),
                                      .steps = given.at("steps"),
                                      .has_values = given.at("has_values"),
                                      .noise = given.at("noise")};
  const std::lock_guard lock(opened().mutex);
  const std::string replacements = given.at("replacements");
  if (!replacements.empty())
    opened().replacements =
        std::make_unique<compare::Replacements>(compare::path_of_recording(replacements, about.rank));
  opened().writer = std::make_unique<compare::RecordingWriter>(given.at("path"), about);
  opened().has_values = about.has_values;
  return json::object();
}

json compare_name(const Call& call) {
  return with_writer([&](compare::RecordingWriter& writer) {
    opened().names.push_back(call.arguments.at("name"));
    return json({{"name", writer.add_name({opened().names.back(), call.arguments.at("type")})}});
  });
}

json compare_note(const Call& call) {
  return with_writer([&](compare::RecordingWriter& writer) {
    writer.add_note(call.arguments.at("text").get<std::string>());
    return json::object();
  });
}

json compare_end_step(const Call&) {
  return with_writer([](compare::RecordingWriter& writer) {
    writer.end_step();
    return json::object();
  });
}

json compare_close(const Call&) {
  const json result = with_writer([](compare::RecordingWriter& writer) {
    writer.close();
    return json::object();
  });
  const std::lock_guard lock(opened().mutex);
  opened().writer.reset();
  return result;
}

void compare_piece(const at::Tensor& tensor, at::IntArrayRef where, at::IntArrayRef shape, at::IntArrayRef offset) {
  TORCH_CHECK(shape.size() == offset.size(), "compare_piece: wrong arguments");
  compare::Piece piece = piece_of(where);
  compare::RecordedTensor recorded{.piece = piece, .readable = {}};
  const bool is_there = !(piece.flags & compare::Piece::absent);
  if (is_there) recorded = compare::recorded(std::move(piece), tensor, shape, offset);
  const std::lock_guard lock(opened().mutex);
  if (!opened().writer) throw Error("no recording is open");
  opened().writer->add_piece(recorded.piece, is_there && opened().has_values ? recorded.values() : std::string_view());
}

void compare_replace(const at::Tensor& tensor, at::IntArrayRef where, bool stays) {
  compare::Piece piece = piece_of(where);
  piece.box.size = tensor.sizes().vec();
  const std::lock_guard lock(opened().mutex);
  if (!opened().writer || !opened().replacements) throw Error("no recording with replacements is open");
  const std::string& name = opened().names.at(piece.name);
  const bool is_replaced = !stays && compare::replace_values(tensor, *opened().replacements, name, piece);
  if (!is_replaced && opened().not_replaced.insert(name).second)
    opened().writer->add_note(name + compare::kNotReplaced);
}

int64_t compare_samples(const std::vector<at::Tensor>& inputs, int64_t step, int64_t micro_batch) {
  const compare::Samples samples{.step = static_cast<uint32_t>(step),
                                 .micro_batch = static_cast<uint32_t>(micro_batch),
                                 .hashes = compare::sample_hashes(inputs)};
  with_writer([&](compare::RecordingWriter& writer) {
    if (opened().replacements) opened().replacements->check_samples(samples);
    writer.add_samples(samples);
    return json::object();
  });
  return static_cast<int64_t>(samples.hashes.size());
}

}  // namespace lockstep::python
