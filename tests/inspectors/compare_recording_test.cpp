// Sketches, and the file of a recording: what is written is read, and damaged files are refused or cut, never believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "compare_runs.h"
#include "inspectors/compare/folders.h"
#include "protocol/error.h"
#include "protocol/files.h"

namespace lockstep::inspect::compare {
namespace {

using ::testing::HasSubstr;

template <typename T>
Summary sketched_as(Element element, const std::vector<T>& values) {
  const auto count = static_cast<int64_t>(values.size());
  return sketch_of(element, values.data(), {{count}, {0}, {count}});
}

TEST(Sketch, ShardsAddUpToTheWholeInEveryLayout) {
  const int64_t rows = 37, columns = 150;
  const Values whole = made_up(static_cast<size_t>(rows * columns), 1);
  const Sketch expected = sketch_of(Element::float32, whole.data(), {{rows, columns}, {0, 0}, {rows, columns}}).sums;
  for (const auto& [row_parts, column_parts] : {std::pair{1, 1}, {5, 1}, {1, 7}, {3, 4}, {37, 150}}) {
    Sketch sum{};
    for (int64_t r = 0; r < row_parts; ++r)
      for (int64_t c = 0; c < column_parts; ++c) {
        const int64_t r0 = rows * r / row_parts, r1 = rows * (r + 1) / row_parts;
        const int64_t c0 = columns * c / column_parts, c1 = columns * (c + 1) / column_parts;
        Values part;
        for (int64_t i = r0; i < r1; ++i)
          for (int64_t j = c0; j < c1; ++j) part.push_back(whole[static_cast<size_t>(i * columns + j)]);
        add(sum, sketch_of(Element::float32, part.data(), {{rows, columns}, {r0, c0}, {r1 - r0, c1 - c0}}).sums);
      }
    EXPECT_LT(norm(difference(sum, 1, expected)), 1e-12) << row_parts << " " << column_parts;
  }
}

TEST(Sketch, EstimatesTheNormOfADifference) {
  for (const size_t count : {100u, 4096u, 300000u})
    for (int seed = 0; seed < 5; ++seed) {
      const Values a = made_up(count, seed), noise = made_up(count, seed + 100);
      Values b = a;
      double apart = 0;
      for (size_t i = 0; i < count; ++i) {
        b[i] += 1e-3f * noise[i];
        apart += std::pow(static_cast<double>(b[i]) - static_cast<double>(a[i]), 2);
      }
      const Sketch difference_of_sketches =
          difference(sketched_as(Element::float32, a).sums, 1, sketched_as(Element::float32, b).sums);
      EXPECT_NEAR(norm(difference_of_sketches) / std::sqrt(apart), 1, 0.5);
    }
}

TEST(Sketch, AColumnOfAMatrixReachesSeveralSums) {
  Values values(64 * 512);
  for (size_t i = 5; i < values.size(); i += 64) values[i] = 1;
  const Sketch sums = sketched_as(Element::float32, values).sums;
  EXPECT_GE(std::ranges::count_if(sums, [](double each) { return each != 0; }), 5);
}

TEST(Sketch, DtypesAreReadAsTheirNumbers) {
  const std::vector<float> numbers = {0, 1, -2.5f, 0.15625f, 240, -0.0009765625f};
  const Sketch expected = sketched_as(Element::float32, numbers).sums;
  EXPECT_EQ(sketched_as(Element::float64, std::vector<double>(numbers.begin(), numbers.end())).sums, expected);
  EXPECT_EQ(sketched_as(Element::bfloat16, std::vector<uint16_t>{0, 0x3f80, 0xc020, 0x3e20, 0x4370, 0xba80}).sums,
            expected);
  EXPECT_EQ(sketched_as(Element::float16, std::vector<uint16_t>{0, 0x3c00, 0xc100, 0x3100, 0x5b80, 0x9400}).sums,
            expected);
  const std::vector<float> whole = {0, 1, -2, 127};
  EXPECT_EQ(sketched_as(Element::int8, std::vector<int8_t>{0, 1, -2, 127}).sums,
            sketched_as(Element::float32, whole).sums);
  EXPECT_EQ(sketched_as(Element::int64, std::vector<int64_t>{0, 1, -2, 127}).sums,
            sketched_as(Element::float32, whole).sums);
}

TEST(Sketch, NaNAndInfAreCountedAndLeftOut) {
  Values values = made_up(200, 3);
  Values without = values;
  values[7] = NAN;
  values[150] = -INFINITY;
  without[7] = without[150] = 0;
  const Summary summary = sketched_as(Element::float32, values);
  EXPECT_EQ(summary.not_finite, 2u);
  EXPECT_LT(norm(difference(summary.sums, 1, sketched_as(Element::float32, without).sums)), 1e-12);
  EXPECT_EQ(sketched_as(Element::float16, std::vector<uint16_t>{0x7c00, 0xfe00, 0x7bff}).not_finite, 2u);
}

TEST(Recording, IsReadAsItWasWritten) {
  const CompareFolder folder;
  const compare::Run run = made_up_run(folder.in("run"), {.data_parallel = 2, .micro_batches = 2}, true);
  ASSERT_EQ(run.ranks.size(), 2u);
  const Recording& recording = run.ranks[1];
  EXPECT_TRUE(recording.is_complete);
  EXPECT_EQ(recording.about.rank, 1);
  EXPECT_EQ(recording.about.torch, "2.11");
  EXPECT_EQ(recording.steps, 1);
  EXPECT_EQ(recording.samples.size(), 2u);
  EXPECT_EQ(recording.samples[1].hashes, (std::vector<uint64_t>{1006, 1007}));
  ASSERT_EQ(recording.pieces.size(), 9u);
  const Piece& first = recording.pieces.front();
  EXPECT_EQ(recording.names[first.name].name, "w");
  EXPECT_EQ(first.box.size, (std::vector<int64_t>{kInputs, kOutputs}));
  const std::vector<std::byte> values = recording.values(first);
  const Values expected = made_up(kInputs * kOutputs, 2);
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size()), 0);
}

