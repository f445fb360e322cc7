// Lets dist::abort end the waits of a store whose connection can't be shut down from here: a store without connections
// (a file, the process's memory), or a TCPStore where the interposer is absent (interposed.h).
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::dist {

/// Forwards to `store`. Every call runs `check` first, and one that waits runs it every 50 ms; what `check` throws ends
/// the call.
class AbortableStore : public c10d::Store {
 public:
  AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::function<void()> check_;
};

}  // namespace lockstep::dist
