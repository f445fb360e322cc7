#include "ddp/checkpoint.h"

#include <ATen/MemoryOverlap.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <random>

#include "collectives/dist.h"
#include "ddp/checkpoint_contents.h"
#include "ddp/saved_state.h"
#include "protocol/checksum.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/rank_set.h"

namespace lockstep::ddp {
namespace {

using detail::bytes_of;
using detail::tensor_of;
using detail::tensors_of;
using nlohmann::json;
namespace fs = std::filesystem;

/// Returns what is written of a tensor: in host memory, without the rest of the storage that it is a view of.
torch::Tensor without_surroundings(const torch::Tensor& tensor) {
  const torch::Tensor here = tensor.detach().resolve_conj().resolve_neg().cpu();
  return here.storage().nbytes() > here.nbytes() ? here.clone() : here;
}

/// LibTorch does not look whether the bytes of a file are those that were written.
uint64_t checksum(const torch::Tensor& tensor) {
  const torch::Tensor bytes = tensor.contiguous();
  return protocol::checksum({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

bool can_be_written(const torch::Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.layout() == torch::kStrided && !tensor.is_meta() && !tensor.is_quantized() && tensor.has_storage());
}

bool has_same_form(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// Whether copy_() can write it: an expanded tensor has elements that share memory.
bool is_writable_in_place(const torch::Tensor& tensor) {
  return at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
}

/// Which of the modules within `module` are in training, by name; its own name is "".
json modes_of(const torch::nn::Module& module) {
  json modes = json::object();
  for (const auto& each : module.named_modules()) modes[each.key()] = each.value()->is_training();
  return modes;
}
void set_modes(torch::nn::Module& module, const json& modes) {
  for (const auto& each : module.named_modules())
    each.value()->train(modes.value(each.key(), module.is_training()));  // outer ones first
}

bool can_be_filled(const torch::Tensor& mine, const torch::Tensor& saved) {
  return has_same_form(mine, saved) && is_writable_in_place(mine);
}

/// Writes `saved` into the memory of `mine`, so that others who hold the tensor see it, too; makes another tensor where
/// that is not possible.
void write_into(torch::Tensor& mine, const torch::Tensor& saved, bool requires_grad) {
  if (can_be_filled(mine, saved))
    mine.detach().copy_(saved);
  else if (saved.defined())
    mine = saved.to(mine.defined() ? mine.device() : torch::Device(torch::kCPU)).set_requires_grad(requires_grad);
  else
    mine = saved;
}

/// The shapes and types of what it steps: a state of others can be loaded, and fails in a later step.
json forms_of(const torch::optim::Optimizer& optimizer) {
  json groups = json::array();
  for (const auto& group : optimizer.param_groups()) {
    json& forms = groups.emplace_back(json::array());
    for (const torch::Tensor& parameter : group.params())
      forms.push_back({parameter.sizes().vec(), static_cast<int>(parameter.scalar_type())});
  }
  return groups;
}

std::map<std::string, at::Generator> generators() {
  std::map<std::string, at::Generator> found{{"cpu", at::globalContext().defaultGenerator(torch::kCPU)}};
  if (const auto& cuda = at::detail::getCUDAHooks();
      at::globalContext().hasCUDA() && cuda.hasPrimaryContext(cuda.getCurrentDevice()))
    found.emplace("cuda", at::globalContext().defaultGenerator(torch::kCUDA));
  return found;
}

std::string size_text(uint64_t bytes) {
  return bytes < 1'000'000 ? fmt::format("{} KB", (bytes + 999) / 1000)
                           : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

/// Throws what ranks have met, by rank. The same on all ranks.
void throw_problems(const std::string& what, const std::string& mine) {
  const std::vector<std::string> all = dist::all_gather_object(mine);
  std::map<std::string, RankSet> problems;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) problems[all[rank]].insert(static_cast<int>(rank));
  std::string text;
  for (const auto& [problem, ranks] : problems) text += fmt::format("\n{}: {}", ranks.words(), problem);
  if (!text.empty()) throw Error(what + text);
}

/// Takes what each rank has, by name, and returns it with the ranks where not all have the same.
std::vector<std::string> gathered(const std::map<std::string, std::string>& mine) {
  const auto all = dist::all_gather_object(mine);
  std::map<std::string, std::map<std::string, RankSet>> by_name;
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const auto& [name, why] : all[rank]) by_name[name][why].insert(static_cast<int>(rank));
  std::vector<std::string> texts;
  for (const auto& [name, reasons] : by_name)
    for (const auto& [why, ranks] : reasons)
      texts.push_back(ranks.size() == all.size() ? name + ": " + why
                                                 : fmt::format("{} on {}: {}", name, ranks.words(), why));
  return texts;
}

/// Returns the names that all ranks have.
std::vector<std::string> common(const std::set<std::string>& mine) {
  const auto all = dist::all_gather_object(mine);
  std::vector<std::string> names;
  std::ranges::copy_if(mine, std::back_inserter(names), [&](const std::string& name) {
    return std::ranges::all_of(all, [&](const auto& each) { return each.contains(name); });
  });
  return names;
}

}  // namespace

/// A checkpoint's file of one rank: tensors by number, each once, and for each name what it has of them.
struct Checkpoint::File {
  torch::serialize::OutputArchive out;
  torch::serialize::InputArchive in;
  json contents = json::object();
  std::vector<torch::Tensor> written;  // by number; kept, since a later one could have the address of one that is gone
  std::unordered_map<const void*, int64_t> numbers;
  std::vector<torch::Tensor> read;  // by number
  uint64_t bytes = 0;  // that save() has written

  /// Returns its number; -1 where it is not defined.
  int64_t write(const torch::Tensor& tensor) {
    if (!tensor.defined()) return -1;
    const auto [found, is_new] = numbers.emplace(tensor.unsafeGetTensorImpl(), std::ssize(written));
    if (is_new) {
      const torch::Tensor here = without_surroundings(tensor);
      out.write("tensor" + std::to_string(found->second), here);
      contents["checksums"].push_back(checksum(here));
      written.push_back(tensor);
    }
    return found->second;
  }
  torch::Tensor tensor(const json& number) const {
    return number == -1 ? torch::Tensor() : read.at(number.get<size_t>());
  }

  /// Returns why the file could not be written, or nothing.
  std::string save(const std::string& path) {
    const std::string list = contents.dump();
    out.write("contents", tensor_of(list));
    out.write("checksum", tensor_of(std::to_string(protocol::checksum(list))));
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    int problem = file ? 0 : errno;
    if (file) {
      try {
        out.save_to([&](const void* bytes, size_t size) {
          if (problem == 0 && !write_all(file.get(), {static_cast<const char*>(bytes), size})) problem = errno;
          this->bytes += size;
          return size;  // LibTorch would throw in a destructor
        });
      } catch (const std::exception& error) {
        return "it can't be written: " + detail::message_of(error);
      }
      if (problem == 0 && ::fsync(file.get()) != 0 && errno != EINVAL) problem = errno;
    }
    return problem == 0 ? "" : path + ": " + std::strerror(problem);
  }
  /// Throws what LibTorch and the parser throw.
  void load(const std::string& path) {
    in.load_from(path, torch::kCPU);
    const auto tensor = [this](const std::string& key) {
      torch::Tensor found;
      in.read(key, found, /*is_buffer=*/true);
      return found;
    };
    contents = detail::read_checkpoint_list(bytes_of(tensor("contents")), bytes_of(tensor("checksum")));
    for (const json& sum : contents.at("checksums")) {
      read.push_back(tensor("tensor" + std::to_string(read.size())));
      if (checksum(read.back()) != sum) throw std::runtime_error("its bytes are not those that were written");
    }
  }
};

std::ostream& operator<<(std::ostream& out, const CheckpointReport& report) {
  out << report.done;
  if (!report.names.empty()) out << "\n  " << fmt::format("{}", fmt::join(report.names, ", "));
  for (const std::string& each : report.left_out) out << "\n  left out: " << each;
  return out;
}

std::string Checkpoint::path() const { return fmt::format("{}/rank{}.pt", folder_, dist::get_rank()); }

std::string Checkpoint::write(const Entry& entry, File& file) {
  json described = {{"type", c10::demangle(entry.type->name())}};
  constexpr const char* kForm = "only dense tensors are written";
  if (entry.tensor) {
    if (!can_be_written(*entry.tensor)) return kForm;
    described["requires_grad"] = entry.tensor->defined() && entry.tensor->requires_grad();
    described["tensor"] = file.write(*entry.tensor);
  } else if (entry.tensors) {
    if (!std::ranges::all_of(*entry.tensors, can_be_written)) return kForm;
    described["list"] = json::array();
    for (const torch::Tensor& each : *entry.tensors)
      described["list"].push_back({file.write(each), each.defined() && each.requires_grad()});
  } else if (entry.module) {
    const auto tensors = tensors_of(*entry.module);
    if (!std::ranges::all_of(tensors, [](const auto& each) { return can_be_written(each.second); })) return kForm;
    described["module"] = json::object();
    for (const auto& [key, tensor] : tensors) described["module"][key] = file.write(tensor);
    described["modes"] = modes_of(*entry.module);
    if (entry.wrapper) described["layout"] = detail::layout_of(*entry.wrapper);
  } else if (entry.optimizer) {
    const detail::SavedOptimizer saved = detail::save(*entry.optimizer);
    if (!saved.problem.empty()) return saved.problem;
    described["optimizer"] = file.write(tensor_of(saved.bytes));
    described["groups"] = forms_of(*entry.optimizer);
  } else if (entry.assign) {
    const std::vector<uint8_t> bytes = json::to_cbor(entry.value);  // which has NaN and infinity
    described["value"] = file.write(tensor_of({bytes.begin(), bytes.end()}));
  } else {
    return "its type, " + described["type"].get<std::string>() + ", can't be written, or it is empty";
  }
  file.contents["names"][entry.name] = std::move(described);
  return "";
}

CheckpointReport Checkpoint::write() {
  File file;
  file.contents = {
      {"version", detail::kCheckpointVersion}, {"ranks", dist::get_world_size()}, {"names", json::object()}};
  file.contents["id"] = dist::all_gather_object(std::random_device()()).front();
  std::map<std::string, std::string> left;
  CheckpointReport report;
  std::string problem;
  const std::string path = this->path(), made = path + ".new";
  try {
    for (const Entry& entry : entries_)
      if (entry.wrapper) entry.wrapper->restore_full_precision();
    for (const Entry& entry : entries_)
      if (std::string why = write(entry, file); !why.empty()) left[entry.name] = std::move(why);
    for (const auto& [device, generator] : generators())
      file.contents["generators"][device] = file.write(generator.get_state());
    std::error_code error;
    fs::create_directories(folder_, error);
    problem = error ? folder_ + ": " + error.message() : file.save(made);
  } catch (const std::exception& error) {
    problem = detail::message_of(error);
  }
  const auto remove = [&] { ::unlink(made.c_str()); };
  try {
    throw_problems("the checkpoint could not be written, and files that were there are unchanged:", problem);
  } catch (...) {  // on all ranks alike
    remove();
    throw;
  }
  const std::string renamed = std::rename(made.c_str(), path.c_str()) == 0 ? "" : path + ": " + std::strerror(errno);
  if (!renamed.empty()) remove();
  throw_problems("the checkpoint is not complete; files of other ranks may have been replaced:", renamed);
  uint64_t bytes = 0;
  for (const uint64_t each : dist::all_gather_object(file.bytes)) bytes += each;
  std::set<std::string> names;
  for (const auto& [name, described] : file.contents["names"].items()) names.insert(name);
  report.names = common(names);
  report.left_out = gathered(left);
  report.names.emplace_back("generators");
  report.done = fmt::format("written to {}: {} file{}, {}", folder_, dist::get_world_size(),
                            dist::get_world_size() == 1 ? "" : "s", size_text(bytes));
  return report;
}

std::string Checkpoint::read(Entry& entry, File& file) {
  const json& described = file.contents["names"][entry.name];
  const std::string type = c10::demangle(entry.type->name());
  if (const std::string written = described.at("type"); written != type)
    return fmt::format("its type was {}, and is {}", written, type);
  if (entry.tensor) {
    const torch::Tensor saved = file.tensor(described.at("tensor"));
    torch::Tensor& mine = *entry.tensor;
    if (entry.is_constant && !can_be_filled(mine, saved)) return "it is a constant, and had another shape or type";
    write_into(mine, saved, described.at("requires_grad"));
  } else if (entry.tensors) {
    std::vector<std::pair<torch::Tensor, bool>> all;
    for (const json& each : described.at("list")) all.emplace_back(file.tensor(each.at(0)), each.at(1));
    entry.tensors->resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) write_into((*entry.tensors)[i], all[i].first, all[i].second);
  } else if (entry.module) {
    const json& numbers = described.at("module");
    const auto tensors = tensors_of(*entry.module);
    for (const auto& [key, mine] : tensors)
      if (!numbers.contains(key) || !has_same_form(mine, file.tensor(numbers[key])))
        return key + " was not there, or had another shape or type";
    if (numbers.size() != tensors.size()) return "it had more parameters or buffers";
    for (const auto& [key, mine] : tensors) mine.detach().copy_(file.tensor(numbers[key]));
    set_modes(*entry.module, described.at("modes"));
    if (entry.wrapper) detail::take_over(*entry.wrapper, described.at("layout"));
  } else if (entry.optimizer) {
    if (forms_of(*entry.optimizer) != described.at("groups")) return "it stepped parameters of other shapes or types";
    const detail::SavedOptimizer before = detail::save(*entry.optimizer);
    std::string why = detail::load(*entry.optimizer, bytes_of(file.tensor(described.at("optimizer"))));
    if (!why.empty() && before.problem.empty()) detail::load(*entry.optimizer, before.bytes);
    return why;
  } else if (entry.assign) {
    entry.assign(detail::read_plain_value(bytes_of(file.tensor(described.at("value")))));
  } else {
    return "it is empty";
  }
  return "";
}

CheckpointReport Checkpoint::read() {
  File file;
  std::string problem;
  const std::string path = this->path();
  try {
    std::error_code error;
    if (!fs::exists(path, error)) {
      problem = "there is no " + path;
    } else {
      file.load(path);
      problem = detail::problem_of_checkpoint_list(file.contents, path, dist::get_world_size());
    }
  } catch (const std::exception& error) {
    problem = path + " is no checkpoint of a session, or is damaged: " + detail::message_of(error);
  }
  const std::string what = "nothing was restored from " + folder_ + ":";
  throw_problems(what, problem);
  const auto ids = dist::all_gather_object(file.contents.at("id").get<uint32_t>());
  if (std::ranges::adjacent_find(ids, std::not_equal_to()) != ids.end())
    throw Error(what + " its files are of different checkpoints: one was interrupted while it replaced another");

  const torch::NoGradGuard no_grad;
  std::map<std::string, std::string> left;
  std::set<std::string> names, defined;
  for (Entry& entry : entries_) {
    defined.insert(entry.name);
    if (!file.contents["names"].contains(entry.name)) {
      left[entry.name] = "it is not in the checkpoint";
      continue;
    }
    try {
      if (entry.wrapper) entry.wrapper->restore_full_precision();
      if (std::string why = read(entry, file); !why.empty()) left[entry.name] = std::move(why);
    } catch (const std::exception& error) {
      left[entry.name] = detail::message_of(error);
    }
    if (!left.contains(entry.name)) names.insert(entry.name);
  }
  for (const auto& [name, described] : file.contents["names"].items())
    if (!defined.contains(name)) left[name] = "no variable has the name";
  auto here = generators();
  for (const auto& [device, number] : file.contents["generators"].items()) {
    try {
      if (here.contains(device))
        here.at(device).set_state(file.tensor(number));
      else
        left["generators"] = "no " + device + " is in use here";
    } catch (const std::exception& error) {
      left["generators"] = detail::message_of(error);
    }
  }
  if (!left.contains("generators")) names.insert("generators");
  CheckpointReport report;
  report.done = "restored from " + folder_;
  report.left_out = gathered(left);
  report.names = common(names);
  return report;
}

}  // namespace lockstep::ddp
