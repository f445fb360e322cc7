// The operators of the fake device. A few are its own: memory, copies, views. All others run the kernel of the CPU, on
// the stream's thread, on CPU tensors that share the memory of the device's. The shapes of results have to be known
// when an operator is queued, before its inputs have values: they come from the same kernel, run at once on zeros.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/fake_device/generator.h"
#include "tests/support/fake_device/runtime.h"

namespace lockstep::fake {
namespace {

using torch::jit::Stack;

constexpr auto kKey = c10::DispatchKey::PrivateUse1;

bool on_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

Queue& current_queue(c10::Device device) {
  return Runtime::get().queue_of(current_stream(device.has_index() ? device.index() : current_device()));
}

/// What runs kernels of the CPU for the device: below autograd, without records for observers.
struct Kernels {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::RecordFunctionGuard unrecorded{false};
  at::NoGradGuard no_grad;
};

/// A CPU tensor over the same memory, without a reference to it: as a kernel has an address.
at::Tensor over_memory_of(const at::Tensor& tensor) {
  auto* storage =
      static_cast<char*>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->mutable_data());
  void* data = storage ? storage + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()) : nullptr;
  return at::from_blob(data, tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
}

// ---- memory

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                               std::optional<at::Device> device, std::optional<bool>,
                               std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, c10::GetAllocator(c10::DeviceType::PrivateUse1), c10::DispatchKeySet(kKey),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::DeviceType::PrivateUse1),
                                           c10::DispatchKeySet(kKey), c10::dtype_or_default(dtype));
}

