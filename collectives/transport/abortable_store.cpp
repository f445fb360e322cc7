#include "collectives/transport/abortable_store.h"

#include <algorithm>

namespace lockstep::dist {

namespace {
constexpr auto kSlice = std::chrono::milliseconds(50);
}

AbortableStore::AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check)
    : c10d::Store(store->getTimeout()), store_(std::move(store)), check_(std::move(check)) {}

c10::intrusive_ptr<c10d::Store> AbortableStore::clone() {
  return c10::make_intrusive<AbortableStore>(store_->clone(), check_);
}

void AbortableStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  check_();
  store_->set(key, value);
}

std::vector<uint8_t> AbortableStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                                const std::vector<uint8_t>& desired) {
  check_();
  return store_->compareSet(key, expected, desired);
}

std::vector<uint8_t> AbortableStore::get(const std::string& key) {
  wait({key});
  return store_->get(key);
}

int64_t AbortableStore::add(const std::string& key, int64_t value) {
  check_();
  return store_->add(key, value);
}

bool AbortableStore::deleteKey(const std::string& key) {
  check_();
  return store_->deleteKey(key);
}

bool AbortableStore::check(const std::vector<std::string>& keys) {
  check_();
  return store_->check(keys);
}

int64_t AbortableStore::getNumKeys() {
  check_();
  return store_->getNumKeys();
}

void AbortableStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void AbortableStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const bool endless = timeout == kNoTimeout;
  for (;;) {
    check_();
    const auto left = timeout - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    const bool last = !endless && left <= kSlice;
    const Clock::time_point slice_start = Clock::now();
    try {
      store_->wait(keys, last ? std::max(left, std::chrono::milliseconds(1)) : kSlice);
      return;
    } catch (const c10::Error&) {  // stores have different types for "not yet": the time that has passed shows it
      if (last || Clock::now() - slice_start < kSlice) throw;
    }
  }
}

}  // namespace lockstep::dist
