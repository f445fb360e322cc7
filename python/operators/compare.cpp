#include "python/operators/compare.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <mutex>

#include "inspectors/compare/recording.h"
#include "protocol/checksum.h"
#include "protocol/error.h"

namespace lockstep::python {
namespace {

namespace compare = inspect::compare;
using compare::Element;
using nlohmann::json;

/// Backward may record on threads of its own.
struct OpenRecording {
  std::mutex mutex;
  std::unique_ptr<compare::RecordingWriter> writer;
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

/// Returns the tensor as recordings have it: on the host, without gaps, and with one of their dtypes.
std::pair<at::Tensor, Element> recordable(at::Tensor tensor) {
  const auto element = [&]() -> std::optional<Element> {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return Element::float32;
      case at::kDouble:
        return Element::float64;
      case at::kBFloat16:
        return Element::bfloat16;
      case at::kHalf:
        return Element::float16;
      case at::kChar:
        return Element::int8;
      case at::kByte:
      case at::kBool:
        return Element::uint8;
      case at::kShort:
        return Element::int16;
      case at::kInt:
        return Element::int32;
      case at::kLong:
        return Element::int64;
      default:
        return std::nullopt;
    }
  }();
  if (tensor.layout() != at::kStrided) tensor = tensor.to_dense();
  if (!element) {
    TORCH_CHECK(!tensor.is_complex(), "lockstep compare does not record ", tensor.scalar_type());
    tensor = tensor.to(at::kFloat);  // float8 and others that convert exactly
  }
  return {tensor.to(at::kCPU).contiguous(), element.value_or(Element::float32)};
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
  opened().writer = std::make_unique<compare::RecordingWriter>(given.at("path"), about);
  opened().has_values = about.has_values;
  return json::object();
}

json compare_name(const Call& call) {
  return with_writer([&](compare::RecordingWriter& writer) {
    return json({{"name", writer.add_name({call.arguments.at("name"), call.arguments.at("type")})}});
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
  TORCH_CHECK(where.size() == 7 && shape.size() == offset.size(), "compare_piece: wrong arguments");
  const c10::NoGradGuard no_grad;
  compare::Piece piece{.step = static_cast<uint32_t>(where[2]),
                       .name = static_cast<uint32_t>(where[1]),
                       .micro_batch = static_cast<uint32_t>(where[3]),
                       .call = static_cast<uint32_t>(where[4]),
                       .kind = static_cast<compare::PieceKind>(where[0]),
                       .flags = static_cast<uint8_t>(where[5]),
                       .lead = static_cast<int32_t>(where[6])};
  std::string_view values;
  at::Tensor readable;
  if (!(piece.flags & compare::Piece::absent)) {
    std::tie(readable, piece.element) = recordable(tensor);
    TORCH_CHECK(static_cast<size_t>(readable.dim()) == shape.size(), "compare_piece: the shape has other dimensions");
    piece.box = {shape.vec(), offset.vec(), readable.sizes().vec()};
    piece.summary = compare::sketch_of(piece.element, readable.const_data_ptr(), piece.box);
    if (opened().has_values) values = {static_cast<const char*>(readable.const_data_ptr()), readable.nbytes()};
  }
  const std::lock_guard lock(opened().mutex);
  if (!opened().writer) throw Error("no recording is open");
  opened().writer->add_piece(piece, values);
}

int64_t compare_samples(const std::vector<at::Tensor>& inputs, int64_t step, int64_t micro_batch) {
  const c10::NoGradGuard no_grad;
  compare::Samples samples{.step = static_cast<uint32_t>(step), .micro_batch = static_cast<uint32_t>(micro_batch)};
  bool has_first = false;
  for (const at::Tensor& input : inputs) {
    if (input.dim() == 0) continue;
    const auto rows = static_cast<size_t>(input.size(0));
    if (has_first && rows != samples.hashes.size()) continue;
    if (!has_first) samples.hashes.assign(rows, 0);
    has_first = true;
    const auto [readable, element] = recordable(input);
    const size_t size = rows > 0 ? readable.nbytes() / rows : 0;
    const auto* data = static_cast<const char*>(readable.const_data_ptr());
    for (size_t i = 0; i < rows; ++i) {
      uint64_t& hash = samples.hashes[i];
      hash =
          (hash ^ protocol::checksum({data + i * size, size})) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(element);
    }
  }
  with_writer([&](compare::RecordingWriter& writer) {
    writer.add_samples(samples);
    return json::object();
  });
  return static_cast<int64_t>(samples.hashes.size());
}

}  // namespace lockstep::python
