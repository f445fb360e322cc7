// Writes the text of modules: a tree with the parameters of each, and what all of them take.
#include <torch/nn/module.h>

#include <sstream>
#include <unordered_set>

#include "worker/cell/show_text.h"

namespace lockstep {
namespace {

/// Makes 1,234,567 of 1234567.
std::string grouped(int64_t count) {
  std::string text = std::to_string(count);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string counted(int64_t count, const char* word) { return grouped(count) + " " + word + (count == 1 ? "" : "s"); }

struct Count {
  int64_t elements = 0, tensors = 0, trainable = 0, bytes = 0;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    elements += tensor.numel();
    bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
    ++tensors;
    if (tensor.requires_grad()) trainable += tensor.numel();
  }
};

/// Counts those of the module with all modules in it; what is registered twice counts once.
Count parameters_of(const torch::nn::Module& module) {
  Count count;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& each : module.parameters())
    if (each.defined() && seen.insert(each.unsafeGetTensorImpl()).second) count.add(each);
  return count;
}

void write(std::ostream& out, const torch::nn::Module& module, const std::string& indent) {
  std::ostringstream head;
  module.pretty_print(head);
  std::string text = head.str();
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) text.insert(at + 1, indent);
  out << text;
  const auto children = module.named_children();
  const Count count = parameters_of(module);
  const std::string note = count.elements > 0 ? "  # " + grouped(count.elements) : "";
  if (children.is_empty()) {
    out << note << '\n';
    return;
  }
  out << "(" << note << '\n';
  for (const auto& child : children) {
    out << indent << "  (" << child.key() << "): ";
    if (child.value())
      write(out, *child.value(), indent + "  ");
    else
      out << "none\n";
  }
  out << indent << ")\n";
}

}  // namespace

std::string text_of_module(const torch::nn::Module& module) {
  std::ostringstream out;
  write(out, module, "");
  const Count count = parameters_of(module);
  if (count.tensors == 0) return out.str();
  out << counted(count.elements, "parameter") << " in " << counted(count.tensors, "tensor") << ", "
      << counted(count.bytes, "byte");
  if (count.trainable != count.elements) out << "; " << grouped(count.trainable) << " require a gradient";
  Count buffers;
  for (const at::Tensor& each : module.buffers()) buffers.add(each);
  if (buffers.tensors > 0)
    out << "; " << counted(buffers.elements, "element") << " in " << counted(buffers.tensors, "buffer");
  return out.str();
}

}  // namespace lockstep
