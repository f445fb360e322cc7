#include "collectives/transport/abortable_store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

namespace lockstep::dist {

namespace {
constexpr auto kLongestPause = std::chrono::milliseconds(50);
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

// Asks for the keys instead of waiting in the store, where a wait that ends early is an error and makes TCPStore warn.
void AbortableStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, kLongestPause)) {
    check_();
    if (store_->check(keys)) return;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    if (timeout != kNoTimeout && waited >= timeout)
      C10_THROW_ERROR(DistStoreError, fmt::format("the wait for {} ended at its limit of {} ms", fmt::join(keys, ", "),
                                                  timeout.count()));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace lockstep::dist
