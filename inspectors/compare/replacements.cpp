#include "inspectors/compare/replacements.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "inspectors/compare/folders.h"
#include "protocol/checksum.h"
#include "protocol/error.h"

namespace lockstep::inspect::compare {

namespace {

/// Names a reference by the checksums of its pieces.
std::string name_of(const Run& reference) {
  std::string sums;
  for (const Piece& each : reference.ranks.front().pieces)
    sums.append(reinterpret_cast<const char*>(&each.checksum), sizeof each.checksum);
  return fmt::format("of the reference {:x}", protocol::checksum(sums));
}

}  // namespace

ReplacementWriter::ReplacementWriter(const std::string& folder, const Run& reference, const Run& candidate) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(folder + " can't be made: " + error.message());
  for (const Recording& each : candidate.ranks) {
    RecordingAbout about = each.about;
    about.has_values = true;
    auto writer = std::make_unique<RecordingWriter>(path_of_recording(folder, about.rank), about);
    writer->add_note(name_of(reference));
    for (const Samples& samples : each.samples) writer->add_samples(samples);
    ranks_[about.rank] = {.writer = std::move(writer), .names = {}};
  }
}

void ReplacementWriter::add(const PieceKey& key, const JudgedValue& value) {
  if (!value.expected || key.kind == PieceKind::loss) return;  // a loss follows from the outputs
  Rank& rank = ranks_.at(value.rank);
  const auto [name, is_new] = rank.names.try_emplace(key.name, 0);
  if (is_new) name->second = rank.writer->add_name({key.name, ""});
  const Piece piece{.step = key.step,
                    .name = name->second,
                    .micro_batch = value.micro_batch,
                    .call = key.call,
                    .kind = key.kind,
                    .element = value.expected->element,
                    .box = value.piece->box};
  const std::vector<std::byte>& bytes = value.expected->bytes;
  rank.writer->add_piece(piece, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void ReplacementWriter::close() {
  for (auto& [number, rank] : ranks_) rank.writer->close();
}

bool are_of(const Run& replacements, const Run& reference) {
  return std::ranges::find(replacements.ranks.front().notes, name_of(reference)) !=
         replacements.ranks.front().notes.end();
}

Replacements::Replacements(const std::string& path) : recording_(read_recording(path)) {
  for (const Piece& each : recording_.pieces)
    if (each.values_at != 0)
      pieces_[{each.step, each.kind, recording_.names[each.name].name, each.micro_batch, each.call}] = &each;
}

const Piece* Replacements::find(const std::string& name, const Piece& recorded) const {
  const auto found = pieces_.find({recorded.step, recorded.kind, name, recorded.micro_batch, recorded.call});
  return found != pieces_.end() && found->second->box.size == recorded.box.size ? found->second : nullptr;
}

void Replacements::check_samples(const Samples& samples) const {
  const auto before = std::ranges::find_if(recording_.samples, [&](const Samples& each) {
    return each.step == samples.step && each.micro_batch == samples.micro_batch;
  });
  if (before == recording_.samples.end() || before->hashes != samples.hashes)
    throw Error(fmt::format(
        "in step {}, micro-batch {}, the candidate is given other samples than in its run before, so that its values "
        "have no counterparts there: set the seed of what chooses them",
        samples.step, samples.micro_batch));
}

}  // namespace lockstep::inspect::compare
