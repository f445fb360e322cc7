// %% [markdown]
// # Large messages in both directions
// Every rank sends 64 MB to the next and receives 64 MB from the one before, at the same time; then pairs of ranks exchange theirs, one message after
// the other. No value may change on the way.
//
//     lockstep run scripts/devices/exchange-64-megabytes.cpp -n 2

// %% what each rank sends
#include <chrono>

if (world_size < 2) throw std::runtime_error("a message needs two ranks: run this with -n 2 or more");
const int64_t kElements = 16 << 20;  // of 4 bytes
auto mine = torch::arange(kElements, at::TensorOptions(device).dtype(torch::kInt)) * (rank + 1);
auto theirs = torch::empty_like(mine);

void check_is_of(int sender) {
  if (!torch::equal(theirs, torch::arange(kElements, mine.options()) * (sender + 1)))
    throw std::runtime_error("the message of rank " + std::to_string(sender) + " has arrived changed");
  theirs.zero_();
}

// %% around the ring
const int next = (rank + 1) % world_size, before = (rank + world_size - 1) % world_size;
double fastest = 1e9;
for (int i = 0; i < 5; ++i) {
  const auto start = std::chrono::steady_clock::now();
  for (auto& each : dist::batch_isend_irecv({dist::P2POp(dist::isend, mine, next), dist::P2POp(dist::irecv, theirs, before)})) each.wait();
  check_is_of(before);  // on a GPU, the host waits here
  fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}
if (rank == 0) std::cout << "figure exchange_64_megabytes " << std::fixed << std::setprecision(6) << fastest << " s\n";

// %% pairs, one message after the other
const int partner = rank ^ 1;
if (partner < world_size) {
  if (rank < partner) {
    dist::send(mine, partner);
    dist::recv(theirs, partner);
  } else {
    dist::recv(theirs, partner);
    dist::send(mine, partner);
  }
  check_is_of(partner);
}
