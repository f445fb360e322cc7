// Runs that are made up: one linear layer, y = x · w, whose values are computed here for any layout, and recorded as a rank
// would. Faults are changes of what a rank records.
#pragma once
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "inspectors/compare/recording.h"
#include "inspectors/compare/runs.h"

namespace lockstep::inspect::compare {

/// A folder that ends with its test.
struct CompareFolder {
  CompareFolder() {
    path = (std::filesystem::temp_directory_path() / "compare-test-XXXXXX").string();
    if (!::mkdtemp(path.data())) throw std::runtime_error("mkdtemp");
  }
  ~CompareFolder() { std::filesystem::remove_all(path); }
  std::string in(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

constexpr int64_t kSamples = 8, kInputs = 6, kOutputs = 4;
using Values = std::vector<float>;

inline Values made_up(size_t count, int seed) {
  Values values(count);
  uint32_t state = 2463534242u + static_cast<uint32_t>(seed) * 7919u;
  for (float& each : values) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    each = static_cast<float>(state % 2001) / 1000.f - 1.f;
  }
  return values;
}

/// What a rank records of one value.
struct RecordedValue {
  PieceKind kind = PieceKind::forward;
  std::string name;
  Values values;
  Box box;
  uint32_t micro_batch = 0;
  uint8_t flags = 0;
  int32_t lead = 0;
  std::string type;
  bool is_left_out = false;  // it is not recorded
};

/// How samples and micro-batches are divided.
struct MadeUpLayout {
  int data_parallel = 1, micro_batches = 1, same_samples = 1;
  double noise = 0;  // relative, and a number of a perturbed run
  std::function<void(int rank, RecordedValue& value)> fault = nullptr;
  std::function<void(int rank, std::vector<uint64_t>& hashes)> data_fault = nullptr;
  std::string type = "Linear";
};

/// Records one step of the layer in the folder: loss = mean of y² / 2 over samples and outputs.
inline Run made_up_run(const std::string& folder, const MadeUpLayout& layout, bool has_values = false) {
  std::filesystem::create_directories(folder);
  const Values x = made_up(kSamples * kInputs, 1), w = made_up(kInputs * kOutputs, 2);
  const int ranks = layout.data_parallel * layout.same_samples;
  const int64_t per_batch = kSamples / layout.data_parallel / layout.micro_batches;
  for (int rank = 0; rank < ranks; ++rank) {
    RecordingWriter writer(folder + "/rank-" + std::to_string(rank) + ".rec", {.rank = rank,
                                                                               .world_size = ranks,
                                                                               .torch = "2.11",
                                                                               .steps = 1,
                                                                               .has_values = has_values,
                                                                               .noise = layout.noise});
    std::map<std::string, uint32_t> names;
    int noises = static_cast<int>(layout.noise * 100);
    const auto record = [&](RecordedValue value) {
      if (layout.noise > 0 && value.kind != PieceKind::initial) {
        const Values noise = made_up(value.values.size(), ++noises);
        for (size_t i = 0; i < noise.size(); ++i) value.values[i] *= 1 + (noise[i] > 0 ? 1.2e-7f : -1.2e-7f);
      }
      if (layout.fault) layout.fault(rank, value);
      if (value.is_left_out) return;
      if (!names.contains(value.name)) names[value.name] = writer.add_name({value.name, value.type});
      Piece piece{.name = names[value.name],
                  .micro_batch = value.micro_batch,
                  .kind = value.kind,
                  .flags = value.flags,
                  .lead = value.lead,
                  .box = value.box};
      piece.summary = sketch_of(Element::float32, value.values.data(), value.box);
      writer.add_piece(piece, has_values ? std::string_view(reinterpret_cast<const char*>(value.values.data()),
                                                            value.values.size() * sizeof(float))
                                         : std::string_view());
    };
    const Box of_w{{kInputs, kOutputs}, {0, 0}, {kInputs, kOutputs}};
    record({.kind = PieceKind::initial, .name = "w", .values = w, .box = of_w});
    const int64_t first = rank / layout.same_samples * (kSamples / layout.data_parallel);
    for (int m = 0; m < layout.micro_batches; ++m) {
      const int64_t begin = first + m * per_batch;
      std::vector<uint64_t> hashes(static_cast<size_t>(per_batch));
      std::iota(hashes.begin(), hashes.end(), 1000 + static_cast<uint64_t>(begin));
      if (layout.data_fault) layout.data_fault(rank, hashes);
      writer.add_samples({.micro_batch = static_cast<uint32_t>(m), .hashes = hashes});
      Values y(static_cast<size_t>(per_batch * kOutputs)), gradient(y.size());
      float loss = 0;
      const auto count = static_cast<float>(y.size()), micro = static_cast<float>(layout.micro_batches);
      for (int64_t s = 0; s < per_batch; ++s)
        for (int64_t o = 0; o < kOutputs; ++o) {
          const auto at = static_cast<size_t>(s * kOutputs + o);
          for (int64_t i = 0; i < kInputs; ++i)
            y[at] += x[static_cast<size_t>((begin + s) * kInputs + i)] * w[static_cast<size_t>(i * kOutputs + o)];
          loss += y[at] * y[at] / 2 / count / micro;
          gradient[at] = y[at] / count / micro;
        }
      const Box of_y{{per_batch, kOutputs}, {0, 0}, {per_batch, kOutputs}};
      const auto number = static_cast<uint32_t>(m);
      record({.kind = PieceKind::forward,
              .name = "layer",
              .values = y,
              .box = of_y,
              .micro_batch = number,
              .type = layout.type});
      record({.kind = PieceKind::loss, .name = "loss", .values = {loss}, .box = {}, .micro_batch = number});
      record({.kind = PieceKind::backward, .name = "layer", .values = gradient, .box = of_y, .micro_batch = number});
    }
    // Reduced over the data-parallel ranks, it is that of the whole batch.
    Values gradient(w.size());
    for (int64_t s = 0; s < kSamples; ++s)
      for (int64_t o = 0; o < kOutputs; ++o) {
        float y = 0;
        for (int64_t i = 0; i < kInputs; ++i)
          y += x[static_cast<size_t>(s * kInputs + i)] * w[static_cast<size_t>(i * kOutputs + o)];
        for (int64_t i = 0; i < kInputs; ++i)
          gradient[static_cast<size_t>(i * kOutputs + o)] +=
              x[static_cast<size_t>(s * kInputs + i)] * y / static_cast<float>(kSamples * kOutputs);
      }
    record({.kind = PieceKind::gradient, .name = "w", .values = gradient, .box = of_w});
    Values after = w;
    for (size_t i = 0; i < w.size(); ++i) after[i] -= 0.1f * gradient[i];
    record({.kind = PieceKind::parameter, .name = "w", .values = after, .box = of_w});
    writer.end_step();
    writer.close();
  }
  return read_run(folder);
}

}  // namespace lockstep::inspect::compare