void set_sizes(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  const size_t bytes =
      at::detail::computeStorageNbytes(size, stride, self.element_size(), static_cast<size_t>(self.storage_offset()));
  if (self.storage().nbytes() < bytes) resize_storage(self.storage(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  if (self.sizes() == size && !format) return self;
  const at::Tensor like = at::empty(size, at::TensorOptions().device(at::kMeta).dtype(self.scalar_type()), format);
  set_sizes(self, size, like.strides());
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.data() || size.empty())
    impl->set_sizes_and_strides(size, stride);
  else
    impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

void record_stream(at::Tensor& self, at::Stream stream) {
  Runtime::record_use(self.storage().data_ptr().get_context(), stream);
}

// ---- copies

/// In a closure: the memory of tensors of the device is used by address; a tensor of the host is held.
at::Tensor in_closure(const at::Tensor& tensor) { return on_fake(tensor) ? over_memory_of(tensor) : tensor; }

void queue_copy(Queue& queue, const at::Tensor& to, const at::Tensor& from) {
  queue.add("copy", [to = in_closure(to), from = in_closure(from)]() mutable {
    const Kernels kernels;
    to.copy_(from);
  });
}

void queue_or_run_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return;
  if (on_fake(to) && on_fake(from)) {
    Queue& queue = current_queue(from.device());
    if (to.device() == from.device()) return queue_copy(queue, to, from);
    // Between devices: after all on both current streams, and before what follows on both.
    Queue& other = current_queue(to.device());
    queue.add_wait(other.add_point());
    queue_copy(queue, to, from);
    other.add_wait(queue.add_point());
    return;
  }
  Queue& queue = current_queue(on_fake(to) ? to.device() : from.device());
  const at::Tensor& host = on_fake(to) ? from : to;
  if (!host.is_pinned()) {
    // A copy out of pageable memory has its own copy of that memory by the time it returns. One into it has to wait.
    queue_copy(queue, to, on_fake(to) ? from.expand(to.sizes()).clone() : from);
    if (on_fake(to)) return;
  } else {
    queue_copy(queue, to, from);
    if (non_blocking) return;
  }
  queue.wait_for_all();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  queue_or_run_copy(to, from.sizes() == to.sizes() ? from : from.expand(to.sizes()), non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) at::Tensor(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  copy_from(from, to, non_blocking);
  return to;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor host = at::empty(self.sizes(), self.options().device(at::kCPU));
  queue_or_run_copy(host, self, false);
  return host.item();
}

// ---- views

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

// ---- all others

/// One call of an operator: its arguments, and where its results go.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack)
      : op_(op),
        stack_(stack),
        count_(op.schema().arguments().size()),
        arguments_(stack.end() - static_cast<std::ptrdiff_t>(count_), stack.end()) {
    name_ = op.schema().name();
    if (name_.starts_with("aten::")) name_.erase(0, 6);
    if (!op.schema().overload_name().empty()) name_ += "." + op.schema().overload_name();
    for (const c10::IValue& each : arguments_) find_device(each);
    TORCH_CHECK(device_, name_, ": none of the arguments is on the fake device");
  }

  void run() {
    const c10::DeviceGuard guard(*device_);
    Queue& queue = current_queue(*device_);
    if (needs_values()) {
      queue.wait_for_all();
      run_now();
      return;
    }
    const Stack zeros_results = results_on_zeros();
    std::vector<at::Tensor> outputs;  // over the memory of new results
    Stack results;
    for (size_t i = 0; i < zeros_results.size(); ++i) {
      if (const auto argument = aliased_argument(i))
        results.push_back(arguments_[*argument]);
      else
        results.push_back(allocated(zeros_results[i], outputs));
    }
    Stack inputs = on_cpu(/*zeros=*/false);
    queue.add(name_, [op = op_, inputs = std::move(inputs), outputs = std::move(outputs)]() mutable {
      const Kernels kernels;
      call(op, inputs);
      size_t next = 0;
      for (size_t i = 0; i < inputs.size() && next < outputs.size(); ++i) copy_out(inputs[i], outputs, next, op, i);
    });
    finish(std::move(results));
  }

 private:
  void find_device(const c10::IValue& value) {
    if (device_) return;
    if (value.isTensor()) {
      if (on_fake(value.toTensor())) device_ = value.toTensor().device();
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector())
        if (!device_ && on_fake(each)) device_ = each.device();
    } else if (value.isOptionalTensorList()) {
      for (const auto& each : value.toOptionalTensorVector())
        if (!device_ && each && on_fake(*each)) device_ = each->device();
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      const c10::Device device = value.toDevice();
      device_ = device.has_index() ? device : fake::device(current_device());
    }
  }

  /// Whether the shape of a result, or a result that is no tensor, depends on the values.
  bool needs_values() const {
    if (op_.hasTag(at::Tag::dynamic_output_shape) || op_.hasTag(at::Tag::data_dependent_output)) return true;
    for (const auto& result : op_.schema().returns()) {
      const auto kind = result.type()->kind();
      if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
    }
    return false;
  }

  std::optional<size_t> aliased_argument(size_t result) const {
    const auto& returns = op_.schema().returns();
    const c10::AliasInfo* alias = returns.at(result).alias_info();
    if (!alias) return std::nullopt;
    TORCH_CHECK(alias->isWrite(), name_, " makes a view; the fake device has to have it as an operator of its own");
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].alias_info() && *arguments[i].alias_info() == *alias) return i;
    TORCH_CHECK(false, name_, ": result ", result, " aliases no argument");
  }

  static bool is_generator(const c10::Argument& argument) {
    c10::TypePtr type = argument.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    return type->kind() == c10::TypeKind::GeneratorType;
  }

  /// The arguments for the CPU's kernel. `zeros`: of the same shapes, without the values.
  Stack on_cpu(bool zeros) {
    std::unordered_map<const c10::TensorImpl*, at::Tensor> made;
    const auto tensor = [&](const at::Tensor& each) {
      if (!each.defined()) return each;
      if (!on_fake(each)) {
        if (each.dim() > 0 && !zeros) return each;
        const at::Tensor value = each.clone();  // a number, which is passed by value
        value.unsafeGetTensorImpl()->set_wrapped_number(each.unsafeGetTensorImpl()->is_wrapped_number());
        return value;
      }
      const auto [at, is_new] = made.try_emplace(each.unsafeGetTensorImpl());
      if (is_new)
        at->second = zeros ? at::empty_strided(each.sizes(), each.strides(), each.options().device(at::kCPU)).zero_()
                           : over_memory_of(each);
      return at->second;
    };
    const Kernels kernels;
    Stack result;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const c10::IValue& value = arguments_[i];
      if (value.isTensor()) {
        result.emplace_back(tensor(value.toTensor()));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& each : value.toTensorVector()) list.push_back(tensor(each));
        result.emplace_back(std::move(list));
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& each : value.toOptionalTensorVector())
          list.push_back(each ? std::optional(tensor(*each)) : std::nullopt);
        result.emplace_back(std::move(list));
      } else if (value.isDevice()) {
        result.emplace_back(c10::Device(at::kCPU));
      } else if (is_generator(op_.schema().arguments()[i])) {
        result.emplace_back(zeros ? at::detail::createCPUGenerator() : generator(value));
      } else {
        result.push_back(value);
      }
    }
    return result;
  }

  at::Generator generator(const c10::IValue& value) const {
    const at::Generator chosen = value.isNone() ? default_generator(device_->index()) : value.toGenerator();
    auto* own = dynamic_cast<FakeGenerator*>(chosen.unsafeGetGeneratorImpl());
    return own ? own->for_operation() : chosen;
  }

  /// Throws what the operator throws for its arguments. Tensors of `out` variants get the size that the kernel wants.
  Stack results_on_zeros() {
    Stack stack = on_cpu(/*zeros=*/true);
    const Stack arguments = stack;
    {
      const Kernels kernels;
      call(op_, stack);
    }
    const auto& schema = op_.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      if (!schema[i].kwarg_only() || !schema[i].alias_info() || !arguments_[i].isTensor()) continue;
      const at::Tensor &own = arguments_[i].toTensor(), &wanted = arguments[i].toTensor();
      if (own.sizes() != wanted.sizes()) set_sizes(own, wanted.sizes(), wanted.strides());
    }
    return stack;
  }

  at::Tensor allocate_like(const at::Tensor& like, std::vector<at::Tensor>& outputs) const {
    if (!like.defined()) return like;
    at::Tensor result = empty_strided(like.sizes(), like.strides(), like.scalar_type(), {}, *device_, {});
    outputs.push_back(over_memory_of(result));
    return result;
  }

  c10::IValue allocated(const c10::IValue& like, std::vector<at::Tensor>& outputs) const {
    if (like.isTensor()) return allocate_like(like.toTensor(), outputs);
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : like.toTensorVector()) list.push_back(allocate_like(each, outputs));
    return list;
  }

  /// LibTorch's boxed kernels with several `out` arguments return references to these, and read them after they have
  /// taken the arguments off the stack, which may have the only ones.
  static void call(const c10::OperatorHandle& op, Stack& stack) {
    const Stack arguments = stack;
    op.callBoxed(&stack);
  }

  static void copy_out(const c10::IValue& result, std::vector<at::Tensor>& outputs, size_t& next,
                       const c10::OperatorHandle& op, size_t index) {
    if (op.schema().returns()[index].alias_info()) return;
    if (result.isTensor()) {
      if (result.toTensor().defined()) outputs[next++].copy_(result.toTensor());
      return;
    }
    for (const at::Tensor& each : result.toTensorVector())
      if (each.defined()) outputs[next++].copy_(each);
  }

  void run_now() {
    Stack stack = on_cpu(/*zeros=*/false);
    {
      const Kernels kernels;
      call(op_, stack);
    }
    Stack results;
    for (size_t i = 0; i < stack.size(); ++i) {
      const bool tensors = stack[i].isTensor() || stack[i].isTensorList();
      if (const auto argument = aliased_argument(i)) {
        results.push_back(arguments_[*argument]);
      } else if (tensors) {
        std::vector<at::Tensor> outputs;
        results.push_back(allocated(stack[i], outputs));
        size_t next = 0;
        const Kernels kernels;
        copy_out(stack[i], outputs, next, op_, i);  // new memory, so nothing is queued on it
      } else {
        results.push_back(stack[i]);
      }
    }
    finish(std::move(results));
  }

  void finish(Stack results) {
    torch::jit::drop(stack_, count_);
    for (c10::IValue& each : results) stack_.push_back(std::move(each));
  }

  const c10::OperatorHandle op_;
  Stack& stack_;
  const size_t count_;
  const Stack arguments_;
  std::string name_;
  std::optional<c10::Device> device_;
};

void run_kernel_of_cpu(const c10::OperatorHandle& op, Stack* stack) { Call(op, *stack).run(); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_kernel_of_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("record_stream", record_stream);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("copy_", copy_);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("as_strided", as_strided);
  library.impl("view", [](const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); });
  library.impl("_reshape_alias", [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
    return at::native::_reshape_alias(self, size, stride);
  });
  library.impl("unfold", [](const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
    return at::native::unfold(self, dimension, size, step);
  });
  library.impl("view_as_real", [](const at::Tensor& self) { return at::native::view_as_real(self); });
  library.impl("view_as_complex", [](const at::Tensor& self) { return at::native::view_as_complex(self); });
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  const c10::DeviceGuard guard(impl->device());
  c10::DataPtr memory = impl->allocator()->allocate(bytes);
  const size_t common = std::min(bytes, impl->nbytes());
  if (common > 0)
    current_queue(impl->device()).add("copy", [to = memory.get(), from = impl->mutable_data(), common] {
      std::memcpy(to, from, common);
    });
  impl->set_data_ptr_noswap(std::move(memory));
  impl->set_nbytes(bytes);
}

}  // namespace lockstep::fake
