// Every instruction set gives the same bits as the portable loops, for all bytes, lengths and alignments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "inspectors/fingerprint/kernels.h"

namespace lockstep::inspect::kernels {
namespace {

std::vector<const Table*> tables() {
  std::vector<const Table*> result = {&portable()};
  if (has_avx2()) result.push_back(&avx2());
  if (has_avx512()) result.push_back(&avx512());
  return result;
}

struct Loops {
  const char* name;
  Loop Table::* loop;
};
const Loops kLoops[] = {{"bytes", &Table::bytes},       {"float32", &Table::float32}, {"float64", &Table::float64},
                        {"bfloat16", &Table::bfloat16}, {"float16", &Table::float16}, {"uint8", &Table::uint8},
                        {"int8", &Table::int8},         {"uint16", &Table::uint16},   {"int16", &Table::int16},
                        {"uint32", &Table::uint32},     {"int32", &Table::int32},     {"uint64", &Table::uint64},
                        {"int64", &Table::int64}};

// Padding and NaN make comparing as values wrong: the bits count.
bool same_bits(const Chunk& a, const Chunk& b) {
  return std::memcmp(&a, &b, sizeof(Chunk)) == 0;  // NOLINT(bugprone-suspicious-memory-comparison)
}

Chunk read(const Table& table, Loop Table::* loop, const uint8_t* data, size_t stripes) {
  Chunk chunk;
  std::memset(static_cast<void*>(&chunk), 0, sizeof chunk);
  (table.*loop)(data, stripes, &chunk, 1);
  return chunk;
}

void expect_same_on_all(const std::vector<uint8_t>& bytes, size_t offset, size_t stripes, const char* what) {
  for (const Loops& each : kLoops) {
    const Chunk expected = read(portable(), each.loop, bytes.data() + offset, stripes);
    for (const Table* table : tables())
      EXPECT_TRUE(same_bits(expected, read(*table, each.loop, bytes.data() + offset, stripes)))
          << table->name << " " << each.name << " of " << what << " at offset " << offset << ", stripes " << stripes;
  }
}

TEST(FingerprintKernels, EveryInstructionSetGivesTheSameBitsForAnyBytes) {
  std::mt19937_64 random(1);
  std::vector<uint8_t> bytes(kChunkBytes + 64);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (const size_t stripes : {0U, 1U, 2U, 3U, 63U, 64U})
    for (const size_t offset : {0U, 1U, 7U, 32U}) expect_same_on_all(bytes, offset, stripes, "random bytes");
}

TEST(FingerprintKernels, EveryInstructionSetGivesTheSameStatisticsForUsualValues) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 0.1F);
  std::vector<float> values(kChunkBytes / 4);
  for (float& value : values) value = normal(random);
  std::vector<uint8_t> bytes(kChunkBytes);
  std::memcpy(bytes.data(), values.data(), kChunkBytes);
  expect_same_on_all(bytes, 0, 64, "normal float32");
  for (size_t i = 0; i < 20; ++i) values[i * 700] = std::numeric_limits<float>::infinity();
  values[333] = std::nanf("");
  std::memcpy(bytes.data(), values.data(), kChunkBytes);
  expect_same_on_all(bytes, 0, 64, "float32 with Inf and NaN");
}