/// Writes a piece as rank 0's only one, and reads it.
compare::Run run_of(const std::string& folder, Piece piece) {
  std::filesystem::create_directories(folder);
  RecordingWriter writer(path_of_recording(folder, 0), {.steps = 1});
  piece.kind = PieceKind::gradient;
  piece.name = writer.add_name({"w", ""});
  writer.add_piece(piece);
  writer.end_step();
  writer.close();
  return read_run(folder);
}

TEST(Recording, SumsOfFloat32AreRoundedAndOthersAreNot) {
  const CompareFolder folder;
  for (const Element element : {Element::float32, Element::float64, Element::int64}) {
    Piece piece{.element = element};
    for (size_t i = 0; i < kSums; ++i) piece.summary.sums[i] = (i % 2 ? -0.1 : 1e-30) / (static_cast<double>(i) + 1);
    const compare::Run run = run_of(folder.in(name_of(element)), piece);
    const Piece& read = run.ranks[0].pieces[0];
    EXPECT_EQ(read.checksum, checksum_of(piece.summary.sums));
    for (size_t i = 0; i < kSums; ++i) {
      const double sum = piece.summary.sums[i];
      EXPECT_LE(std::abs(read.summary.sums[i] - sum), resolution_of(element) / 2 * std::abs(sum));
    }
  }
}

TEST(Recording, SumsThatAreRoundedToTheSameBitsAreNotTheSame) {
  const CompareFolder folder;
  Piece piece, other;
  piece.summary.sums.fill(1);
  other.summary.sums.fill(1 + 0x1p-40);
  const compare::Run a = run_of(folder.in("a"), piece), b = run_of(folder.in("b"), other);
  ASSERT_EQ(a.ranks[0].pieces[0].summary.sums, b.ranks[0].pieces[0].summary.sums);
  EXPECT_TRUE(judge_same_layout(a, a).is_same);
  EXPECT_FALSE(judge_same_layout(a, b).is_same);
  EXPECT_TRUE(judge_same_layout(a, b, {.rtol = 1e-6}).is_same);
}

TEST(Recording, OfAnotherKindOrVersionIsRefused) {
  const CompareFolder folder;
  made_up_run(folder.path, {});
  const std::string path = folder.in("rank-0.rec");
  std::string bytes = protocol::read_file(path).value();
  bytes[16] = 9;
  std::ofstream(path) << bytes;
  try {
    read_recording(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("version 9"));
  }
  std::ofstream(path) << "weights";
  EXPECT_THROW(read_recording(path), Error);
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_THROW(read_recording(path), Error);
  EXPECT_THROW(read_recording(folder.path), Error);
  EXPECT_THROW(read_recording(folder.in("none")), Error);
  EXPECT_THROW(read_run(folder.in("none")), Error);
}

TEST(Recording, CutAnywhereIsRefusedOrNotComplete) {
  const CompareFolder folder;
  made_up_run(folder.path, {}, true);
  const std::string path = folder.in("rank-0.rec"), bytes = protocol::read_file(path).value();
  bool are_damaged = false;
  for (size_t size = 0; size < bytes.size(); size += 7) {
    std::ofstream(path) << bytes.substr(0, size);
    try {
      const Recording recording = read_recording(path);
      EXPECT_FALSE(recording.is_complete) << size;
      if (recording.damaged_at) EXPECT_LT(*recording.damaged_at, size);
      are_damaged = are_damaged || recording.damaged_at;
    } catch (const Error&) {
    }
  }
  EXPECT_TRUE(are_damaged);
}

TEST(Recording, ChangedAnywhereIsNoticed) {
  const CompareFolder folder;
  made_up_run(folder.path, {}, true);
  const std::string path = folder.in("rank-0.rec"), bytes = protocol::read_file(path).value();
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    std::ofstream(path) << changed;
    bool is_noticed = false;
    try {
      const Recording recording = read_recording(path);
      is_noticed = !recording.is_complete;
      for (const Piece& each : recording.pieces) recording.values(each);
    } catch (const Error&) {
      is_noticed = true;
    }
    EXPECT_TRUE(is_noticed) << at;
  }
}

TEST(Recording, OfARankThatIsMissingIsNamed) {
  const CompareFolder folder;
  made_up_run(folder.path, {.data_parallel = 2});
  std::filesystem::remove(folder.in("rank-1.rec"));
  try {
    read_run(folder.path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no recording of rank 1"));
  }
}

}  // namespace
}  // namespace lockstep::inspect::compare
