#include "collectives/replay/call_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "collectives/transport/transport_tensors.h"
#include "collectives/watch/calls_transport.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

using nlohmann::json;

json tensors_text(const std::vector<at::Tensor>& tensors) {
  json texts = json::array();
  for (const at::Tensor& each : tensors) {
    json text = {{"dtype", c10::toString(each.scalar_type())}, {"shape", each.sizes().vec()}};
    if (each.is_sparse()) text["parts"] = tensors_text(dense_parts({each}));
    texts.push_back(std::move(text));
  }
  return texts;
}

namespace {
/// Why `tensors` are not recorded; empty: they are.
std::string not_recorded(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& each : tensors) {
    if (!each.device().is_cpu()) return fmt::format("tensors of {} are not recorded", each.device().str());
    if (each.layout() != at::kStrided && each.layout() != at::kSparse)
      return fmt::format("tensors with layout {} are not recorded", c10::str(each.layout()));
  }
  return {};
}
}  // namespace

json call_text(const TransportCall& call, const std::string& group, const CollectiveLog* log, const SentText& sent) {
  json text = {{"name", call.name}, {"group", group}};
  if (const Entered* entered = CallsTransport::current(); entered && log) {
    if (const auto record = CollectiveLogReader(log->mapping()).record(entered->entry)) {
      text["op"] = describe(*record);
      text["seq"] = entered->seq;
      text["place"] = record->place.str();
    }
  }
  for (const auto* tensors : {&call.sent, &call.received})
    if (const std::string reason = not_recorded(*tensors); !reason.empty()) {
      text["unsupported"] = reason;
      return text;
    }
  text["received"] = tensors_text(call.received);
  text["sent"] = tensors_text(call.sent);
  if (!call.sent.empty()) text["fingerprint"] = sent(dense_parts(call.sent));
  return text;
}

std::string words_of_call(const json& call) {
  std::string words = call.value("op", call.value("name", std::string()));
  if (call.contains("seq"))
    words += fmt::format(", #{} of group {}", call["seq"].get<int64_t>(), call.value("group", ""));
  if (const std::string place = call.value("place", ""); !place.empty()) words += fmt::format(" ({})", place);
  return words;
}

std::vector<at::Tensor> readable(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& each : dense_parts(tensors))
    result.push_back(each.detach().cpu().resolve_conj().resolve_neg().contiguous());
  return result;
}

std::vector<std::string_view> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string_view> bytes;
  for (const at::Tensor& each : tensors)
    if (each.nbytes() > 0) bytes.emplace_back(static_cast<const char*>(each.const_data_ptr()), each.nbytes());
  return bytes;
}

namespace {
/// A tensor as the record has it, made of the next bytes of the payload.
at::Tensor next_tensor(const json& text, at::ScalarType type, std::string_view& payload) {
  at::Tensor tensor = at::empty(text.at("shape").get<std::vector<int64_t>>(), at::dtype(type));
  if (payload.size() < tensor.nbytes()) throw Error("the record of a call has fewer bytes than its tensors");
  if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), payload.data(), tensor.nbytes());
  payload.remove_prefix(tensor.nbytes());
  return tensor;
}

int64_t elements_of(const json& shape) {
  int64_t elements = 1;
  for (const json& size : shape) {
    const int64_t each = size.get<int64_t>();
    if (each < 0 || (each > 0 && elements > INT64_MAX / 16 / each)) throw Error("the record of a call has no shape");
    elements *= each;
  }
  return elements;
}
}  // namespace

void fill(const std::vector<at::Tensor>& tensors, const json& recorded, std::string_view payload) {
  const at::NoGradGuard no_grad;
  if (recorded.size() != tensors.size())
    throw Error(fmt::format("{} tensors were recorded, and this run has {}", recorded.size(), tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor to = tensors[i];
    const json& text = recorded[i];
    if (text.at("dtype") != c10::toString(to.scalar_type()) || text.at("shape") != json(to.sizes().vec()))
      throw Error(fmt::format("a tensor of {} {} was recorded, and this run has one of {} {}",
                              text.at("dtype").get<std::string>(), text.at("shape").dump(),
                              c10::toString(to.scalar_type()), json(to.sizes().vec()).dump()));
    const WritableGuard writable(to);
    if (!to.is_sparse()) {
      const auto bytes = static_cast<uint64_t>(elements_of(text.at("shape"))) * to.element_size();
      if (payload.size() < bytes) throw Error("the record of a call has fewer bytes than its tensors");
      to.copy_(next_tensor(text, to.scalar_type(), payload));
      continue;
    }
    for (const json& part : text.at("parts"))
      if (static_cast<uint64_t>(elements_of(part.at("shape"))) > payload.size())
        throw Error("the record of a call has fewer bytes than its tensors");
    const at::Tensor indices = next_tensor(text.at("parts").at(0), at::kLong, payload);
    const at::Tensor values = next_tensor(text.at("parts").at(1), to.scalar_type(), payload);
    to.copy_(at::sparse_coo_tensor(indices, values, to.sizes()));
  }
  if (!payload.empty()) throw Error("the record of a call has more bytes than its tensors");
}

}  // namespace lockstep::dist