TEST(FingerprintKernels, ChunksThatAreReadInTurnsHaveTheBitsOfEachAlone) {
  std::mt19937_64 random(3);
  std::vector<uint8_t> bytes(kSideBySide * kChunkBytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (const Loops& each : kLoops)
    for (const Table* table : tables())
      for (size_t count = 1; count <= kSideBySide; ++count) {
        Chunk chunks[kSideBySide];
        std::memset(static_cast<void*>(chunks), 0, sizeof chunks);
        (table->*each.loop)(bytes.data(), kChunkBytes / kStripeBytes, chunks, count);
        for (size_t i = 0; i < count; ++i)
          EXPECT_TRUE(
              same_bits(chunks[i], read(*table, each.loop, bytes.data() + i * kChunkBytes, kChunkBytes / kStripeBytes)))
              << table->name << " " << each.name << ", chunk " << i << " of " << count;
      }
}

TEST(FingerprintKernels, EveryHalfAndEveryBfloat16IsWidenedAlike) {
  std::vector<uint8_t> bytes(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  expect_same_on_all(bytes, 0, bytes.size() / kStripeBytes, "all 16 bit patterns");
}

TEST(FingerprintKernels, HugeAndTinyValuesHaveARightNorm) {
  for (const float value : {1e30F, 1e-30F, 1e-44F, 3.4e38F, 1.0F, 0.0F}) {
    const std::vector<float> values(kStripeWords, value);
    for (const Table* table : tables()) {
      const Chunk chunk = read(*table, &Table::float32, reinterpret_cast<const uint8_t*>(values.data()), 1);
      double squares = 0;
      for (const double lane : chunk.squares) squares += lane;
      const double exact = static_cast<double>(value) * 16;  // sqrt(256)
      EXPECT_NEAR(std::sqrt(squares), exact, exact * 1e-6) << table->name << " " << value;
      EXPECT_EQ(chunk.abs_max, static_cast<double>(value)) << table->name;
    }
  }
}

/// Every instruction set's statistics of a stripe of `Element`s against sums in long double.
template <typename Element>
void expect_right_statistics(Loop Table::* loop, const std::vector<Element>& values) {
  ASSERT_EQ(values.size() * sizeof(Element), kStripeBytes);
  long double squares = 0, largest = 0;
  for (const Element element : values) {
    const auto value = static_cast<long double>(element);
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  for (const Table* table : tables()) {
    const Chunk chunk = read(*table, loop, reinterpret_cast<const uint8_t*>(values.data()), 1);
    double sum = 0;
    for (const double lane : chunk.squares) sum += lane;
    EXPECT_NEAR(sum, static_cast<double>(squares), static_cast<double>(squares) * 1e-14) << table->name;
    EXPECT_EQ(chunk.abs_max, static_cast<double>(largest)) << table->name;
    EXPECT_EQ(chunk.nan_count + chunk.inf_count, 0) << table->name;
  }
}

template <typename Element>
void expect_right_statistics_of(Loop Table::* loop) {
  using Limits = std::numeric_limits<Element>;
  constexpr size_t kCount = kStripeBytes / sizeof(Element);
  for (const Element value : {Element{0}, Element{1}, Limits::min(), Limits::max()})
    expect_right_statistics(loop, std::vector<Element>(kCount, value));
  std::mt19937_64 random(4);
  std::vector<Element> values(kCount);
  for (const int shift : {0, 3, static_cast<int>(sizeof(Element)) * 4}) {
    for (Element& value : values) value = static_cast<Element>(static_cast<Element>(random()) >> shift);
    expect_right_statistics(loop, values);
  }
  // The largest may stand anywhere.
  for (size_t place = 0; place < kCount; ++place) {
    std::fill(values.begin(), values.end(), Element{2});
    values[place] = Limits::min() < 0 ? Limits::min() : Limits::max();
    expect_right_statistics(loop, values);
  }
}

TEST(FingerprintKernels, IntegersHaveARightNormAndLargestMagnitude) {
  expect_right_statistics_of<uint8_t>(&Table::uint8);
  expect_right_statistics_of<int8_t>(&Table::int8);
  expect_right_statistics_of<uint16_t>(&Table::uint16);
  expect_right_statistics_of<int16_t>(&Table::int16);
  expect_right_statistics_of<uint32_t>(&Table::uint32);
  expect_right_statistics_of<int32_t>(&Table::int32);
  expect_right_statistics_of<uint64_t>(&Table::uint64);
  expect_right_statistics_of<int64_t>(&Table::int64);
}

TEST(FingerprintKernels, AFlippedBitAnywhereInAStripeChangesBothHashes) {
  std::vector<uint8_t> bytes(2 * kStripeBytes, 0);
  const Chunk before = read(best(), &Table::bytes, bytes.data(), 2);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 13) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    const Chunk after = read(best(), &Table::bytes, bytes.data(), 2);
    ASSERT_NE(std::memcmp(before.hash[0], after.hash[0], sizeof before.hash[0]), 0) << "bit " << bit;
    ASSERT_NE(std::memcmp(before.hash[1], after.hash[1], sizeof before.hash[1]), 0) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  }
}

TEST(FingerprintKernels, WordsStripesAndNeighboursThatChangePlacesChangeTheHash) {
  std::mt19937 random(3);
  std::vector<uint32_t> words(2 * kStripeWords);
  for (uint32_t& word : words) word = random();
  const auto hash = [&] {
    const Chunk chunk = read(best(), &Table::bytes, reinterpret_cast<const uint8_t*>(words.data()), 2);
    std::vector<uint64_t> lanes(chunk.hash[0], chunk.hash[0] + kHashLanes);
    lanes.insert(lanes.end(), chunk.hash[1], chunk.hash[1] + kHashLanes);
    return lanes;
  };
  const auto before = hash();
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1},
                             {0, 2},
                             {4, 5},
                             {0, 16},
                             {3, 255},
                             {0, kStripeWords},
                             {2, 2 * kStripeWords - 1}}) {
    std::swap(words[a], words[b]);
    EXPECT_NE(hash(), before) << a << " and " << b;
    std::swap(words[a], words[b]);
  }
  EXPECT_EQ(hash(), before);
}

}  // namespace
}  // namespace lockstep::inspect::kernels
