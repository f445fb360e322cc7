#include "ddp/checkpoint_contents.h"

#include <fmt/format.h>

#include <stdexcept>

#include "protocol/checksum.h"
#include "protocol/read_json.h"

namespace lockstep::ddp::detail {
namespace {

using nlohmann::json;

/// Ends the reading of values that contain one another too deeply: from_cbor() calls itself for each level.
class DepthCheck : public nlohmann::json_sax<json> {
 public:
  bool start_object(size_t) override { return ++depth_ <= protocol::kDeepestJson; }
  bool start_array(size_t) override { return ++depth_ <= protocol::kDeepestJson; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }  // from_cbor() throws
  bool is_too_deep() const { return depth_ > protocol::kDeepestJson; }

 private:
  size_t depth_ = 0;
};

}  // namespace

json read_checkpoint_list(const std::string& text, const std::string& checksum) {
  if (checksum != std::to_string(protocol::checksum(text)))
    throw std::runtime_error("its bytes are not those that were written");
  json list = protocol::read_json(text);
  if (list.is_discarded()) throw std::runtime_error("its list of names is no JSON");
  return list;
}

std::string problem_of_checkpoint_list(const json& list, const std::string& path, int ranks) {
  const int version = list.at("version"), written = list.at("ranks");
  if (version != kCheckpointVersion)
    return fmt::format("{} is of another version of Lockstep (its form is {}, and {} is read)", path, version,
                       kCheckpointVersion);
  if (written != ranks)
    return fmt::format("it is of {} rank{}, and the session has {}", written, written == 1 ? "" : "s", ranks);
  if (!list.at("names").is_object() || !list.at("generators").is_object() || !list.at("id").is_number_unsigned())
    return path + " is no checkpoint of a session";
  return "";
}

json read_plain_value(const std::string& bytes) {
  DepthCheck check;
  json::sax_parse(bytes, &check, json::input_format_t::cbor);
  if (check.is_too_deep()) throw json::out_of_range::create(408, "its values contain one another too deeply", nullptr);
  return json::from_cbor(bytes);
}

}  // namespace lockstep::ddp::detail
